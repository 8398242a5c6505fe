package client

import (
	"context"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
)

// PullImage fetches an image; progress may be nil.
func (c *Client) PullImage(ctx context.Context, p api.PullParams, progress func(api.Progress)) (api.Image, error) {
	p.Progress = progress != nil
	return get[api.Image](ctx, c, api.MethodImagePull, p, WithProgress(progress))
}

// ListImages returns the images in the store.
func (c *Client) ListImages(ctx context.Context) ([]api.Image, error) {
	var r api.Images
	err := c.Call(ctx, api.MethodImageList, nil, &r)
	return r.Images, err
}

// InspectImage returns one image's record.
func (c *Client) InspectImage(ctx context.Context, ref string) (api.Image, error) {
	return get[api.Image](ctx, c, api.MethodImageInspect, api.RefParams{Ref: ref})
}

// RemoveImage removes an image reference and the layers that nothing else needs.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.Call(ctx, api.MethodImageRemove, api.RefParams{Ref: ref}, nil)
}

// ImportImage makes an image of an archive: a regular file, which stays the caller's,
// or the read end of a pipe that was made for the call. progress may be nil.
func (c *Client) ImportImage(ctx context.Context, p api.ImportParams, file *os.File, progress func(api.Progress)) (api.Image, error) {
	p.FDs, p.FD = one(file)
	p.Progress = progress != nil
	return get[api.Image](ctx, c, api.MethodImageImport, p, withPipe(file), WithProgress(progress))
}
