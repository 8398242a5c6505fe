package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestOf: a spec's folders are its workspace, its mounts, and what a read-only root needs in memory.
func TestOf(t *testing.T) {
	sp := api.Spec{ReadOnly: true, Workspace: &api.Workspace{Path: "/p", Mode: api.ModeOverlay},
		Mounts: []api.Mount{{Volume: "v", Target: "/tmp/", Mode: api.ModeRW}}}
	var targets []string
	for _, m := range Of(&sp) {
		targets = append(targets, m.Target)
	}
	if !slices.Equal(targets, []string{Target, "/tmp/", "/var/tmp", "/run"}) || !HasOverlay(&sp) || Dir(&sp) != Target {
		t.Errorf("%v", targets)
	}
	none := api.Spec{Workspace: &api.Workspace{Mode: api.ModeNone}}
	if len(Of(&none)) > 0 || HasOverlay(&none) || Dir(&none) != "" || Dir(&api.Spec{}) != "" {
		t.Error("a workspace in mode none counts")
	}
	var s Set
	rw := api.Spec{Mounts: []api.Mount{{Source: "/a", Target: "/a", Mode: api.ModeRW}}}
	if err := s.Adopt(&rw, "/sb"); err != nil || len(s.Guards) != 1 {
		t.Errorf("%v, %v", s.Guards, err)
	}
}

// TestHandOver: the fds of a call take the place of those before, and each has to be of a folder that there was.
func TestHandOver(t *testing.T) {
	old := 9
	sp := api.Spec{Workspace: &api.Workspace{Path: "/p", Mode: api.ModeRW, FD: &old},
		Mounts: []api.Mount{{Source: "/m", Target: "/m/", FD: &old}, {Volume: "v", Target: "/v"}}}
	got, err := HandOver(sp, []api.StartFolder{{Target: "/m", FD: 2}})
	if err != nil || got.Workspace.FD != nil || *got.Mounts[0].FD != 2 || *sp.Mounts[0].FD != 9 ||
		*sp.Workspace.FD != 9 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = HandOver(sp, []api.StartFolder{{Target: "/v", FD: 2}})
	refused(t, api.InvalidArgument, err)
}

// TestOwner: a folder that the commands' user cannot use is told, and a mount of root's for another one is refused.
func TestOwner(t *testing.T) {
	image := files(t, newDir(t), map[string]string{"etc/passwd": "app:x:1000:1000::/:/bin/sh\nme:x:0:0::/:/\n"})
	dir := newDir(t)
	src, err := OpenPath(dir)
	must(t, err)
	defer src.Close()
	for _, tt := range []struct {
		user   string
		mode   os.FileMode
		mount  api.MountMode
		single bool
		says   string
	}{
		{"", 0o700, api.ModeRW, false, ""}, {"app", 0o777, api.ModeRO, false, ""},
		{"app", 0o777, api.ModeRW, false, "change none that was there"},
		{"app", 0o755, api.ModeRW, false, "can write nothing there"},
		{"app", 0o700, api.ModeRO, false, "cannot enter /m: it belongs to root"},
		{"app", 0o700, api.ModeRW, true, ""}, {"me", 0o700, api.ModeRW, false, ""},
		{"none", 0o700, api.ModeRW, false, ""},
	} {
		r := newRig(t, func(h *Host) { h.Single = tt.single })
		b := r.box(api.Spec{})
		a := r.ws.Attaching(b, Request{RunAs: tt.user, Layers: []string{t.TempDir(), image}})
		must(t, os.Chmod(dir, tt.mode))
		m := api.Mount{Source: dir, Target: "/m", Mode: tt.mount}
		if err := a.checkOwner(m, src, false); err != nil || (tt.says == "") != (len(b.notes) == 0) ||
			!strings.Contains(strings.Join(b.notes, ""), tt.says) {
			t.Errorf("%+v: %v, %v", tt, b.notes, err)
		}
		err := a.checkOwner(m, src, true)
		var ae *api.Error
		if tt.user == "app" && (!errors.As(err, &ae) || ae.Owner == nil || ae.Owner.UID != 1000) ||
			tt.user != "app" && err != nil {
			t.Errorf("%+v: mapped: %v", tt, err)
		}
	}
	if idName(overflowID) != "nobody" || idName(7) != "uid 7" {
		t.Error("names of ids")
	}
}

