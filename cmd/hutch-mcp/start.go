package main

import (
	"cmp"
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// startPatience is how long the start waits for an image that is being fetched: clients wait some seconds for a server.
const startPatience = 5 * time.Second

// check finds out at the start what else the first call would: that there is no such sandbox, template or image. An
// image is fetched; one that takes long goes on meanwhile, and who needs it waits for it.
func (b *boxes) check(ctx context.Context, c *client.Client) error {
	spec := &b.cfg.Spec
	switch {
	case b.cfg.Sandbox != "":
		sb, err := c.GetSandbox(ctx, b.cfg.Sandbox)
		if err != nil {
			return err
		}
		if isEnd(sb.State) {
			return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", b.cfg.Sandbox, sb.State).
				WithHint("hutch start %s starts one that was stopped; or leave out --sandbox", sb.ID)
		}
		b.cfg.Sandbox, b.own = sb.ID, sb.ID
		return nil
	case spec.Template != "":
		_, err := c.Template(ctx, spec.Template)
		return err
	case spec.Image == "":
		return nil
	}
	fetched := make(chan error, 1)
	b.wg.Go(func() {
		_, err := described(b.session, c, spec)
		fetched <- err
	})
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case err := <-fetched:
		return err
	case <-patience.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ownHost is the image of this host's programs, which is always there, and has the working folder.
const ownHost = "host"

// described is what an image says of how it runs. It is fetched where the spec says so.
func described(ctx context.Context, c *client.Client, spec *api.Spec) (api.Image, error) {
	if spec.Image == ownHost {
		return api.Image{}, nil
	}
	return c.PullImage(ctx, api.PullParams{Ref: spec.Image, Platform: spec.Platform,
		Policy: cmp.Or(spec.Pull, api.PullMissing)}, nil)
}

// isEnd reports whether a sandbox in this state runs nothing any more.
func isEnd(s api.State) bool { return s != api.Running && s != api.Paused && s != api.Creating }

// settle gives a sandbox without a workspace the same working folder as one with, unless the flags, a template or the
// image name another. Who is not root inside could not write there, and the sandbox of a scope is what it was made as.
func settle(ctx context.Context, c *client.Client, spec *api.Spec) error {
	w := spec.Workspace
	named := spec.Template != "" || spec.Workdir != "" || w != nil && w.Mode != api.ModeNone
	if named || spec.Image == "" || spec.Scope != nil || spec.ReadOnly || !isRoot(spec.User) {
		return nil
	}
	image, err := described(ctx, c, spec)
	if err != nil {
		return err
	}
	if spec.Pull == api.PullAlways {
		spec.Pull = api.PullMissing // it has been
	}
	if isRoot(cmp.Or(spec.User, image.Config.User)) && cmp.Or(image.Config.WorkingDir, "/") == "/" {
		spec.Workdir = workspace
	}
	return nil
}

func isRoot(user string) bool { return user == "" || user == "0" || user == "root" || user == "0:0" }
