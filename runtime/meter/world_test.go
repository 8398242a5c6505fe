package meter

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

var errInjected = errors.New("injected")

// world is a Meters around which all is fake but the files of its sandboxes.
type world struct {
	t      *testing.T
	meters *Meters
	dir    string
	cfg    Config
	boxes  []*box
	group  sync.WaitGroup

	mu                         sync.Mutex // guards what follows
	mounts, unmounts, remounts int
	fails                      map[string]error // what calls of the kernel, cgroups and projects fail with, by name
	cpu                        time.Duration    // that is used; it grows by step with each look
	step                       time.Duration
	stats                      api.Stats
	pids                       []int
	limited                    []api.Limits // by cgroups, in order
	quotas                     []int64      // by projects, in order
}

// newWorld makes one, at whose end no watch may be left.
func newWorld(t *testing.T, change ...func(w *world)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), fails: map[string]error{}}
	w.cfg = Config{Sandboxes: w, Kernel: w, Cgroups: groups{w}, Background: &w.group,
		Log: slog.New(slog.DiscardHandler),
		Host: Host{CPUs: 4, Allowed: []int{0, 1, 2, 3}, Possible: []int{0, 1, 2, 3}, MemoryBytes: 8 << 30,
			Dir: w.dir, Disk: "8:0", CgroupMode: "v2", Controllers: []string{"cpu", "cpuset", "io", "memory", "pids"},
			Hard: exec.HardLimits{NoFile: 4096, NProc: 1000}}}
	for _, f := range change {
		f(w)
	}
	w.meters = NewMeters(w.cfg)
	t.Cleanup(w.close)
	return w
}

func (w *world) fail(call string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails[call] = err
}

func (w *world) failure(call string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fails[call]
}

// busy has each look see that CPU time was used.
func (w *world) busy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step = time.Millisecond
}

func (w *world) close() {
	for _, b := range w.boxes {
		b.die()
	}
	w.group.Wait()
}

// box is a new sandbox, which has a cgroup.
func (w *world) box(change ...func(b *box)) *box {
	w.t.Helper()
	n := strconv.Itoa(len(w.boxes) + 1)
	b := &box{w: w, dir: filepath.Join(w.dir, n), set: exec.NewSet(exec.ClockState{}), exited: make(chan struct{}),
		group: "/hutch/" + n, own: true,
		rec: api.Sandbox{ID: "sb_" + n, Name: "name" + n, State: api.Running, PID: os.Getpid()}}
	for _, f := range change {
		f(b)
	}
	if err := os.MkdirAll(filepath.Join(b.dir, "fs"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	b.meter = w.meters.New(b)
	w.boxes = append(w.boxes, b)
	return b
}

func (w *world) Living(ref string) (*Meter, int, error) {
	for _, b := range w.boxes {
		if b.rec.ID == ref {
			return b.meter, b.Record().PID, nil
		}
	}
	return nil, 0, api.Errorf(api.NotFound, "no sandbox %q", ref)
}

func (w *world) All() (all []*Meter) {
	for _, b := range w.boxes {
		all = append(all, b.meter)
	}
	return all
}

func (w *world) Settings() (api.Limits, float64) {
	return api.Limits{CPUs: 8, MemoryBytes: 1 << 30, PIDs: 50}, 1000
}

// Tmpfs is a folder of the same file system.
func (w *world) Tmpfs([]sys.FSOption, int) (*os.File, error) {
	if err := w.failure("Tmpfs"); err != nil {
		return nil, err
	}
	return os.Open(w.dir)
}

func (w *world) Attach(*os.File, string) error { w.mounts++; return nil }
func (w *world) Unmount(string) error          { w.unmounts++; return w.failure("Unmount") }
func (w *world) Proc(int) string               { return w.dir }

func (w *world) Reconfigure(string, []sys.FSOption) error {
	w.remounts++
	return w.failure("Reconfigure")
}

type groups struct{ w *world }

func (g groups) Usage(string, string) (time.Duration, int64, error) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	g.w.cpu += g.w.step
	return g.w.cpu, 0, nil
}

func (g groups) Stats(string) (api.Stats, error)       { return g.w.stats, g.w.failure("Stats") }
func (g groups) Processes(string) (p []int, err error) { return g.w.pids, g.w.failure("Processes") }

func (g groups) Limit(_ string, l api.Limits) error {
	g.w.limited = append(g.w.limited, l)
	if len(g.w.limited) > 1 { // the first alone fails
		return nil
	}
	return g.w.failure("Limit")
}

// projects are project quotas.
type projects struct{ w *world }

func (p projects) Limit(_ context.Context, _ string, bytes, _ int64) error {
	p.w.quotas = append(p.w.quotas, bytes)
	return p.w.failure("Projects")
}

// box is a sandbox. Its fields but for the last are changed while nothing runs.
type box struct {
	w          *world
	meter      *Meter
	dir        string
	set        *exec.Set
	group      string
	own        bool
	exited     chan struct{}
	idle, used bool
	quota      error // what Raise fails with

	mu    sync.Mutex // guards what follows
	onEnd func()     // of EndAll
	rec   api.Sandbox
	ends  []string // again of each EndAll, and the reason of each End
	hits  []api.LimitEvent
	told  int
	saved int
	ttl   []float64
}

func (b *box) die() {
	select {
	case <-b.exited:
	default:
		close(b.exited)
	}
}

func (b *box) ID() string              { return b.rec.ID }
func (b *box) Commands() *exec.Set     { return b.set }
func (b *box) Cgroup() (string, bool)  { return b.group, b.own }
func (b *box) Exited() <-chan struct{} { return b.exited }
func (b *box) Idle() bool              { return b.idle }
func (b *box) Used() bool              { return b.used }
func (b *box) Ended() error            { return api.Errorf(api.FailedPrecondition, "it has ended") }
func (b *box) Change() func()          { return func() {} }

func (b *box) Record() api.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec
}