// TestVolumes: those of an adopted sandbox are kept, and one that is gone is logged.
func TestVolumes(t *testing.T) {
	r := newRig(t)
	must(t, os.MkdirAll(r.Path(1000, "v"), 0o755))
	b := r.box(api.Spec{Mounts: []api.Mount{{Volume: "v", Target: "/v"}, {Volume: "missing", Target: "/m"},
		{Source: "/", Target: "/x"}}})
	release := r.ws.HoldVolumes(b)
	if r.volumes["v"] != 1 || !strings.Contains(r.log.String(), "keep a volume") {
		t.Errorf("%v, %s", r.volumes, r.log.String())
	}
	must(t, release())
	if err := release(); err == nil {
		t.Error("a volume is closed twice")
	}
}

// TestImageVolumes: what an image names is made where it is missing and the sandbox's own, by no link that leads
// elsewhere, and what cannot be made is told.
func TestImageVolumes(t *testing.T) {
	dir := t.TempDir()
	root := files(t, filepath.Join(dir, "root"), map[string]string{"there/": "", "srv/": ""})
	must(t, os.Symlink("/srv", filepath.Join(root, "link")), os.Symlink("/gone", filepath.Join(root, "dangling")))
	sp := &api.Spec{Mounts: []api.Mount{{Target: "/data", Mode: api.ModeTmpfs}}}
	var made []string
	mkdir := func(_ context.Context, at string) error {
		if made = append(made, at); strings.HasSuffix(at, "bad") {
			return errors.New("no")
		}
		return nil
	}
	note := ImageVolumes(t.Context(), []string{"/there", "/new/one", "/link/two", "/data/x", "/dangling/x", "bad"},
		dir, sp, mkdir)
	if !slices.Equal(made, []string{"/new/one", "/srv/two", "/bad"}) || !strings.Contains(note, `"/dangling/x"`) ||
		!strings.Contains(note, `"bad": no`) {
		t.Errorf("made %v: %s", made, note)
	}
	many := slices.Repeat([]string{"/there"}, maxImageVolumes+1)
	if note := ImageVolumes(t.Context(), many, dir, sp, mkdir); !strings.Contains(note, "at most 64 are made") {
		t.Error(note)
	}
	if note := ImageVolumes(t.Context(), many, dir, &api.Spec{ReadOnly: true}, mkdir); note != "" {
		t.Error(note)
	}
}

// fakePID1 moves a folder.
type fakePID1 struct {
	moving string
	held   bool
	waited time.Duration
	err    error
}

func (p *fakePID1) Hold(_ context.Context, wait time.Duration) (string, error) {
	p.held, p.waited = true, wait
	return p.moving, nil
}

func (p *fakePID1) Release(context.Context) error {
	p.held = false
	return p.err
}

func (p *fakePID1) Err() error { return p.err }

