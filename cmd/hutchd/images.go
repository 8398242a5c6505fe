package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/images"
	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/server"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// openImages opens the image store. Credentials of registries are where the environment of
// whoever started the daemon says, as for podman. Without a runtime folder, and root's daemon
// has none since it is somebody else, they are below the state folder: the library's own
// choice, /run/containers/0, goes by a uid that this one is not outside.
func (d *daemon) openImages() (*images.Store, error) {
	if _, err := os.Stat(os.Getenv("XDG_RUNTIME_DIR")); err != nil {
		own := filepath.Join(d.cfg.Data, "home")
		if err := errors.Join(os.MkdirAll(own, 0o700), os.Setenv("XDG_RUNTIME_DIR", own)); err != nil {
			return nil, fmt.Errorf("a place for the credentials of registries: %w", err)
		}
	}
	return images.Open(filepath.Join(d.cfg.Data, "images"), images.Options{
		SingleUID: d.host.UserMap == "single", Logger: d.log, AuthFile: os.Getenv("REGISTRY_AUTH_FILE"),
	})
}

// imageSource gives sandboxes their root file systems.
type imageSource struct {
	d      *daemon
	views  *hostViews
	usr    *hostFolders
	layers *layers
}

var _ sandbox.ImageSource = (*imageSource)(nil)

// Resolve pulls where the policy says so and leases the layers.
func (s *imageSource) Resolve(ctx context.Context, name, platform string, pull api.PullPolicy,
	progress func(api.Progress)) (*spec.Root, error) {
	ref, err := s.d.imageName(name)
	if err != nil {
		return nil, err
	}
	if ref == images.HostRef {
		return s.host(platform)
	}
	s.d.busy.Add(1)
	defer s.d.busy.Add(-1)
	o := images.PullOptions{Platform: platform, Policy: images.PullPolicy(pull),
		Progress: s.d.pullEvents(ref, progress)}
	img, release, err := s.leased(ctx, ref, o)
	if err != nil {
		if registry.IsUnreachable(err) && (pull == "" || pull == api.PullMissing) {
			if root := s.hostHas(ctx, name, platform); root != nil {
				return root, nil
			}
		}
		return nil, err
	}
	fs := img.Rootfs()
	return &spec.Root{
		Ref: img.Ref, Digest: img.Digest, Config: configOf(img.Config),
		Dir: s.d.store.Dir(), Lower: fs.Lower, Release: release,
	}, nil
}

// leased has an image in the store and its layers leased. Whoever removes the image
// between the two makes it be fetched once more.
func (s *imageSource) leased(ctx context.Context, ref string, o images.PullOptions) (img *images.Image, release func(),
	err error) {
	for range 2 {
		if img, err = s.d.store.Pull(ctx, ref, o); err != nil {
			return nil, nil, err
		}
		if release, err = s.layers.lease(img.Rootfs().Lower); err == nil || api.ErrorCode(err) != api.NotFound {
			break
		}
	}
	return img, release, err
}

// host is the built-in image: the machine's own programs.
func (s *imageSource) host(platform string) (*spec.Root, error) {
	img, err := s.d.store.Host(images.HostOptions{Platform: platform})
	if err != nil {
		return nil, err
	}
	release, err := s.layers.lease(img.Rootfs.Lower)
	if err != nil {
		return nil, err
	}
	binds, err := s.views.binds(s.d.store.Dir(), img.Rootfs.Binds)
	if err != nil {
		release()
		return nil, err
	}
	root := &spec.Root{
		Ref: images.HostRef, Config: configOf(img.Config), Dir: s.d.store.Dir(),
		Lower: img.Rootfs.Lower, Binds: binds, Release: release,
	}
	if i := slices.IndexFunc(img.Rootfs.Binds, func(b images.Bind) bool { return b.Target == "/usr" }); i >= 0 {
		usr := img.Rootfs.Binds[i]
		root.WritableUsr = func() ([]string, error) {
			var hide []string // on the host
			for _, h := range usr.Hide {
				hide = append(hide, usr.Source+strings.TrimPrefix(h, usr.Target))
			}
			folders, err := s.usr.layer(usr.Source, hide)
			if err != nil {
				return nil, err
			}
			return []string{filepath.Join(s.d.store.Dir(), usr.Overlay), folders, usr.Source}, nil
		}
	}
	return root, nil
}

