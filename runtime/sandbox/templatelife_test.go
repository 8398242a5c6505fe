package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// fakeTemplates has one template, "t".
type fakeTemplates struct{ made *Made }

func (f *fakeTemplates) Find(_ context.Context, sp api.Spec, _ uint32, _ func(api.Progress)) (*Made, error) {
	if sp.Template == "" {
		return nil, nil
	}
	made := *f.made
	made.Template, made.Spec.Image = sp.Template, "tiny"
	made.Spec.Name, made.Spec.Owner = sp.Name, sp.Owner
	return &made, nil
}

// ofTemplate asks for a sandbox of it.
func ofTemplate(req *CreateRequest) { req.Spec.Image, req.Spec.Template = "", "t" }

// TestTemplateStarts: a sandbox of a template is there when what that starts is ready and its ports are exposed; what
// does not become ready says why, and leaves nothing.
func TestTemplateStarts(t *testing.T) {
	var of fakeTemplates
	inBubble(t, func(t *testing.T, r *rig) {
		for name, tt := range map[string]struct {
			start, ready string
			want         api.Code
			after        time.Duration
			says         string
		}{
			"ready":       {"hang", "true", "", 0, ""},
			"no command":  {"", "true", "", 0, ""},
			"never":       {"hang", "exit", api.DeadlineExceeded, 10 * time.Second, "not ready after 10 s"},
			"ends":        {"exit", "stubborn", api.FailedPrecondition, 0, "ended with 4 before it was ready"},
			"cannot":      {"missing", "true", api.NotFound, 0, "start the command of template t"},
			"dies":        {"hang", "crash", api.FailedPrecondition, -1, ""},
			"slow enough": {"hang", "", "", 0, ""},
		} {
			of.made = &Made{Ports: []api.TemplatePort{{Port: 80}}, Cmd: []string{"serve"}}
			if tt.start != "" {
				of.made.Start = &api.TemplateStart{Argv: []string{tt.start, "4"}}
			}
			if tt.ready != "" {
				of.made.Ready = &api.TemplateReady{Argv: []string{tt.ready, "1"}, TimeoutS: 10}
			}
			r.quiet(func() {
				start := time.Now()
				sb, err := r.m.Create(t.Context(), request(ofTemplate))
				took := time.Since(start)
				if tt.want != "" {
					if api.ErrorCode(err) != tt.want || !strings.Contains(err.Error(), tt.says) ||
						tt.after >= 0 && took != tt.after {
						t.Errorf("%s: after %v: %v", name, took, err)
					}
					r.settle()
					r.empty()
					return
				}
				ports, perr := r.ports(sb.ID)
				if err != nil || perr != nil || len(ports) != 1 || sb.Template != "t" || sb.State != api.Running ||
					!slices.Equal(sb.Command, []string{"serve"}) || (sb.Start != "") != (tt.start != "") {
					t.Errorf("%s: %+v, %v, ports %v", name, sb, err, ports)
				}
				if used, waiting := r.m.OfTemplate("t"); used != 1 || waiting != 0 {
					t.Errorf("%d and %d", used, waiting)
				}
				r.stop(sb.ID)
				again := r.startBox(sb.ID) // which starts its command, too
				if (again.Start != "") != (tt.start != "") || again.Start != "" && again.Start == sb.Start {
					t.Errorf("%s: %q, before %q", name, again.Start, sb.Start)
				}
				r.remove(sb.ID)
				r.empty()
			})
		}
	}, func(c *Config) { c.Templates = func(*Manager) Templates { return &of } })
}

// quiet has all commands run without output, as those in a bubble must: what a template starts is captured.
func (r *rig) quiet(f func()) {
	r.launcher.mu.Lock()
	r.launcher.silent = true
	r.launcher.mu.Unlock()
	f()
	r.launcher.mu.Lock()
	r.launcher.silent = false
	r.launcher.mu.Unlock()
}

