package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestAttach: each folder is mounted as its mode says, in the order of what hides what, and is gone when it is undone.
func TestAttach(t *testing.T) {
	r := newRig(t)
	host := files(t, newDir(t), map[string]string{"w/a": "a", "w/in/": "", "ro/a": "a", "over/a": "a", "file": "f"})
	at := func(name string) string { return filepath.Join(host, name) }
	b := r.attached(api.Spec{
		ReadOnly:  true,
		Workspace: &api.Workspace{Path: at("w"), Mode: api.ModeRW},
		Mounts: []api.Mount{
			{Source: at("ro"), Target: "/workspace/in", Mode: api.ModeRO}, {Source: at("over"), Target: "/over",
				Mode: api.ModeOverlay},
			{Volume: "v", Target: "/v", Mode: api.ModeRW}, {Target: "/mem/", Mode: api.ModeTmpfs, NoExec: true},
			{Source: at("file"), Target: "/file", Mode: api.ModeRO},
		},
	})
	binds := map[string]string{}
	for _, bind := range b.binds {
		binds[bind.Target] = bind.Source
		if bind.ReadOnly != (bind.Target == "/workspace/in" || bind.Target == "/file") {
			t.Errorf("%+v", bind)
		}
	}
	if len(binds) != 9 || b.leases != 1 || len(b.set.Guards) != 1 {
		t.Errorf("binds %v, %d leases, %d guards", binds, b.leases, len(b.set.Guards))
	}
	for target, want := range map[string]error{"/workspace/x": nil, "/workspace/in/x": nil, "/over/x": nil, "/v/x": nil,
		"/mem/x": nil, "/tmp/x": nil} {
		dir := binds[filepath.Dir(target)]
		if filepath.Dir(target) == "/workspace/in" {
			want = unix.EROFS
		}
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); !errors.Is(err, want) {
			t.Errorf("write %s: %v, want %v", target, err, want)
		}
	}
	reads(t, filepath.Join(binds["/over"], "a"), "a")
	reads(t, at("over/x"), "")
	if _, err := os.Stat(at("w/x")); err != nil {
		t.Error(err)
	}
	ids, err := IDsNow(&b.spec, b.dir)
	if err != nil || len(ids) != 4 || ids["/workspace"].Ino == 0 {
		t.Errorf("ids %v, %v", ids, err)
	}
	if got := r.ws.VolumeFolders(1000, &b.spec); len(got) != 1 || got[0] != r.Path(1000, "v") {
		t.Errorf("folders of volumes: %v", got)
	}
	if got := r.ws.UsersOf(1000, "v"); len(got) != 1 || len(r.ws.UsersOf(1, "v")) > 0 {
		t.Errorf("users: %v", got)
	}
	must(t, b.undo.Release()())
	if _, err := os.Stat(filepath.Join(At(b.dir, 0), "a")); err == nil {
		t.Error("it is mounted still")
	}
}

// TestAttachRefused: what cannot be mounted, or must not be, is refused with the field and what to do, and nothing of
// it is left.
func TestAttachRefused(t *testing.T) {
	host := files(t, newDir(t), map[string]string{"w/": "", "ro/": "", "file": ""})
	at := func(name string) string { return filepath.Join(host, name) }
	must(t, unix.Mkfifo(at("fifo"), 0o600), unix.Mount(at("ro"), at("ro"), "", unix.MS_BIND, ""),
		unix.Mount("", at("ro"), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	one := 1
	mount := func(m api.Mount) api.Spec {
		if m.Target == "" {
			m.Target = "/m"
		}
		if m.Mode == "" {
			m.Mode = api.ModeRW
		}
		return api.Spec{Mounts: []api.Mount{m}}
	}
	for _, tt := range []struct {
		name   string
		spec   api.Spec
		change func(*Request)
		code   api.Code
		says   string
	}{
		{name: "missing", spec: mount(api.Mount{Source: at("none")}), code: api.NotFound, says: "no such file"},
		{name: "no folder", spec: mount(api.Mount{Source: at("fifo")}), code: api.InvalidArgument, says: "neither"},
		{name: "overlay of a file", spec: mount(api.Mount{Source: at("file"), Mode: api.ModeOverlay}),
			code: api.InvalidArgument, says: "neither"},
		{name: "read-only", spec: mount(api.Mount{Source: at("ro")}), code: api.FailedPrecondition, says: "read-only"},
		{name: "volume", spec: mount(api.Mount{Volume: "missing"}), code: api.NotFound, says: "no volume"},
		{name: "another fd", spec: mount(api.Mount{Source: at("w"), FD: &one}), code: api.FailedPrecondition,
			change: func(r *Request) { r.FDs = taker{1: at("ro")} }, says: "not what the caller opened"},
		{name: "another folder", spec: mount(api.Mount{Source: at("w")}), code: api.FailedPrecondition,
			change: func(r *Request) { r.Before = map[string]ID{"/m": {Ino: 1}} }, says: "another folder"},
		{name: "nested", spec: api.Spec{Workspace: &api.Workspace{Path: at("w"), Mode: api.ModeRW}, Mounts: []api.Mount{
			{Source: at("w"), Target: "/workspace/none", Mode: api.ModeRO}}}, code: api.InvalidArgument,
			says: "cannot be mounted on /workspace/none"},
		{name: "twice", spec: api.Spec{Mounts: []api.Mount{{Source: at("w"), Target: "/m", Mode: api.ModeRO},
			{Target: "/m", Mode: api.ModeTmpfs}}}, code: api.InvalidArgument, says: "both to be mounted"},
		{name: "workspace", spec: api.Spec{Workspace: &api.Workspace{Path: at("none"), Mode: api.ModeRW}},
			code: api.NotFound, says: "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			b := r.box(tt.spec)
			change := tt.change
			if change == nil {
				change = func(*Request) {}
			}
			err := b.attach(change)
			refused(t, tt.code, err)
			var ae *api.Error
			if !errors.As(err, &ae) || ae.Field == "" || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v", err)
			}
		})
	}
	r := newRig(t)
	refused(t, api.PermissionDenied, r.box(mount(api.Mount{Source: r.dir})).attach())
	must(t, os.Symlink(r.dir, at("link")))
	refused(t, api.PermissionDenied, r.box(mount(api.Mount{Source: at("link")})).attach())
	must(t, unix.Unmount(at("ro"), unix.MNT_DETACH))
}