// Hold leases again what Resolve has leased for a hutchd before.
func (s *imageSource) Hold(lower []string) (release func(), err error) { return s.layers.lease(lower) }

// Pin keeps the layers of what outlives this daemon.
func (s *imageSource) Pin(name string, lower []string) error { return s.d.store.Pin(name, lower) }

// Unpin ends that.
func (s *imageSource) Unpin(name string) error { return s.d.store.Unpin(name) }

// Pins are the names of all that are kept so.
func (s *imageSource) Pins() ([]string, error) { return s.d.store.Pins() }

func reportTo(progress func(api.Progress)) func(images.Progress) {
	return func(p images.Progress) {
		progress(api.Progress{Kind: "image.progress", Layer: p.Layer, Phase: string(p.Phase), Done: p.Done,
			Total: p.Total})
	}
}

func configOf(c images.Config) api.ImageConfig {
	return api.ImageConfig{
		Env: c.Env, User: c.User, WorkingDir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
		Volumes: c.Volumes, StopSignal: c.StopSignal, Labels: c.Labels, ExposedPorts: c.ExposedPorts,
	}
}

// imageBackend answers the image methods.
type imageBackend struct{ d *daemon }

func (b imageBackend) Pull(ctx context.Context, p api.PullParams, progress func(api.Progress)) (api.Image, error) {
	b.d.busy.Add(1)
	defer b.d.busy.Add(-1)
	var err error
	if p.Ref, err = b.d.imageName(p.Ref); err != nil {
		return api.Image{}, err
	}
	policy := p.Policy
	if policy == "" {
		policy = api.PullAlways
	}
	img, err := b.d.store.Pull(ctx, p.Ref, images.PullOptions{
		Platform: p.Platform, Policy: images.PullPolicy(policy), Progress: b.d.pullEvents(p.Ref, progress),
	})
	if err != nil {
		return api.Image{}, err
	}
	return record(img), nil
}

func (b imageBackend) List(context.Context, api.Empty) (api.Images, error) {
	all, err := b.d.store.List()
	if err != nil {
		return api.Images{}, err
	}
	list := make([]api.Image, 0, len(all))
	for _, img := range all {
		list = append(list, record(img))
	}
	return api.Images{Images: list}, nil
}

func (b imageBackend) Inspect(_ context.Context, p api.RefParams) (api.Image, error) {
	ref, err := b.d.imageName(p.Ref)
	if err != nil {
		return api.Image{}, err
	}
	if ref == images.HostRef {
		host, err := b.d.store.Host(images.HostOptions{})
		if err != nil {
			return api.Image{}, err
		}
		return api.Image{
			Ref: images.HostRef, ID: host.ID, Platform: host.Platform,
			Layers: host.Rootfs.Lower, Config: configOf(host.Config),
		}, nil
	}
	img, err := b.d.store.Get(ref)
	if err != nil {
		return api.Image{}, err
	}
	return record(img), nil
}

// Remove forgets the reference. Sandboxes keep their layers by their leases.
func (b imageBackend) Remove(_ context.Context, p api.RefParams) error {
	ref, err := b.d.imageName(p.Ref)
	if err != nil {
		return err
	}
	if t, ok := b.d.templates.Uses(b.full(ref)); ok {
		return api.Errorf(api.FailedPrecondition, "image %s is what the steps of template %s have made", ref, t).
			WithField("ref").
			WithHint("remove the template: hutch template rm %s", t)
	}
	defer b.settle()()
	return b.d.store.Remove(ref, nil)
}

// full is the name under which an image is stored that is named in another way; "" where there is none.
func (b imageBackend) full(ref string) string {
	img, err := b.d.store.Get(ref)
	if err != nil {
		return ""
	}
	return img.Ref
}

