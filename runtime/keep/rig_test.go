package keep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var errInjected = errors.New("injected")

// rig is a Keep over a real shelf, whose sandboxes and images are fakes.
type rig struct {
	*Keep
	t      *testing.T
	boxes  *fakeBoxes
	images *fakeImages
}

func newRig(t *testing.T) *rig {
	t.Helper()
	st, err := shelf.Open(filepath.Join(t.TempDir(), "shelf"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "daemons", "d1", "sandboxes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, images: &fakeImages{pins: map[string]bool{}}, boxes: &fakeBoxes{t: t, dir: dir,
		byRef: map[string]*fakeBox{}, fail: map[string]error{}}}
	r.Keep = New(Config{Sandboxes: r.boxes, Images: r.images, Shelf: st, Dir: dir, Kept: []string{"names", "undo"},
		DiskError: func(op string, err error) error {
			if err != nil {
				err = fmt.Errorf("%s: %w", op, err)
			}
			return err
		}})
	r.boxes.shelf = st
	return r
}

// box makes a running sandbox with files of these contents in the upper folder of its root.
func (r *rig) box(id string, files map[string]string) *fakeBox {
	r.t.Helper()
	b := &fakeBox{boxes: r.boxes, dir: filepath.Join(r.boxes.dir, id), sp: api.Spec{Image: "tiny", Name: "n-" + id},
		record: api.Sandbox{ID: id, State: api.Running, Image: "tiny"}, root: &spec.Root{Ref: "tiny", Lower: []string{
			r.t.TempDir()}}}
	for name, text := range files {
		r.write(b, name, text)
	}
	r.boxes.mu.Lock()
	defer r.boxes.mu.Unlock()
	r.boxes.byRef[id] = b
	return b
}

