package workspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// TestMain runs the tests in a user and a mount namespace of their own, where this user may mount what hutchd does.
func TestMain(m *testing.M) {
	const inside = "HUTCH_TEST_IN_USERNS"
	if os.Getenv(inside) != "" {
		os.Exit(leak.Main(m))
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		os.Stderr.WriteString("in a user namespace: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// rig is a daemon whose sandboxes are folders of the test's: mounts are real ones, in the namespace of the tests.
type rig struct {
	t   *testing.T
	ws  *Workspaces
	dir string // of the sandboxes
	// all are the sandboxes, and volumes those that are in use.
	all     []*box
	boxes   int // that there were
	volumes map[string]int
	log     strings.Builder
}

func newRig(t *testing.T, change ...func(*Host)) *rig {
	t.Helper()
	r := &rig{t: t, dir: newDir(t), volumes: map[string]int{}}
	h := Host{Dir: r.dir, Forbidden: []string{filepath.Join(r.dir, "state")}}
	for _, f := range change {
		f(&h)
	}
	r.ws = New(r, r, r, h, slog.New(slog.NewTextHandler(&r.log, nil)))
	return r
}

// newDir is a folder in memory, whose attributes overlays may have.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// files makes files in a folder, by their names; one that ends in a slash is a folder.
func files(t *testing.T, dir string, texts map[string]string) string {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		p := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(p, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(texts[name]), 0o644))
	}
	return dir
}

// Find and the rest of Sandboxes.
func (r *rig) Find(ref string) (Sandbox, error) {
	for _, b := range r.all {
		if b.id == ref {
			return b, nil
		}
	}
	return nil, api.Errorf(api.NotFound, "no sandbox %q", ref)
}

func (r *rig) All() (list []Sandbox) {
	for _, b := range r.all {
		list = append(list, b)
	}
	return list
}

func (r *rig) NotEnded() []Sandbox { return r.All() }

// Tmpfs and the rest of Kernel.
func (r *rig) Tmpfs(options []sys.FSOption, attributes int) (*os.File, error) {
	return sys.FSMount("tmpfs", options, attributes)
}
func (r *rig) Attach(mnt *os.File, at string) error { return sys.AttachTree(mnt, at) }
func (r *rig) Unmount(at string) error {
	return unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// Use and Path are the Volumes.
func (r *rig) Use(user uint32, name string, make bool) (*os.File, error) {
	if strings.HasPrefix(name, "missing") {
		return nil, api.Errorf(api.NotFound, "no volume %q", name)
	}
	p := r.Path(user, name)
	if make {
		if err := os.MkdirAll(p, 0o777); err != nil {
			return nil, err
		}
	}
	r.volumes[name]++
	return os.Open(p)
}

func (r *rig) Path(user uint32, name string) string {
	return filepath.Join(r.dir, "volumes", fmt.Sprint(user), name)
}

// box is a sandbox, or one that is being made.
type box struct {
	r       *rig
	id, dir string
	spec    api.Spec
	set     Set
	undo    cleanup.Stack
	leases  int
	notes   []string
	audits  []api.AuditWorkspace
	still   int
	stopped bool
	binds   []spec.Bind
	at      *Attaching
}

// box makes one, which is not attached yet.
func (r *rig) box(sp api.Spec) *box {
	r.t.Helper()
	b := &box{r: r, id: fmt.Sprintf("sb_%d", r.boxes), spec: sp}
	r.boxes++
	b.dir = filepath.Join(r.dir, b.id)
	must(r.t, os.MkdirAll(filepath.Join(b.dir, mounts), 0o700), os.MkdirAll(filepath.Join(b.dir, written), 0o700))
	r.all = append(r.all, b)
	return b
}

// attach attaches its folders, until the end of the test.
func (b *box) attach(change ...func(*Request)) (err error) {
	b.r.t.Helper()
	req := Request{ID: b.id, Dir: b.dir, User: 1000, Spec: &b.spec, MemoryBytes: 1 << 20, Folders: &b.set}
	for _, f := range change {
		f(&req)
	}
	b.at = b.r.ws.Attaching(b, req)
	b.binds, err = b.at.Attach(b.r.t.Context())
	b.r.t.Cleanup(func() { must(b.r.t, b.undo.Release()()) })
	return err
}

// attached makes one and attaches its folders.
func (r *rig) attached(sp api.Spec, change ...func(*Request)) *box {
	r.t.Helper()
	b := r.box(sp)
	must(r.t, b.attach(change...))
	return b
}

// ID and the rest of Sandbox.
func (b *box) ID() string      { return b.id }
func (b *box) Dir() string     { return b.dir }
func (b *box) User() uint32    { return 1000 }
func (b *box) Spec() *api.Spec { return &b.spec }
func (b *box) Folders() *Set   { return &b.set }

func (b *box) Still(_ context.Context, _ string, use func() error) error {
	b.still++
	return use()
}

func (b *box) Mounted() error {
	if b.stopped {
		return api.Errorf(api.FailedPrecondition, "it is stopped")
	}
	return nil
}

func (b *box) Audit(_ context.Context, _ api.AuditKind, w api.AuditWorkspace) {
	b.audits = append(b.audits, w)
}

// Undo and the rest of Creation.
func (b *box) Undo(back func() error) { b.undo.Add(back) }
func (b *box) Tell(text string)       { b.notes = append(b.notes, text) }

func (b *box) Lease(giveBack func() error) {
	b.leases++
	b.undo.Add(giveBack)
}

func (b *box) Copy(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }

func (b *box) DiskError(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", op, err)
}

// taker has the fds of a call.
type taker map[int]string

func (f taker) Take(i int) (*os.File, error) { return OpenPath(f[i]) }

// refused checks the code of an error.
func refused(t *testing.T, want api.Code, err error) {
	t.Helper()
	if err == nil || api.ErrorCode(err) != want {
		t.Errorf("error %v, want one of code %s", err, want)
	}
}

// reads checks what is in a file; "" is that there is none.
func reads(t *testing.T, name, want string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if want == "" && !errors.Is(err, os.ErrNotExist) || string(got) != want {
		t.Errorf("%s: %q, %v; want %q", name, got, err, want)
	}
}