// TestMoves: who waits for PID 1 hears which folder it moves, within the time that there is; without overlays it is not
// asked.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sp := &api.Spec{Mounts: []api.Mount{{Target: "/w", Mode: api.ModeOverlay}}}
		pid1 := &fakePID1{}
		m := Moves{"sb_a", sp, pid1}
		used := false
		err := m.While(t.Context(), func() error { used = pid1.held; return nil })
		if err != nil || !used || pid1.held {
			t.Errorf("%v, used while held: %v", err, used)
		}
		if pid1.waited != movePatience {
			t.Errorf("waited %v", pid1.waited)
		}
		pid1.moving = "/w/big"
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = m.While(short, func() error { t.Error("used while it moves"); return nil })
		if api.ErrorCode(err) != api.Unavailable || !strings.Contains(err.Error(), "/w/big") ||
			pid1.waited != time.Second-answerTime {
			t.Errorf("%v, waited %v", err, pid1.waited)
		}
		other := errors.New("other")
		if err := m.Why(context.DeadlineExceeded); api.ErrorCode(err) != api.Unavailable {
			t.Error(err)
		}
		if err := m.Why(other); err != other {
			t.Error(err)
		}
		pid1.moving = ""
		if err := m.Why(context.DeadlineExceeded); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		pid1.err = errors.New("it has ended")
		if err := m.Release(t.Context()); err != nil {
			t.Error(err)
		}
		plain := Moves{"sb_b", &api.Spec{}, nil}
		if err := errors.Join(plain.Hold(t.Context()), plain.Release(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestForeignHint: the folders are looked through once, behind a command that may have failed for it, and what was
// found is told where the output asks for it, or once.
func TestForeignHint(t *testing.T) {
	host := files(t, newDir(t), map[string]string{"w/a": ""})
	r := newRig(t)
	b := r.box(api.Spec{Mounts: []api.Mount{{Source: "/src", Target: "/w", Mode: api.ModeRW}}})
	must(t, os.Mkdir(At(b.dir, 0), 0o700), unix.Mount(filepath.Join(host, "w"), At(b.dir, 0), "", unix.MS_BIND, ""))
	defer func() { must(t, unix.Unmount(At(b.dir, 0), unix.MNT_DETACH)) }()
	hint := func(said string, seen bool) string { return r.ws.ForeignHint(t.Context(), b, []byte(said), seen) }
	if got := hint("no such file", true); got != "" || b.set.foreign.looked {
		t.Errorf("%q", got)
	}
	if got := hint("", false); got != "" || !b.set.foreign.looked {
		t.Errorf("%q", got)
	}
	b.set.foreign.text = "a file of others"
	if got := hint("a: Permission denied", true); got != b.set.foreign.text {
		t.Errorf("%q", got)
	}
	if got := hint("", false); got != "" {
		t.Errorf("told again where nobody has seen what the command says: %q", got)
	}
	if got := hint("Value too large for defined data type", true); got == "" {
		t.Error("not told again where the command asks for it")
	}
}

// TestCompare: two upper folders over one lower one are compared page by page.
func TestCompare(t *testing.T) {
	dir := files(t, newDir(t), map[string]string{"low/a": "a\n", "low/b": "b\n", "old/a": "old\n", "new/a": "new\n",
		"new/c": "c\n", "new/d": "d\n"})
	at := func(name string) string { return filepath.Join(dir, name) }
	compare := func(p api.SnapshotDiffParams) api.SnapshotDiff {
		d := Compare(p)
		closed := false
		d.AtEnd(func() { closed = true })
		low, err := d.Open(at("low"))
		must(t, err, d.Overlay(t.Context(), "/", at("old"), at("new"), []*os.File{low}),
			d.Overlay(t.Context(), "/over", at("none"), at("new"), nil))
		if d.Close(); !closed {
			t.Error("not closed")
		}
		return d.Result()
	}
	got := compare(api.SnapshotDiffParams{Unified: true})
	if len(got.Changes) != 3 || got.Changes[0].Path != "/a" || !strings.Contains(got.Diff, "+new") ||
		got.NextOffset != 0 {
		t.Errorf("%+v", got)
	}
	if got := compare(api.SnapshotDiffParams{Limit: 1, Offset: 1}); len(got.Changes) != 1 ||
		got.Changes[0].Path != "/c" || got.NextOffset != 2 {
		t.Errorf("%+v", got)
	}
	if got := compare(api.SnapshotDiffParams{Unified: true, MaxBytes: 5}); !got.Truncated {
		t.Errorf("%+v", got)
	}
	d := Compare(api.SnapshotDiffParams{})
	defer d.Close()
	if _, err := d.Open(at("none")); err == nil {
		t.Error("opened what is not there")
	}
}