func (r *rig) write(b *fakeBox, name, text string) {
	r.t.Helper()
	path := filepath.Join(b.dir, "fs/upper", name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) snapshot(b *fakeBox, name string) api.Snapshot {
	r.t.Helper()
	sn, err := r.CreateSnapshot(r.t.Context(), Caller{User: 1000}, api.SnapshotCreateParams{Sandbox: b.ID(),
		Name: name})
	if err != nil {
		r.t.Fatal(err)
	}
	return sn
}

// refused fails unless err has this code.
func (r *rig) refused(what string, want api.Code, err error) {
	r.t.Helper()
	if api.ErrorCode(err) != want {
		r.t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// layers are those on the shelf.
func (r *rig) layers() []string { return r.names("layers") }

func (r *rig) names(sub string) (names []string) {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.shelf.Dir(), sub))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// bare fails unless nothing is left on the shelf, and no image is pinned.
func (r *rig) bare() {
	r.t.Helper()
	for _, sub := range []string{"layers", "snapshots", "tmp"} {
		if left := r.names(sub); len(left) > 0 {
			r.t.Errorf("left in %s: %v", sub, left)
		}
	}
	if pins, _ := r.images.Pins(); len(pins) > 0 {
		r.t.Errorf("pinned: %v", pins)
	}
}

// fakeBoxes are the sandboxes of a daemon, whose files are folders of the test's.
type fakeBoxes struct {
	t     *testing.T
	dir   string
	shelf *shelf.Store
	full  bool // Behind says no

	mu    sync.Mutex
	byRef map[string]*fakeBox
	fail  map[string]error // by the name of a method
	forks []Fork
	early *fakeEarly
	gone  []string // that Remove was told to remove
}

func (f *fakeBoxes) failing(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail[call]
}

func (f *fakeBoxes) Find(ref string) (Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.byRef[ref]; b != nil {
		return b, nil
	}
	return nil, api.Errorf(api.NotFound, "no sandbox %q", ref)
}

func (f *fakeBoxes) Turn(_ context.Context, ref string) (Sandbox, func(), error) {
	s, err := f.Find(ref)
	if err != nil {
		return nil, nil, err
	}
	b := s.(*fakeBox)
	if !b.turn.TryLock() {
		f.t.Errorf("two have the turn of %s", ref)
	}
	return b, b.turn.Unlock, nil
}

func (f *fakeBoxes) Room(uint32, *api.Limits, int) error { return f.failing("Room") }

func (f *fakeBoxes) Limits(asked, now api.Limits) api.Limits {
	if now.PIDs != 0 {
		asked.PIDs = now.PIDs
	}
	return asked
}

func (f *fakeBoxes) Early(api.Spec) Early {
	if f.early == nil {
		return nil
	}
	return f.early
}

func (f *fakeBoxes) Fork(_ context.Context, r Fork) (api.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail["Fork"]; err != nil && len(f.forks) > 0 { // the first succeeds
		return api.Sandbox{}, err
	}
	f.forks = append(f.forks, r)
	return api.Sandbox{ID: fmt.Sprintf("sb_fork%d", len(f.forks)), Name: r.Spec.Name}, nil
}

func (f *fakeBoxes) Remove(_ context.Context, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = append(f.gone, id)
}

func (f *fakeBoxes) Behind(remove func() error) bool {
	if f.full {
		return false
	}
	if err := remove(); err != nil {
		f.t.Error(err)
	}
	return true
}

type fakeEarly struct{ dropped int }

func (e *fakeEarly) Drop() { e.dropped++ }

// fakeBox is one of them.
type fakeBox struct {
	boxes   *fakeBoxes
	turn    sync.Mutex
	dir     string
	sp      api.Spec
	record  api.Sandbox
	root    *spec.Root
	files   Files
	stopped bool
	saved   []Files // by Save
	started []api.Spec
	notes   []api.AuditKind
}

func (b *fakeBox) Dir() string                  { return b.dir }
func (b *fakeBox) Files() *Files                { return &b.files }
func (b *fakeBox) ID() string                   { return b.record.ID }
func (b *fakeBox) User() uint32                 { return 1000 }
func (b *fakeBox) Now() (api.Spec, api.Sandbox) { return b.sp, b.record }
func (b *fakeBox) Root() *spec.Root             { return b.root }
func (b *fakeBox) Stopped() bool                { return b.stopped }

func (b *fakeBox) MustRun() error {
	return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", b.record.ID, b.record.State)
}

func (b *fakeBox) Save() error {
	if err := b.boxes.failing("Save"); err != nil {
		return err
	}
	b.saved = append(b.saved, b.files)
	return nil
}

func (b *fakeBox) Folders() (map[string]workspace.ID, error) { return nil, b.boxes.failing("Folders") }

func (b *fakeBox) Still(_ context.Context, _ string, use func() error) error {
	return errors.Join(b.boxes.failing("Still"), use())
}

func (b *fakeBox) Audit(_ context.Context, kind api.AuditKind, _ any) {
	b.notes = append(b.notes, kind)
}

func (b *fakeBox) Stop(context.Context, time.Duration, string) (Sandbox, api.Ended, error) {
	if err := b.boxes.failing("Stop"); err != nil {
		return nil, api.Ended{}, err
	}
	b.stopped, b.record.State, b.sp.Owner = true, api.Stopped, ""
	return b, api.Ended{Note: "ended"}, nil
}

func (b *fakeBox) Start(_ context.Context, sp api.Spec, _ Caller) (api.Sandbox, error) {
	if err := b.boxes.failing("Start"); err != nil {
		return api.Sandbox{}, err
	}
	b.stopped, b.record.State, b.started = false, api.Running, append(b.started, sp)
	return b.record, nil
}

// read is what the root of the sandbox has in a file, "" without it.
func (b *fakeBox) read(name string) string {
	text, err := os.ReadFile(filepath.Join(b.dir, "fs/upper", name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.boxes.t.Error(err)
	}
	return string(text)
}

// fakeImages pins names.
type fakeImages struct {
	mu   sync.Mutex
	pins map[string]bool
	fail error
	held int
}

func (f *fakeImages) Resolve(_ context.Context, ref, _ string, _ api.PullPolicy, _ func(api.Progress)) (*spec.Root,
	error) {
	release, err := f.Hold(nil)
	return &spec.Root{Ref: ref, Release: release}, err
}

func (f *fakeImages) Hold([]string) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held++
	return func() { f.mu.Lock(); f.held--; f.mu.Unlock() }, f.fail
}

func (f *fakeImages) Pin(name string, _ []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		f.pins[name] = true
	}
	return f.fail
}

func (f *fakeImages) Unpin(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pins, name)
	return nil
}

func (f *fakeImages) Pins() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.pins)), nil
}
