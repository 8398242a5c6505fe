package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// A generic sandbox may be *dressed*: claimed ahead, for what was asked for last. Who asks for the same gets it as it is; it is
// otherwise still one that nobody has, and ends with this hutchd. See runtime/DESIGN.md, "Dressed ahead".

// wish is what a claim ahead decides: a sandbox of the same wish has the same root, mounts and name.
type wish struct {
	image, platform string
	bytes, inodes   int64 // limits of disk space, which decide where files are
}

// wishOf is the wish of a request; false when the request asks for what no wish has: host folders, a name of its own, a disk that
// is not like everybody's.
func (m *Manager) wishOf(req *CreateRequest, l *api.Limits) (wish, bool) {
	sp := &req.Spec
	w := wish{image: sp.Image, platform: sp.Platform, bytes: l.DiskBytes, inodes: l.Inodes}
	if w.bytes > 0 && w.inodes == 0 && sp.Limits.Inodes != api.Unlimited { // as reserve does
		w.inodes = defaultInodes(w.bytes)
	}
	plain := req.origin == nil && !sp.Keep && !sp.WritableUsr && sp.Hostname == "" && len(hostFolders(sp)) == 0 && m.cfg.Projects == nil
	return w, plain
}

// dressed is what a generic sandbox was given ahead.
type dressed struct {
	wish  wish
	root  *Root
	lower []folderID // its layers; nobody holds them, so that an image can be removed meanwhile
	disk  *disk
}

// dress claims g for w ahead. Whatever fails, g has ended.
func (m *Manager) dress(ctx context.Context, g *generic, w wish, networked bool) (err error) {
	s := &Sandbox{id: g.id, dir: g.dir, record: api.Sandbox{
		Hostname: defaultHostname(g.id), Limits: api.Limits{DiskBytes: w.bytes, Inodes: w.inodes},
	}}
	s.record.Network.Mode = api.NetNone
	if networked {
		s.record.Network.Mode = api.NetAllow
	}
	f := &creation{m: m, s: s, claimed: g, ahead: true, phases: map[string]float64{}, req: &CreateRequest{
		Spec: api.Spec{Image: w.image, Platform: w.platform, Pull: api.PullNever}, Progress: func(api.Progress) {},
	}}
	defer f.undo.Run(&err)
	d := &dressed{wish: w}
	for _, do := range []func(*creation, context.Context) error{
		(*creation).resolve,
		func(f *creation, _ context.Context) (err error) { d.lower, err = layerIDs(f.s.root); return err },
		(*creation).folders,
		func(f *creation, _ context.Context) error { return f.mountAbout() },
		(*creation).swapRoot,
	} {
		if err := do(f, ctx); err != nil {
			return err
		}
	}
	if err := s.letGo(); err != nil {
		return err
	}
	d.root, d.disk = s.root, s.disk
	g.dressed, g.unmount = d, f.undo.Release()
	return nil
}

// layerIDs says which folders a root's layers are.
func layerIDs(r *Root) ([]folderID, error) {
	ids := make([]folderID, len(r.Lower))
	for i, lower := range r.Lower {
		if !filepath.IsAbs(lower) {
			lower = filepath.Join(r.Dir, lower)
		}
		var err error
		if ids[i], err = identify(lower); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// errOutdated is why a dressed sandbox is not used.
var errOutdated = errors.New("the image is another one meanwhile")

// checkDressed compares the root that f has resolved with what its sandbox was given. A layer that was removed and
// made again has the same name: its folder is another, for the mount keeps the inode of the old one.
func (f *creation) checkDressed() error {
	if f.claimed == nil || f.claimed.dressed == nil {
		return nil
	}
	d, r := f.claimed.dressed, f.s.root
	ids, err := layerIDs(r)
	if err != nil {
		return err
	}
	if r.Dir != d.root.Dir || !slices.Equal(r.Lower, d.root.Lower) || !slices.Equal(ids, d.lower) || !slices.Equal(r.Binds, d.root.Binds) {
		return errOutdated
	}
	return nil
}

// mountAbout mounts what the sandbox is told of itself. It is empty.
func (f *creation) mountAbout() error {
	at := filepath.Join(f.s.dir, "about")
	mnt, err := sys.FSMount("tmpfs", []sys.FSOption{
		{Key: "source", Value: "hutch"}, {Key: "size", Value: fmt.Sprint(aboutBytes)}, {Key: "nr_inodes", Value: "8"}, {Key: "mode", Value: "755"},
	}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer mnt.Close()
	if err := sys.AttachTree(mnt, at); err != nil {
		return err
	}
	f.undo.Add(func() error { return unmount(at) })
	// First, so that its mount point is never made in a folder of the caller's.
	f.binds = append([]spec.Bind{{Source: at, Target: aboutTarget, ReadOnly: true}}, f.binds...)
	return nil
}

// wear makes f's sandbox the one that was dressed for it.
func (f *creation) wear() error {
	f.s.pidfd, f.s.guest = f.claimed.pidfd, f.claimed.guest
	f.undo.Add(f.claimed.end)
	if err := f.m.cfg.Launcher.Take(f.s.id); err != nil {
		return err
	}
	f.s.setPID(f.claimed.pid)
	f.m.watchCalls(f.s)
	return nil
}