// TestAttachGiven: the fd of a caller is taken where it is what the path says, and a mount of the caller's as it is.
func TestAttachGiven(t *testing.T) {
	r := newRig(t)
	host := files(t, newDir(t), map[string]string{"w/a": "a"})
	one := 1
	sp := api.Spec{Workspace: &api.Workspace{Path: filepath.Join(host, "w"), Mode: api.ModeRO, FD: &one}}
	b := r.attached(sp, func(r *Request) { r.FDs = taker{1: filepath.Join(host, "w")} })
	reads(t, filepath.Join(At(b.dir, 0), "a"), "a")

	trees, err := Again(&b.spec, b.dir)
	must(t, err)
	defer trees.Close()
	again := r.attached(sp, func(r *Request) { r.FDs = trees })
	reads(t, filepath.Join(At(again.dir, 0), "a"), "a")
	if _, err := trees.Take(1); api.ErrorCode(err) != api.Internal {
		t.Errorf("taken twice: %v", err)
	}
	another := api.Spec{Workspace: &api.Workspace{Path: "/elsewhere", Mode: api.ModeRO}}
	given, trees, err := Clone(&b.spec, b.dir, another)
	must(t, err)
	defer trees.Close()
	third := r.attached(given, func(r *Request) { r.FDs = trees })
	reads(t, filepath.Join(At(third.dir, 0), "a"), "a")
	if got := HandedOver(&given); len(got) != 1 || got[0].Target != Target {
		t.Errorf("handed over: %+v", got)
	}
	if _, err := Again(&b.spec, t.TempDir()); err == nil {
		t.Error("took a mount that is not there")
	}
}

// TestAttachAgain: an overlay has what was written to it before, or a copy of it, and one of layers is beside all.
func TestAttachAgain(t *testing.T) {
	r := newRig(t)
	host := files(t, newDir(t), map[string]string{"w/a": "a", "over/0/b": "b", "usr/bin/x": "x"})
	sp := api.Spec{Mounts: []api.Mount{{Source: filepath.Join(host, "w"), Target: "/w", Mode: api.ModeOverlay}}}
	fork := r.attached(sp, func(r *Request) { r.Over = filepath.Join(host, "over") })
	reads(t, filepath.Join(fork.binds[0].Source, "b"), "b")
	usr, err := fork.at.Overlay(filepath.Join(host, "usr"))
	must(t, err)
	reads(t, filepath.Join(usr, "bin/x"), "x")

	must(t, os.WriteFile(filepath.Join(fork.binds[0].Source, "c"), []byte("c"), 0o644), fork.undo.Release()(),
		os.RemoveAll(filepath.Join(fork.dir, mounts)), os.Mkdir(filepath.Join(fork.dir, mounts), 0o700))
	must(t, fork.attach(func(r *Request) { r.Again = true }))
	reads(t, filepath.Join(fork.binds[0].Source, "c"), "c")
	reads(t, filepath.Join(fork.binds[0].Source, "a"), "a")
	must(t, r.ws.Unmount(fork.dir, 3), r.ws.Unmount(fork.dir, 3))
	fork.undo.Release()
}

// TestAttachShared: two sandboxes that write to a folder, or to one in the other, guard the same names of it.
func TestAttachShared(t *testing.T) {
	r := newRig(t)
	host := files(t, newDir(t), map[string]string{"w/sub/": "", "other/": ""})
	rw := func(name string, change ...func(*api.Workspace)) api.Spec {
		w := &api.Workspace{Path: filepath.Join(host, name), Mode: api.ModeRW}
		for _, f := range change {
			f(w)
		}
		return api.Spec{Workspace: w}
	}
	unguarded := func(w *api.Workspace) { w.Unguarded = []string{".git", ".vscode"} }
	refuses := func(w *api.Workspace) { w.GuardNew = api.GuardRefuse }
	r.attached(rw("w", unguarded))
	r.attached(rw("w/sub", func(w *api.Workspace) { w.Unguarded = []string{".vscode", ".git", ".git"} }))
	r.attached(rw("other"))
	r.attached(rw("w", func(w *api.Workspace) { w.Mode = api.ModeOverlay }))
	for _, sp := range []api.Spec{rw("w"), rw("w/sub"), rw("w", unguarded, refuses), rw("other", refuses)} {
		refused(t, api.FailedPrecondition, r.box(sp).attach())
		r.all = r.all[:len(r.all)-1]
	}
}
