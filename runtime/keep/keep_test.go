package keep

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// TestSnapshots: a snapshot has the files of its moment and is its user's; nothing is left of one that fails, or was
// removed.
func TestSnapshots(t *testing.T) {
	r := newRig(t)
	b := r.box("sb_a", map[string]string{"file": "one"})
	sn := r.snapshot(b, "first")
	r.write(b, "file", "two")
	for name, fail := range map[string]func(){
		"Still":   func() { r.boxes.fail["Still"] = errInjected },
		"Folders": func() { r.boxes.fail["Folders"] = errInjected },
		"Pin":     func() { r.images.fail = errInjected },
	} {
		fail()
		_, err := r.CreateSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotCreateParams{Sandbox: "sb_a"})
		r.boxes.fail, r.images.fail = map[string]error{}, nil
		if !errors.Is(err, errInjected) || len(r.layers()) != 1 || len(r.names("snapshots")) != 1 ||
			len(r.names("tmp")) != 0 {
			t.Errorf("%s: %v, layers %v", name, err, r.layers())
		}
	}
	_, err := r.CreateSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotCreateParams{Sandbox: "sb_a",
		Name: "first"})
	r.refused("a name twice", api.AlreadyExists, err)
	_, err = r.CreateSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotCreateParams{Sandbox: "sb_x"})
	r.refused("no sandbox", api.NotFound, err)
	b.files.Layers = make([]string, api.MaxForkDepth)
	_, err = r.CreateSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotCreateParams{Sandbox: "sb_a"})
	r.refused("too deep", api.FailedPrecondition, err)
	text, err := os.ReadFile(filepath.Join(r.Roots(r.layers())[0], "file"))
	if err != nil || string(text) != "one" || sn.Inodes == 0 || !slices.Equal(b.notes,
		[]api.AuditKind{api.AuditSnapshot}) {
		t.Errorf("%q, %v, %+v, noted %v", text, err, sn, b.notes)
	}
	list := func(user uint32, of string) int {
		l, err := r.Keep.Snapshots(t.Context(), Caller{User: user}, api.SnapshotListParams{Sandbox: of})
		if err != nil {
			t.Error(err)
		}
		return len(l.Snapshots)
	}
	if list(1000, "") != 1 || list(1000, "sb_a") != 1 || list(1000, "sb_b") != 0 || list(2000, "") != 0 {
		t.Error("the lists are others")
	}
	_, err = r.RemoveSnapshot(t.Context(), Caller{User: 2000}, api.SnapshotParams{Snapshot: sn.ID})
	r.refused("another's", api.NotFound, err)
	r.boxes.full = true // what it held is removed before the reply
	if _, err = r.RemoveSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotParams{Snapshot: "first"}); err != nil {
		t.Error(err)
	}
	r.bare()
}

