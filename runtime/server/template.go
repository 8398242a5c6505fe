package server

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// templateHandlers are those of template.*.
func (s *Server) templateHandlers() map[string]handler {
	templates := s.cfg.Templates
	return map[string]handler{
		api.MethodTemplateCreate: handle(func(ctx context.Context, c *Call, p api.TemplateCreateParams) (api.Template,
			error) {
			return templates.CreateTemplate(ctx, c.Actor, p, c.FDs)
		}),
		api.MethodTemplateList: handle(func(context.Context, *Call, api.Empty) (api.Templates, error) {
			list, err := templates.ListTemplates()
			return api.Templates{Templates: orEmpty(list)}, err
		}),
		api.MethodTemplateInspect: handle(func(_ context.Context, _ *Call, p api.TemplateParams) (api.Template, error) {
			return templates.Template(p)
		}),
		api.MethodTemplateRemove: handle(func(_ context.Context, _ *Call, p api.TemplateParams) (api.TemplateRemoved,
			error) {
			return templates.RemoveTemplate(p)
		}),
		api.MethodTemplateBuild: handle(func(ctx context.Context, c *Call,
			p api.TemplateBuildParams) (api.TemplateBuildResult, error) {
			return templates.BuildTemplate(ctx, c.Actor, p, c.Progress)
		}),
	}
}
