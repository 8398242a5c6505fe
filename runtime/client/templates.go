package client

import (
	"context"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
)

// CreateTemplate keeps a template. files is the read end of a pipe with the archive that p.Context means, or nothing;
// it stays the caller's.
func (c *Client) CreateTemplate(ctx context.Context, p api.TemplateCreateParams, files ...*os.File) (api.Template,
	error) {
	p.FDs = len(files)
	return get[api.Template](ctx, c, api.MethodTemplateCreate, p, WithFDs(files...))
}

// Templates lists the templates by name.
func (c *Client) Templates(ctx context.Context) ([]api.Template, error) {
	r, err := get[api.Templates](ctx, c, api.MethodTemplateList, nil)
	return r.Templates, err
}

// Template describes one.
func (c *Client) Template(ctx context.Context, name string) (api.Template, error) {
	return get[api.Template](ctx, c, api.MethodTemplateInspect, api.TemplateParams{Template: name})
}

// BuildTemplate runs the steps of a template unless nothing has changed. progress may be nil.
func (c *Client) BuildTemplate(ctx context.Context, p api.TemplateBuildParams,
	progress func(api.Progress)) (api.TemplateBuildResult, error) {
	p.Progress = progress != nil
	return get[api.TemplateBuildResult](ctx, c, api.MethodTemplateBuild, p, WithProgress(progress))
}

// RemoveTemplate removes one; sandboxes of it go on.
func (c *Client) RemoveTemplate(ctx context.Context, name string) (api.TemplateRemoved, error) {
	return get[api.TemplateRemoved](ctx, c, api.MethodTemplateRemove, api.TemplateParams{Template: name})
}