// TestTemplatePool: a pool of a template is filled with those that are ready, and anew when the template is another.
func TestTemplatePool(t *testing.T) {
	of := fakeTemplates{&Made{Start: &api.TemplateStart{Argv: []string{"hang"}}}}
	inBubble(t, func(t *testing.T, r *rig) {
		r.quiet(func() {
			p := api.PoolSpec{Name: "t", Size: 2, Sandbox: api.Spec{Template: "t"}}
			if err := r.m.Pools.KeepTemplate(p, 1000); err != nil {
				t.Fatal(err)
			}
			testenv.Elapse(2 * time.Second)
			if used, waiting := r.m.OfTemplate("t"); used != 0 || waiting != 2 {
				t.Errorf("%d and %d", used, waiting)
			}
			before := r.list()
			r.m.Pools.RenewTemplate("t")
			testenv.Elapse(2 * time.Second)
			for _, sb := range before {
				if st := r.state(sb.ID); st != api.StateRemoved {
					t.Errorf("one of the old template is %s", st)
				}
			}
			sb := r.acquire("t")
			if sb == nil || sb.State != api.Running || sb.Start == "" {
				t.Fatalf("%+v", sb)
			}
			if rec, err := r.m.Execs.Get(api.ExecRef{Exec: sb.Start}); err != nil || rec.State != api.ExecRunning {
				t.Errorf("%+v, %v", rec, err)
			}
			p.Size = 0
			if err := r.m.Pools.KeepTemplate(p, 1000); err != nil || len(r.m.Pools.All()) != 0 {
				t.Errorf("%v", err)
			}
			r.settle()
			r.remove(sb.ID)
			r.empty()
		})
	}, func(c *Config) { c.Templates = func(*Manager) Templates { return &of } })
}

// TestBuilds: what a build has written is kept, sandboxes are made over it, and what they need stays for them.
func TestBuilds(t *testing.T) {
	of := fakeTemplates{}
	r := newRig(t, func(c *Config) { c.Templates = func(*Manager) Templates { return &of } })
	b := r.create(func(req *CreateRequest) { req.Building = true })
	r.write(b.ID, "tmp/built", "by the template")
	if err := r.m.Keep.SaveBuild(t.Context(), b.ID, "tm_1"); err != nil {
		t.Fatal(err)
	}
	r.remove(b.ID)
	if list, err := r.m.Keep.Builds(); err != nil || !slices.Equal(list, []string{"tm_1"}) ||
		!r.m.Keep.HasBuild("tm_1") {
		t.Errorf("%v, %v", list, err)
	}
	of.made = &Made{Build: "tm_1"}
	sb := r.create(ofTemplate)
	if layers := r.sandbox(sb.ID).kept.Layers; len(layers) != 1 {
		t.Errorf("%v", layers)
	}
	if err := r.m.Keep.DropBuild("tm_1"); err != nil || r.m.Keep.HasBuild("tm_1") {
		t.Error(err)
	}
	if _, err := r.m.Create(t.Context(), request(ofTemplate)); err == nil {
		t.Error("made over what is gone")
	}
	r.stop(sb.ID)
	r.startBox(sb.ID)
	r.remove(sb.ID)
	if ids, err := r.cfg.Shelf.Snapshots(); err != nil || len(ids) > 0 {
		t.Errorf("%v, %v", ids, err)
	}
}

