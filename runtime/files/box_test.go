package files

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/runtime/api"
	guestfiles "github.com/hutch-sh/hutch/runtime/guest/files"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// asWorker makes this binary a files worker, the real one, over its stdin.
const asWorker = "HUTCH_TEST_FILES_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := guestfiles.Run(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(leak.Main(m))
}

// fakeBox is a sandbox whose files are a folder of the test's, and whose workers are processes of this user's.
type fakeBox struct {
	t     *testing.T
	dir   string // the sandbox's folder; "files" in it is its working folder
	ws    Workers
	start func() error // fails a start; nil starts
	over  bool         // its limit of disk space
	ended error        // what Explain says

	mu      sync.Mutex
	started int
	inside  int // calls and entries under way
	notes   []api.AuditFile
	procs   []*exec.Cmd
}

func newBox(t *testing.T) (*Files, *fakeBox) {
	t.Helper()
	b := &fakeBox{t: t, dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(b.dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	var bg sync.WaitGroup
	t.Cleanup(func() {
		b.ws.Close()
		bg.Wait()
		for _, p := range b.procs {
			_ = p.Wait()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.inside != 0 {
			t.Errorf("%d calls have not left the sandbox", b.inside)
		}
	})
	return New(b, &bg, slog.New(slog.DiscardHandler)), b
}

func (b *fakeBox) Enter(_ context.Context, ref string) (Sandbox, func(), error) {
	if ref != "sb" {
		return nil, nil, api.Errorf(api.NotFound, "no sandbox %q", ref)
	}
	return b, b.Again(), nil
}

func (b *fakeBox) count(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inside += n
}

func (b *fakeBox) Again() func() {
	b.count(1)
	return sync.OnceFunc(func() { b.count(-1) })
}

func (b *fakeBox) ID() string        { return "sb" }
func (b *fakeBox) Dir() string       { return b.dir }
func (b *fakeBox) Workers() *Workers { return &b.ws }
func (b *fakeBox) BeginCall()        { b.count(1) }
func (b *fakeBox) EndCall()          { b.count(-1) }
func (b *fakeBox) Record() api.Sandbox {
	return api.Sandbox{ID: "sb", Workdir: filepath.Join(b.dir, "files"), User: "me"}
}

func (b *fakeBox) Admit(writes bool) error {
	if b.over && writes {
		return api.Errorf(api.ResourceExhausted, "over its limit")
	}
	return nil
}

func (b *fakeBox) Explain(bool) error                  { return b.ended }
func (b *fakeBox) DiskError(_ string, err error) error { return err }
func (b *fakeBox) Audited(api.AuditKind) (bool, bool)  { return true, false }
func (b *fakeBox) at(name string) string               { return filepath.Join(b.dir, "files", name) }
func (b *fakeBox) file(name string) api.FileParams     { return api.FileParams{Sandbox: "sb", Path: name} }
func (b *fakeBox) as(user, name string) api.FileParams {
	return api.FileParams{Sandbox: "sb", User: user, Path: name}
}
func (b *fakeBox) workers() int { b.mu.Lock(); defer b.mu.Unlock(); return b.started }
func (b *fakeBox) Audit(_ context.Context, _ api.AuditKind, f api.AuditFile, _ int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, f)
}

// process is a worker's.
type process struct{ cmd *exec.Cmd }

func (p process) Kill() error { return p.cmd.Process.Kill() }
func (p process) Wait(context.Context) (guestapi.Event, error) {
	_, err := p.cmd.Process.Wait()
	return guestapi.Event{}, err
}

func (b *fakeBox) StartWorker(_ context.Context, _ string, conn *os.File) (Process, error) {
	if b.start != nil {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asWorker+"=1")
	cmd.Stdin = conn
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started++
	b.procs = append(b.procs, cmd)
	return process{cmd}, nil
}

// pipes is fd 0 of a call.
type pipes struct{ f *os.File }

func (p pipes) Take(int) (*os.File, error) { return p.f, nil }

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}