// TestNeeded: a layer stays as long as a snapshot, a stopped sandbox or one that runs needs it, or somebody uses it.
func TestNeeded(t *testing.T) {
	r := newRig(t)
	sn := r.snapshot(r.box("sb_a", map[string]string{"file": "one"}), "")
	id := r.layers()[0]
	release, err := r.Use([]string{id})
	if err != nil {
		t.Fatal(err)
	}
	record := []byte(`{"record": {"network": 7}, "layers": ["` + id + `"]}`)
	homes := []string{r.shelf.Box("sb_b"), filepath.Join(filepath.Dir(filepath.Dir(r.cfg.Dir)), "d2/sandboxes/sb_c")}
	for _, dir := range homes {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "record.json"), record,
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.RemoveSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotParams{Snapshot: sn.ID}); err != nil {
		t.Error(err)
	}
	for _, dir := range homes {
		if err := r.Collect(); err != nil || len(r.layers()) != 1 {
			t.Fatalf("%v, with %s: %v", r.layers(), dir, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Collect(); err != nil || len(r.layers()) != 1 {
		t.Errorf("%v is used: %v", r.layers(), err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	r.bare()
	if _, err := r.Use([]string{id}); err == nil {
		t.Error("what is gone is used")
	}
}

// TestForks: forks get the files of their origin and what it is now; all are made or none; what was launched for the
// first is its, and is dropped in the end.
func TestForks(t *testing.T) {
	r := newRig(t)
	b := r.box("sb_a", map[string]string{"file": "one"})
	b.sp.Owner, b.sp.Limits, b.record.Limits = api.OwnerConnection, api.Limits{PIDs: 7, CPUs: 2}, api.Limits{PIDs: 9}
	b.record.Labels = map[string]string{"a": "1", "b": "1"}
	r.boxes.early = &fakeEarly{}
	by := Caller{User: 1000, Conn: 3}
	out, err := r.Fork(t.Context(), by, api.ForkParams{Sandbox: "sb_a", Count: 3, Labels: map[string]string{"b": "2"}})
	if err != nil || len(out.Sandboxes) != 3 || len(r.boxes.forks) != 3 || r.boxes.early.dropped != 1 {
		t.Fatalf("%+v, %v, dropped %d times", out, err, r.boxes.early.dropped)
	}
	early := 0
	for _, f := range r.boxes.forks {
		if f.Early != nil {
			early++
		}
		if f.Spec.Owner != "" || f.Spec.Name != "" || f.Spec.Limits.PIDs != 9 || f.Spec.Limits.CPUs != 2 ||
			f.Spec.Labels["a"] != "1" || f.Spec.Labels["b"] != "2" || f.By != by || len(f.Origin.Layers) != 1 {
			t.Errorf("%+v", f)
		}
	}
	if early != 1 {
		t.Errorf("%d have what was launched", early)
	}
	r.bare() // no fork has taken a lock on it

	r.boxes.forks, r.boxes.fail["Fork"] = nil, errInjected
	if _, err := r.Fork(t.Context(), by, api.ForkParams{Sandbox: "sb_a", Count: 3}); !errors.Is(err, errInjected) ||
		!slices.Equal(r.boxes.gone, []string{"sb_fork1"}) {
		t.Errorf("%v, removed %v", err, r.boxes.gone)
	}
	delete(r.boxes.fail, "Fork")
	for _, call := range []string{"Still", "Room"} {
		r.boxes.fail[call], r.boxes.early.dropped, r.boxes.forks = errInjected, 0, nil
		if _, err := r.Fork(t.Context(), by, api.ForkParams{Sandbox: "sb_a"}); !errors.Is(err, errInjected) ||
			r.boxes.early.dropped != 1 || len(r.boxes.forks) != 0 {
			t.Errorf("%s: %v, dropped %d times", call, err, r.boxes.early.dropped)
		}
		delete(r.boxes.fail, call)
	}
	r.bare()

	sn := r.snapshot(b, "snap")
	out, err = r.Fork(t.Context(), by, api.ForkParams{Snapshot: "snap", Name: "again"})
	if err != nil || out.Sandboxes[0].Name != "again" || len(r.layers()) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	_, err = r.Fork(t.Context(), Caller{User: 2000}, api.ForkParams{Snapshot: sn.ID})
	r.refused("another's", api.NotFound, err)
	_, err = r.Fork(t.Context(), by, api.ForkParams{Snapshot: "snap", Folders: []api.StartFolder{{Target: "/nowhere"}}})
	if err == nil {
		t.Error("a folder that there is not was handed over")
	}
}

// TestRestore: a restored sandbox has the files of then, or those of before when that fails.
func TestRestore(t *testing.T) {
	for _, tt := range []struct {
		fails string
		file  string
		says  string
	}{
		{"", "one", ""},
		{"Stop", "two", ""},
		{"Save", "two", ""},
		{"Start", "one", "has the files of snapshot"},
	} {
		r := newRig(t)
		b := r.box("sb_a", map[string]string{"file": "one"})
		b.files = Files{Base: diskuse.Usage{Bytes: 5}}
		sn := r.snapshot(b, "")
		r.write(b, "file", "two")
		b.sp.Owner = api.OwnerConnection
		if tt.fails != "" {
			r.boxes.fail[tt.fails] = errInjected
		}
		out, err := r.RestoreSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotRestoreParams{Snapshot: sn.ID})
		if !errors.Is(err, r.boxes.fail[tt.fails]) || b.read("file") != tt.file || out.Snapshot != sn.ID {
			t.Errorf("%s: %v, %q, %+v", tt.fails, err, b.read("file"), out)
		}
		if tt.says != "" && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.fails, err)
		}
		if b.files.Next || b.files.Base.Bytes != 5 {
			t.Errorf("%s: %+v", tt.fails, b.files)
		}
		if tt.fails == "" && (len(b.started) != 1 || b.started[0].Owner != "" || len(b.saved) != 2 ||
			!b.saved[0].Next) {
			t.Errorf("started by %+v, saved %+v", b.started, b.saved)
		}
		if _, err := os.Lstat(filepath.Join(b.dir, "fs", nextDir)); err == nil {
			t.Errorf("%s: %s is left", tt.fails, nextDir)
		}
	}
	r := newRig(t)
	b := r.box("sb_a", map[string]string{"file": "one"})
	sn := r.snapshot(b, "")
	delete(r.boxes.byRef, "sb_a")
	_, err := r.RestoreSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotRestoreParams{Snapshot: sn.ID})
	r.refused("a sandbox that is gone", api.NotFound, err)
}

