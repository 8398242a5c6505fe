package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var errInjected = errors.New("injected")

// rig is a History of one sandbox, a fake whose files are a folder of the test's.
type rig struct {
	*History
	t        *testing.T
	turn     sync.Mutex
	dir      string
	spec     api.Spec
	record   api.Sandbox
	files    keep.Files
	set      *Set
	fail     map[string]error // by the name of a method
	standing []int            // that Quiesce names
	started  []api.Spec
	held     int // owners that are held
	notes    []api.AuditUndo
	inside   int // Enter
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), spec: api.Spec{Undo: true, Owner: api.OwnerConnection}, set: &Set{},
		record: api.Sandbox{ID: "sb_a", State: api.Running}, fail: map[string]error{}}
	diskError := func(op string, err error) error {
		if err != nil {
			err = fmt.Errorf("%s: %w", op, err)
		}
		return err
	}
	r.History = New(Config{Sandboxes: r, Files: keep.New(keep.Config{DiskError: diskError}), DiskError: diskError,
		Log: slog.New(slog.DiscardHandler)})
	if err := os.MkdirAll(filepath.Join(r.dir, "fs/upper"), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "fs/upper/file"), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read() string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "fs/upper/file"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Error(err)
	}
	return string(text)
}

// call is a call of a tool's that changes the file.
func (r *rig) call(id, text string) {
	r.t.Helper()
	made, err := r.Checkpoint(r.t.Context(), "box", Call{ID: id, Tool: "write_file", Paths: []string{"/file"}})
	if err != nil || !made {
		r.t.Fatalf("%v, %v", made, err)
	}
	r.write(text)
}

func (r *rig) refused(what string, want api.Code, err error) {
	r.t.Helper()
	if api.ErrorCode(err) != want {
		r.t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func (r *rig) Find(ref string) (Sandbox, error) {
	if ref != "box" {
		return nil, api.Errorf(api.NotFound, "no sandbox %q", ref)
	}
	return r.box(), nil
}

func (r *rig) Turn(_ context.Context, ref string) (Sandbox, func(), error) {
	s, err := r.Find(ref)
	if err != nil {
		return nil, nil, err
	}
	r.turn.Lock()
	return s, r.turn.Unlock, nil
}

func (r *rig) box() Sandbox { return box{r} }

// box is the sandbox.
type box struct{ *rig }

func (b box) Dir() string         { return b.dir }
func (b box) Files() *keep.Files  { return &b.files }
func (b box) Save() error         { return b.fail["Save"] }
func (b box) ID() string          { return b.record.ID }
func (b box) Spec() api.Spec      { return b.spec }
func (b box) Record() api.Sandbox { return b.record }
func (b box) Checkpoints() *Set   { return b.set }

func (b box) MustRun() error {
	return api.Errorf(api.FailedPrecondition, "sandbox sb_a is %s", b.record.State)
}

func (b box) Enter(context.Context) (func(), error) {
	b.inside++
	return func() { b.inside-- }, b.fail["Enter"]
}

func (b box) Quiesce(_ context.Context, use func([]int) error) error {
	if err := b.fail["Quiesce"]; err != nil {
		return err
	}
	return use(b.standing)
}

func (b box) Audit(_ context.Context, _ api.AuditKind, data any) {
	b.notes = append(b.notes, data.(api.AuditUndo))
}

func (b box) HoldOwner() (string, uint64, func() error) {
	b.held++
	return b.spec.Owner, 3, func() error { b.held--; return b.fail["back"] }
}

func (b box) Stop(context.Context, time.Duration, string) (Sandbox, api.Ended, error) {
	if err := b.fail["Stop"]; err != nil {
		return nil, api.Ended{}, err
	}
	b.record.State, b.set = api.Stopped, &Set{} // another object
	return b, api.Ended{Execs: []string{"ex_1"}}, nil
}

func (b box) Start(_ context.Context, sp api.Spec, conn uint64, _ packet.Taker) (api.Sandbox, error) {
	if err := b.fail["Start"]; err != nil {
		return api.Sandbox{}, err
	}
	if conn != 3 {
		b.t.Errorf("connection %d", conn)
	}
	b.record.State, b.set, b.started = api.Running, &Set{}, append(b.started, sp)
	return b.record, nil
}
