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
func (c *Client) ImportImage(ctx context.Context, p api.ImportParams, file *os.File,
	progress func(api.Progress)) (api.Image, error) {
	p.FDs, p.FD = one(file)
	p.Progress = progress != nil
	return get[api.Image](ctx, c, api.MethodImageImport, p, withPipe(file), WithProgress(progress))
}

// Commit makes an image of what a sandbox has written and the image below it; progress may be
// nil.
func (c *Client) Commit(ctx context.Context, p api.CommitParams, progress func(api.Progress)) (api.Committed, error) {
	p.Progress = progress != nil
	return get[api.Committed](ctx, c, api.MethodImageCommit, p, WithProgress(progress))
}

// ExportImage writes an image into a regular file, which stays the caller's, or the write
// end of a pipe that was made for the call.
func (c *Client) ExportImage(ctx context.Context, p api.ExportParams, file *os.File) (api.Exported, error) {
	p.FDs, p.FD = one(file)
	return get[api.Exported](ctx, c, api.MethodImageExport, p, withPipe(file))
}

// PushImage sends an image to a registry; progress may be nil.
func (c *Client) PushImage(ctx context.Context, p api.PushParams, progress func(api.Progress)) (api.Pushed, error) {
	p.Progress = progress != nil
	return get[api.Pushed](ctx, c, api.MethodImagePush, p, WithProgress(progress))
}

// Login stores a user's credentials of a registry that accepts them.
func (c *Client) Login(ctx context.Context, p api.LoginParams) (api.Login, error) {
	return get[api.Login](ctx, c, api.MethodImageLogin, p)
}

// Logout removes the credentials of a registry.
func (c *Client) Logout(ctx context.Context, registry string) error {
	return c.Call(ctx, api.MethodImageLogout, api.RegistryParams{Registry: registry}, nil)
}

// GetLogin says as whom pulls from a registry come.
func (c *Client) GetLogin(ctx context.Context, registry string) (api.Login, error) {
	return get[api.Login](ctx, c, api.MethodImageGetLogin, api.RegistryParams{Registry: registry})
}

// TagImage gives an image one more name.
func (c *Client) TagImage(ctx context.Context, p api.TagParams) (api.Image, error) {
	return get[api.Image](ctx, c, api.MethodImageTag, p)
}

// ImageDiskUse says what images take on disk.
func (c *Client) ImageDiskUse(ctx context.Context) (api.ImageDisk, error) {
	return get[api.ImageDisk](ctx, c, api.MethodImageDu, nil)
}

// PruneImages removes layers that no image has, and with p.All images that no sandbox
// uses.
func (c *Client) PruneImages(ctx context.Context, p api.PruneParams) (api.Pruned, error) {
	return get[api.Pruned](ctx, c, api.MethodImagePrune, p)
}

// VerifyImages compares the files of images with what was unpacked. Damage is no error:
// see the results' Status.
func (c *Client) VerifyImages(ctx context.Context, p api.VerifyParams) ([]api.LayerCheck, error) {
	r, err := get[api.Verified](ctx, c, api.MethodImageVerify, p)
	return r.Layers, err
}