// TestRollForward: what a hutchd was killed over is gone on with if the record says that it counts, as often as it
// takes, and goes otherwise.
func TestRollForward(t *testing.T) {
	for _, counts := range []bool{true, false} {
		r := newRig(t)
		b := r.box("sb_a", map[string]string{"file": "old"})
		for name, text := range map[string]string{"next/upper/file": "new", "next/0/over": "new",
			"0/upper/over": "old"} {
			r.write(b, "../"+name, text)
		}
		b.files.Next = counts
		for _, fails := range []error{errInjected, nil} { // the first time the record cannot be written
			r.boxes.fail["Save"] = fails
			if err := RollForward(b); counts && !errors.Is(err, fails) {
				t.Fatal(err)
			}
			if fails != nil && b.files.Next != counts {
				t.Errorf("%+v", b.files)
			}
		}
		want := map[bool]string{true: "new", false: "old"}[counts]
		if b.read("file") != want || b.read("../0/upper/over") != want || b.files.Next {
			t.Errorf("%q, %q", b.read("file"), b.read("../0/upper/over"))
		}
	}
}

// TestDiff: what is other in the sandbox, or in another snapshot of it, is told; snapshots that have nothing in common
// are refused.
func TestDiff(t *testing.T) {
	r := newRig(t)
	b := r.box("sb_a", map[string]string{"changed": "one\n", "same": "same\n"})
	first := r.snapshot(b, "first")
	r.write(b, "changed", "two\n")
	r.write(b, "added", "new\n")
	second := r.snapshot(b, "second")
	other := r.snapshot(r.box("sb_b", map[string]string{"file": ""}), "other")
	diff := func(p api.SnapshotDiffParams) ([]string, error) {
		d, err := r.DiffSnapshot(t.Context(), Caller{User: 1000}, p)
		var paths []string
		for _, c := range d.Changes {
			paths = append(paths, c.Path)
		}
		slices.Sort(paths)
		return paths, err
	}
	for _, to := range []string{"", "second"} {
		for _, b.stopped = range []bool{true, false} {
			paths, err := diff(api.SnapshotDiffParams{Snapshot: first.ID, To: to})
			if err != nil || !slices.Equal(paths, []string{"/added", "/changed"}) {
				t.Errorf("to %q: %v, %v", to, paths, err)
			}
		}
	}
	if paths, err := diff(api.SnapshotDiffParams{Snapshot: second.ID}); err != nil || len(paths) != 0 {
		t.Errorf("%v, %v", paths, err)
	}
	_, err := diff(api.SnapshotDiffParams{Snapshot: first.ID, To: other.ID})
	r.refused("of another sandbox", api.FailedPrecondition, err)
	_, err = diff(api.SnapshotDiffParams{Snapshot: first.ID, To: "none"})
	r.refused("no snapshot", api.NotFound, err)
	b.files.Layers = []string{"ly_x"}
	_, err = diff(api.SnapshotDiffParams{Snapshot: first.ID})
	r.refused("other layers", api.FailedPrecondition, err)
	delete(r.boxes.byRef, "sb_a")
	_, err = diff(api.SnapshotDiffParams{Snapshot: first.ID})
	r.refused("the sandbox is gone", api.NotFound, err)
	if paths, err := diff(api.SnapshotDiffParams{Snapshot: first.ID, To: "second"}); err != nil || len(paths) != 2 {
		t.Errorf("without the sandbox: %v, %v", paths, err)
	}
	for _, ref := range []string{"tiny", spec.HostImage} {
		root, err := r.Again(t.Context(), &spec.Root{Ref: ref, Lower: []string{"1"}}, nil)
		if err != nil || root.Ref != ref || r.images.held != 1 {
			t.Fatalf("%+v, %v", root, err)
		}
		root.Release()
	}
	if r.images.held != 0 {
		t.Errorf("%d images are held", r.images.held)
	}
}