func (b *box) EndAll(_ context.Context, _ *exec.Cause, hit api.LimitEvent, again string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends, b.hits = append(b.ends, again), append(b.hits, hit)
	if b.onEnd != nil {
		b.onEnd()
	}
	return b.w.failure("EndAll")
}

func (b *box) End(_ context.Context, reason string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = append(b.ends, reason)
	return nil
}

// ended is what it was ended for so far.
func (b *box) ended() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ends)
}

func (b *box) atEnd(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onEnd = f
}

func (b *box) Hit(hit api.LimitEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hits = append(b.hits, hit)
}

func (b *box) Raise(next api.Limits) error {
	if b.quota != nil {
		return b.quota
	}
	b.Set(next)
	return nil
}

func (b *box) Set(l api.Limits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rec.Limits = l
}

func (b *box) SetMissing(missing []api.Unenforced) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rec.Unenforced = missing
}

func (b *box) Tell(context.Context) { b.told++ }
func (b *box) Save()                { b.saved++ }

func (b *box) Extend(ttl float64) (api.Sandbox, error) {
	b.ttl = append(b.ttl, ttl)
	return b.Record(), nil
}

// limit gives it limits, and that of disk space by the watch: of a volume, or it might be in memory.
func (b *box) limit(l api.Limits) {
	b.w.t.Helper()
	b.Set(l)
	volume := b.volume()
	if err := os.MkdirAll(volume, 0o700); err != nil {
		b.w.t.Fatal(err)
	}
	if err := b.meter.LimitDisk(DiskPlace{Dir: b.dir, Volumes: []string{volume}}, nil); err != nil {
		b.w.t.Fatal(err)
	}
}

func (b *box) volume() string { return filepath.Join(b.dir, "volume") }

// write writes a file of so many bytes.
func (b *box) write(name string, bytes int) {
	b.w.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "fs", name), make([]byte, bytes), 0o600); err != nil {
		b.w.t.Fatal(err)
	}
}

func (b *box) remove(name string) {
	b.w.t.Helper()
	if err := os.Remove(filepath.Join(b.dir, "fs", name)); err != nil {
		b.w.t.Fatal(err)
	}
}

// refused checks the code of an error.
func refused(t *testing.T, want api.Code, err error) {
	t.Helper()
	if got := api.ErrorCode(err); err == nil || got != want {
		t.Errorf("%v (%s), want %s", err, got, want)
	}
}

// inMemory reports whether a folder is on a tmpfs.
func inMemory(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Type == unix.TMPFS_MAGIC
}