// TestUndo: a call can be taken back, and the taking back, too; the sandbox keeps its id and name; one without undo
// keeps nothing.
func TestUndo(t *testing.T) {
	r := newRig(t)
	sb := r.create(named("box"), func(req *CreateRequest) { req.Spec.Undo = true })
	call := func(id, text string) {
		t.Helper()
		made, err := r.m.History.Checkpoint(t.Context(), "box", history.Call{ID: id, Tool: "write",
			Paths: []string{"/tmp/file"}})
		if err != nil || !made {
			t.Fatalf("%v, %v", made, err)
		}
		r.write(sb.ID, "tmp/file", text)
	}
	call("tc_1", "one")
	call("tc_2", "two")
	call("tc_3", "three")
	list, err := r.m.History.Checkpoints(t.Context(), "box")
	if err != nil || len(list.Checkpoints) != 3 || list.Checkpoints[0].Call != "tc_1" {
		t.Fatalf("%+v, %v", list, err)
	}
	restore := func(to string) api.CheckpointRestored {
		t.Helper()
		got, err := r.m.History.Restore(t.Context(), api.CheckpointRestoreParams{Sandbox: "box", ToCall: to}, nil)
		if err != nil || got.ID != sb.ID || got.State != api.Running {
			t.Fatalf("%+v, %v", got, err)
		}
		return got
	}
	got := restore("tc_2")
	if text := r.read(sb.ID, "tmp/file"); text != "one" || !slices.Equal(got.Undone, []string{"tc_3", "tc_2"}) {
		t.Errorf("%q, undone %v", text, got.Undone)
	}
	restore(got.Call)
	if text := r.read(sb.ID, "tmp/file"); text != "three" {
		t.Errorf("%q", text)
	}
	_, err = r.m.History.Restore(t.Context(), api.CheckpointRestoreParams{Sandbox: "box", ToCall: "tc_9"}, nil)
	r.refused(api.NotFound, err)
	r.points.failing("Launcher.Create", errInjected)
	_, err = r.m.History.Restore(t.Context(), api.CheckpointRestoreParams{Sandbox: "box", ToCall: "tc_1"}, nil)
	r.points.failing("Launcher.Create", nil)
	if !errors.Is(err, errInjected) || r.state("box") != api.Stopped {
		t.Errorf("%v, it is %s", err, r.state("box"))
	}
	r.startBox("box")
	if text := r.read(sb.ID, "tmp/file"); text != "" {
		t.Errorf("%q", text)
	}
	r.remove("box")
	plain := r.create()
	if made, err := r.m.History.Checkpoint(t.Context(), plain.ID, history.Call{ID: "tc_1"}); made || err != nil {
		t.Errorf("%v, %v", made, err)
	}
	_, err = r.m.History.Checkpoints(t.Context(), plain.ID)
	r.refused(api.FailedPrecondition, err)
	r.remove(plain.ID)
}

// TestSnapshotDiffers: a diff says what is other than in a snapshot, in the sandbox as it is and in a later snapshot.
func TestSnapshotDiffers(t *testing.T) {
	r := newRig(t)
	sb := r.create()
	r.write(sb.ID, "tmp/changed", "before\n")
	r.write(sb.ID, "tmp/same", "same\n")
	first, err := r.m.Keep.CreateSnapshot(t.Context(), keep.Caller{User: 1000},
		api.SnapshotCreateParams{Sandbox: sb.ID})
	if err != nil {
		t.Fatal(err)
	}
	r.write(sb.ID, "tmp/changed", "after\n")
	r.write(sb.ID, "tmp/added", "new\n")
	second, err := r.m.Keep.CreateSnapshot(t.Context(), keep.Caller{User: 1000},
		api.SnapshotCreateParams{Sandbox: sb.ID})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"", second.ID} {
		d, err := r.m.Keep.DiffSnapshot(t.Context(), keep.Caller{User: 1000}, api.SnapshotDiffParams{Snapshot: first.ID,
			To:      to,
			Unified: true})
		var paths []string
		for _, c := range d.Changes {
			paths = append(paths, c.Path)
		}
		slices.Sort(paths)
		if err != nil || !slices.Equal(paths, []string{"/tmp/added", "/tmp/changed"}) ||
			!strings.Contains(d.Diff, "-before\n+after\n") {
			t.Errorf("to %q: %q, %v\n%s", to, paths, err, d.Diff)
		}
	}
	_, err = r.m.Keep.DiffSnapshot(t.Context(), keep.Caller{User: 2000}, api.SnapshotDiffParams{Snapshot: first.ID})
	r.refused(api.NotFound, err)
	if list, err := r.m.Keep.Snapshots(t.Context(), keep.Caller{User: 1000}, api.SnapshotListParams{}); err != nil ||
		len(list.Snapshots) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	r.remove(sb.ID)
	for _, id := range []string{first.ID, second.ID} {
		if _, err := r.m.Keep.RemoveSnapshot(t.Context(), keep.Caller{User: 1000},
			api.SnapshotParams{Snapshot: id}); err != nil {
			t.Error(err)
		}
	}
}
