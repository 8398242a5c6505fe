package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

func (f *creation) about(ctx context.Context) error {
	err := diskError("make a mount point", os.Mkdir(filepath.Join(f.s.dir, about.Folder), 0o700))
	if err != nil {
		return err
	}
	if err := f.mountAbout(); err != nil {
		return err
	}
	return f.claimAbout(ctx)
}

// claimAbout is about for one that has the file system, empty.
func (f *creation) claimAbout(ctx context.Context) error {
	f.bindAbout()
	return f.takeAbout(ctx)
}

// takeAbout is about for one that has the mounts, too.
func (f *creation) takeAbout(context.Context) error {
	return about.Write(f.s.dir, about.Of(f.s.Record(), &f.s.spec), f.s.meter.Files())
}

// mountAbout mounts what the sandbox is told about itself. It is empty but for what is the same in each.
func (f *creation) mountAbout() error {
	k, dir := f.m.cfg.Kernel, f.s.dir
	if err := about.Mount(k, dir); err != nil {
		return err
	}
	f.undo.Add(func() error { return unmount(k, filepath.Join(dir, about.Folder)) })
	if err := about.Furnish(dir); err != nil {
		return err
	}
	return f.m.Meters.Furnish(about.Sys(dir))
}

// bindAbout is first of the binds, so that its mount point is never made in a folder of the caller's; but for one in
// memory that would hide it.
func (f *creation) bindAbout() {
	first := 0
	for _, m := range workspace.Of(&f.req.Spec) {
		if below(about.Target, m.Target) && m.Mode == api.ModeTmpfs {
			first = 1 + slices.IndexFunc(f.binds,
				func(b spec.Bind) bool { return b.Target == filepath.Clean(m.Target) })
		}
	}
	f.binds = slices.Insert(f.binds, first, spec.Bind{Source: about.Told(f.s.dir), Target: about.Target,
		ReadOnly: true})
}

// tell tells a sandbox what has changed of what it may do. That it is in force does not depend on it.
func (m *Manager) tell(s *Sandbox) {
	err := about.Replace(s.dir, about.Of(s.Record(), &s.spec), s.meter.Files())
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // by one that told nothing
		m.cfg.Logger.Warn("tell a sandbox what it may do now", "sandbox", s.id, "err", err)
	}
}
