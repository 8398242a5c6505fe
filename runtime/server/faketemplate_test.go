package server

import (
	"context"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

type fakeTemplates struct{}

func (fakeTemplates) CreateTemplate(_ context.Context, _ Actor, p api.TemplateCreateParams,
	_ *jsonrpc.FDs) (api.Template, error) {
	return api.Template{TemplateSpec: p.TemplateSpec}, p.Validate()
}

func (fakeTemplates) ListTemplates() ([]api.Template, error) { return nil, nil }

func (fakeTemplates) Template(p api.TemplateParams) (api.Template, error) {
	return api.Template{TemplateSpec: api.TemplateSpec{Name: p.Template}}, nil
}

func (fakeTemplates) RemoveTemplate(api.TemplateParams) (api.TemplateRemoved, error) {
	return api.TemplateRemoved{}, nil
}

func (fakeTemplates) BuildTemplate(_ context.Context, _ Actor, p api.TemplateBuildParams,
	_ func(api.Progress)) (api.TemplateBuildResult, error) {
	return api.TemplateBuildResult{Template: api.Template{TemplateSpec: api.TemplateSpec{Name: p.Template}}}, nil
}
