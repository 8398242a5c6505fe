package main

import (
	"context"
	"path/filepath"

	"github.com/hutch-sh/hutch/images"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/template"
)

// openTemplates joins the templates with the manager, which asks them what sandboxes are made of.
func (d *daemon) openTemplates(m *sandbox.Manager) (err error) {
	d.templates, err = template.New(template.Config{
		Dir: filepath.Join(d.cfg.Data, "templates"), Boxes: m, Images: templateImages{d}, Logger: d.log,
		Private: d.cfg.Private,
		Shipped: func() []api.TemplateSpec { return *d.shipped.Load() },
	})
	return err
}

// templateImages is the image store as builds need it.
type templateImages struct{ d *daemon }

var _ template.Images = templateImages{}

// Base pulls where the policy says so. What a name of the section runtimes, or a tool of the host's, stands for is what
// a sandbox of it would be.
func (t templateImages) Base(ctx context.Context, name, platform string, pull api.PullPolicy,
	progress func(api.Progress)) (ref, digest string, err error) {
	root, err := t.d.source.Resolve(ctx, name, platform, pull, progress)
	if err != nil {
		return "", "", err
	}
	defer root.Release()
	if root.Ref == images.HostRef {
		return images.HostRef, images.HostRef, nil
	}
	if digest = root.Digest; digest == "" { // of one that was imported or committed
		img, err := t.d.store.Get(root.Ref)
		if err != nil {
			return "", "", err
		}
		digest = img.ID
	}
	return root.Ref, digest, nil
}

func (t templateImages) Commit(ctx context.Context, box, ref string, progress func(api.Progress)) error {
	_, err := imageBackend(t).Commit(ctx, api.CommitParams{Sandbox: box, Ref: ref, Message: "steps of a template"},
		progress)
	return err
}

func (t templateImages) Has(ref string) bool {
	_, err := t.d.store.Get(ref)
	return err == nil
}

// Means is true of names of runtimes and of images in the store: a template does not take their place.
func (t templateImages) Means(word string) bool {
	if ref, err := t.d.imageName(word); err != nil || ref != word || word == images.HostRef {
		return true
	}
	return t.Has(word)
}

func (t templateImages) List() ([]string, error) {
	all, err := t.d.store.List()
	refs := make([]string, 0, len(all))
	for _, img := range all {
		refs = append(refs, img.Ref)
	}
	return refs, err
}

func (t templateImages) Remove(ref string) error {
	defer imageBackend(t).settle()()
	return t.d.store.Remove(ref, nil)
}