// TestBuilds: what a template has built is kept under its id, is nobody's snapshot, and has what was written to /usr.
func TestBuilds(t *testing.T) {
	r := newRig(t)
	b := r.box("sb_a", map[string]string{"file": "one"})
	r.write(b, "../0/upper/tool", "of /usr")
	if err := r.SaveBuild(t.Context(), "sb_a", "tm_1"); err != nil {
		t.Fatal(err)
	}
	list, err := r.Builds()
	if all, lerr := r.Keep.Snapshots(t.Context(), Caller{User: 1000}, api.SnapshotListParams{}); err != nil ||
		lerr != nil || !slices.Equal(list, []string{"tm_1"}) || len(all.Snapshots) != 0 {
		t.Errorf("%v, %v; %+v, %v", list, err, all, lerr)
	}
	_, err = r.RemoveSnapshot(t.Context(), Caller{User: 1000}, api.SnapshotParams{Snapshot: "tm_1"})
	r.refused("remove a build", api.NotFound, err)
	from, done, err := r.Build("tm_1")
	if err != nil || !from.Built || len(r.Usr(from.Layers)) != 1 {
		t.Fatalf("%+v, %v", from, err)
	}
	if text, err := os.ReadFile(filepath.Join(r.Usr(from.Layers)[0], "tool")); err != nil || string(text) != "of /usr" {
		t.Errorf("%q, %v", text, err)
	}
	if err := r.DropBuild("tm_1"); err != nil || r.HasBuild("tm_1") || len(r.layers()) != 1 { // which is used
		t.Errorf("%v, %v", err, r.layers())
	}
	done()
	if err := r.Collect(); err != nil {
		t.Error(err)
	}
	r.bare()
	if _, _, err := r.Build("tm_1"); err == nil {
		t.Error("what is gone is used")
	}
	r.images.fail = errInjected
	if err := r.SaveBuild(t.Context(), "sb_a", "tm_2"); !errors.Is(err, errInjected) {
		t.Error(err)
	}
	r.bare()
}

// TestStopStart: who stops and starts what.
func TestStopStart(t *testing.T) {
	for _, tt := range []struct {
		state   api.State
		stopped bool
		fails   string
		started int
		want    api.Code
		notes   int // of a stop
	}{
		{state: api.Running, notes: 1},
		{state: api.Paused, notes: 1},
		{state: api.Creating, want: api.FailedPrecondition, notes: 1},
		{state: api.Failed, started: 1, notes: 1},
		{state: api.Stopped, stopped: true, started: 1},
		{state: api.Failed, fails: "Stop", want: api.Internal, notes: 1},
		{state: api.Stopped, stopped: true, fails: "Start", want: api.Internal},
	} {
		r := newRig(t)
		b := r.box("sb_a", nil)
		b.record.State, b.stopped = tt.state, tt.stopped
		if tt.fails != "" {
			r.boxes.fail[tt.fails] = errInjected
		}
		got, err := r.Start(t.Context(), Caller{}, api.StartParams{Sandbox: "sb_a"})
		if (err == nil) != (tt.want == "") || api.ErrorCode(err) != tt.want && tt.want != "" ||
			len(b.started) != tt.started {
			t.Errorf("%s: %+v, %v, started %d times", tt.state, got, err, len(b.started))
		}
		b.record.State, b.stopped = tt.state, tt.stopped
		res, err := r.Stop(t.Context(), api.StopParams{Sandbox: "sb_a"})
		if tt.fails == "Stop" {
			if !errors.Is(err, errInjected) {
				t.Error(err)
			}
		} else if err != nil || res.Sandbox.State != api.Stopped || res.Ended.Note != "ended" ||
			len(b.notes) != tt.notes {
			t.Errorf("%s: %+v, %v, noted %v", tt.state, res, err, b.notes)
		}
	}
	r := newRig(t)
	_, err := r.Start(t.Context(), Caller{}, api.StartParams{Sandbox: "sb_a"})
	r.refused("start none", api.NotFound, err)
	_, err = r.Stop(t.Context(), api.StopParams{Sandbox: "sb_a"})
	r.refused("stop none", api.NotFound, err)
	long := -1.0
	_, err = r.Stop(t.Context(), api.StopParams{Sandbox: "sb_a", TimeoutS: &long})
	r.refused("a time that is none", api.InvalidArgument, err)
}