// settle waits until hutch-launch has no lock of a layer any more that only sandboxes which were removed have had, and
// nothing is made ahead of an image, until release is called.
func (b imageBackend) settle() (release func()) {
	release = b.d.manager.NoPreparing()
	if err := b.d.launcher.Settle(context.Background()); err != nil {
		b.d.log.Debug("wait for hutch-launch to let go of layers", "err", err) // which is gone, and its locks with it
	}
	return release
}

func (b imageBackend) Login(ctx context.Context, p api.LoginParams) (api.Login, error) {
	b.d.busy.Add(1)
	defer b.d.busy.Add(-1)
	login, err := b.d.store.Registries().Login(ctx, p)
	login.Stored = b.d.asCallerSees(login.Stored)
	return login, err
}

// asCallerSees is a path of hutchd's in the namespace of its caller.
func (d *daemon) asCallerSees(path string) string {
	if rest, ok := strings.CutPrefix(path, d.cfg.Data+"/"); ok {
		return filepath.Join(d.cfg.Paths.State, "data", rest) // runtime/monitor has mounted it
	}
	return path
}

func (b imageBackend) GetLogin(ctx context.Context, p api.RegistryParams) (api.Login, error) {
	login, err := b.d.store.Registries().LoginOf(ctx, p.Registry)
	login.Stored = b.d.asCallerSees(login.Stored)
	return login, err
}

func (b imageBackend) Tag(_ context.Context, p api.TagParams) (api.Image, error) {
	ref, err := b.d.imageName(p.Ref)
	if err != nil {
		return api.Image{}, err
	}
	img, err := b.d.store.Tag(ref, p.Target)
	if err != nil {
		return api.Image{}, err
	}
	return record(img), nil
}

func (b imageBackend) DiskUse(ctx context.Context, _ api.Empty) (api.ImageDisk, error) {
	b.settle()() // in use is what somebody uses now
	return b.d.store.DiskUse(ctx)
}

func (b imageBackend) Prune(_ context.Context, p api.PruneParams) (api.Pruned, error) {
	defer b.settle()()
	removed, freed, err := b.d.store.Prune(p.All, func(ref string) bool {
		_, ok := b.d.templates.Uses(ref)
		return ok
	})
	return api.Pruned{Removed: removed, Bytes: freed}, err
}

func (b imageBackend) Verify(ctx context.Context, p api.VerifyParams) (api.Verified, error) {
	b.d.busy.Add(1)
	defer b.d.busy.Add(-1)
	ref, err := b.d.imageName(p.Ref)
	if err != nil {
		return api.Verified{}, err
	}
	checks, err := b.d.store.Verify(ctx, ref, images.VerifyOptions{Repair: p.Repair, Settle: b.settle})
	return api.Verified{Layers: checks}, err
}

// Import reads what the caller has opened: this process opens no path for it.
func (b imageBackend) Import(ctx context.Context, c *server.Call, p api.ImportParams) (api.Image, error) {
	b.d.busy.Add(1)
	defer b.d.busy.Add(-1)
	file, err := c.FDs.Take(*p.FD)
	if err != nil {
		return api.Image{}, err
	}
	defer file.Close()
	img, err := b.d.store.Import(ctx, file, p.Ref, images.ImportOptions{
		Format: p.Format, Image: p.Image, Platform: p.Platform, Changes: p.Changes,
		Progress: b.d.pullEvents(p.Ref, c.Progress),
	})
	if err != nil {
		return api.Image{}, err
	}
	return record(img), nil
}

func record(img *images.Image) api.Image {
	return api.Image{
		Ref: img.Ref, Digest: img.Digest, ID: img.ID, Platform: img.Platform, Created: created(img.Created),
		SizeBytes: img.SizeBytes, Layers: diffIDs(img.Layers), Config: configOf(img.Config),
	}
}

// diffIDs turns the store's folders, layers/sha256-HEX.../root, into what the
// OCI calls the layers.
func diffIDs(folders []string) []string {
	ids := make([]string, 0, len(folders))
	for _, folder := range folders {
		parts := strings.Split(folder, "/")
		algorithm, rest, _ := strings.Cut(parts[min(1, len(parts)-1)], "-")
		digits, _, _ := strings.Cut(rest, "-")
		ids = append(ids, algorithm+":"+digits)
	}
	return ids
}

func created(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
