// Package exectest is for tests of package exec, and of what is made of commands: a Table around which all is fake. No
// process, cgroup or mount is made, and in a bubble of testing/synctest its clock is the bubble's, for commands whose
// output nobody keeps.
package exectest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// World is a Table and one sandbox. The fields of a fake may be changed while nothing runs.
type World struct {
	Table    *exec.Table
	Box      *Sandbox
	Launcher *Launcher
	Cgroups  *Cgroups
	Log      *Log

	t     testing.TB
	group sync.WaitGroup
}

// New makes one, at the end of whose test nothing may be left.
func New(t testing.TB) *World {
	t.Helper()
	w := &World{t: t, Log: &Log{}, Cgroups: &Cgroups{Made: map[string]bool{}}, Launcher: newLauncher(t)}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *World) open() {
	w.Table = exec.New(exec.Config{
		Sandboxes: sandboxes{w}, Launcher: w.Launcher, Cgroups: w.Cgroups, Events: w.Log, Audit: w.Log,
		Background: &w.group, Hard: exec.HardLimits{NoFile: 4096, NProc: 64}, Log: slog.New(slog.DiscardHandler),
	})
	w.Box = &Sandbox{w: w, set: exec.NewSet(exec.ClockState{}), exited: make(chan struct{}), Path: "/hutch/sb_1",
		Rec:     api.Sandbox{ID: "sb_1", Hostname: "box", State: api.Running},
		leaders: map[uint64]*Leader{}, Listed: true}
}

// close ends the sandbox.
func (w *World) close() {
	w.Box.Die()
	w.Table.Forget(w.Box.set)
	w.group.Wait()
	for what, n := range w.Table.Left() {
		if n != 0 {
			w.t.Errorf("left: %d %s", n, what)
		}
	}
	if w.Box.calls != 0 {
		w.t.Errorf("%d calls are under way in a sandbox that is gone", w.Box.calls)
	}
}

// Sandboxes are those that its Table has.
func (w *World) Sandboxes() exec.Sandboxes { return sandboxes{w} }

// Background is the one that its Table has.
func (w *World) Background() exec.Background { return &w.group }

// Start starts a command whose output goes nowhere.
func (w *World) Start(argv ...string) string {
	w.t.Helper()
	res, err := w.Table.Start(w.t.Context(), Request(argv...))
	if err != nil {
		w.t.Fatalf("start %q: %v", argv, err)
	}
	return res.Exec
}

// Run runs one.
func (w *World) Run(req exec.Request) api.ExecResult {
	w.t.Helper()
	res, err := w.Table.Run(w.t.Context(), req)
	if err != nil {
		w.t.Fatalf("run %q: %v", req.Params.Argv, err)
	}
	return res
}

// Wait waits for the end of one.
func (w *World) Wait(id string) api.ExecResult {
	w.t.Helper()
	res, err := w.Table.Wait(w.t.Context(), api.WaitParams{Exec: id})
	if err != nil {
		w.t.Fatalf("wait: %v", err)
	}
	return res
}

// Request is that of a command whose output goes nowhere. What it may be says Sandbox.Start.
func Request(argv ...string) exec.Request {
	return exec.Request{Params: api.ExecParams{Sandbox: "sb_1", Argv: argv, Stdio: &api.Stdio{}},
		Started: func(string, int) {}}
}

// Captured is that of one whose output is kept.
func Captured(argv ...string) exec.Request {
	req := Request(argv...)
	req.Params.Stdio = nil
	return req
}

type sandboxes struct{ w *World }

func (s sandboxes) Find(ref string) (exec.Sandbox, error) {
	if ref != "sb_1" {
		return nil, api.Errorf(api.NotFound, "no sandbox %q", ref)
	}
	return s.w.Box, nil
}

func (s sandboxes) Bounds() api.ExecBounds { return api.ExecBounds{TimeoutS: 60, MaxTimeoutS: 3600} }

// Sandbox is a sandbox, and its PID 1.
type Sandbox struct {
	Rec       api.Sandbox
	Path      string // of its cgroup
	Own       bool   // commands have cgroups of their own
	Listed    bool
	Refuses   error                        // what Enter fails with
	Narrows   error                        // what Narrow fails with
	Hints     string                       // that explain what fails
	File      uint64                       // the size that no file may have; 0 is none
	Full      bool                         // a command that ends has met the limit of disk space
	Worker    func(channel *os.File) error // has a shell worker's end of the channel
	Asked     []guestapi.Request           // of PID 1
	Pending   map[uint64]int               // PIDs that PID 1 has told, of commands that it has not yet answered for
	Told      []guestapi.Refused           // by TellRefused
	Late      []int64                      // by TellLate
	Held      chan struct{}                // commands called "slow" are started when it is closed
	Distrusts []string

	w       *World
	set     *exec.Set
	exited  chan struct{}
	mu      sync.Mutex // guards what follows, and Asked, Told, Late and Distrusts
	dead    bool
	calls   int
	last    uint64
	leaders map[uint64]*Leader
}

// Die ends its PID 1, and with it everything in it.
func (s *Sandbox) Die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	s.dead = true
	close(s.exited)
	for _, l := range s.leaders {
		l.gone()
	}
}

// Leader is that of the command that was started last.
func (s *Sandbox) Leader() *Leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaders[s.last]
}

// Revive is the leader of a command of a hutchd before, which runs.
func (s *Sandbox) Revive(id uint64) *Leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := newLeader(1000 + int(id))
	s.leaders[id], s.last = l, id
	return l
}

// Calls is how many calls are under way.
func (s *Sandbox) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// ID implements exec.Sandbox.
func (s *Sandbox) ID() string { return "sb_1" }

// Commands implements exec.Sandbox.
func (s *Sandbox) Commands() *exec.Set { return s.set }

// Record implements exec.Sandbox.
func (s *Sandbox) Record() api.Sandbox { return s.Rec }

// CapDrop implements exec.Sandbox.
func (s *Sandbox) CapDrop() []string { return nil }

// Cgroup implements exec.Sandbox.
func (s *Sandbox) Cgroup() (string, bool) { return s.Path, s.Own }

// Pts implements exec.Sandbox.
func (s *Sandbox) Pts() (*os.File, error) { return nil, errors.ErrUnsupported }

// Init implements exec.Sandbox.
func (s *Sandbox) Init() exec.Init { return s }

// Here implements exec.Sandbox.
func (s *Sandbox) Here() bool { return s.Listed }

// Exited implements exec.Sandbox.
func (s *Sandbox) Exited() <-chan struct{} { return s.exited }

// AwaitEnd implements exec.Sandbox.
func (s *Sandbox) AwaitEnd() { <-s.exited }

// WhyEnded implements exec.Sandbox.
func (s *Sandbox) WhyEnded() api.Verdict { return api.VerdictSandbox }

// Env implements exec.Sandbox.
func (s *Sandbox) Env() (image []string, own map[string]string) {
	return []string{"A=image", "B=image"}, map[string]string{"B": "sandbox", "C": "sandbox"}
}

// Enter implements exec.Sandbox.
func (s *Sandbox) Enter(context.Context) (func(), error) { return func() {}, s.Refuses }

// BeginCall implements exec.Sandbox.
func (s *Sandbox) BeginCall() { s.count(1) }

// EndCall implements exec.Sandbox.
func (s *Sandbox) EndCall() { s.count(-1) }

func (s *Sandbox) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls += n
}

// Distrust implements exec.Sandbox.
func (s *Sandbox) Distrust(why string) {
	s.mu.Lock()
	s.Distrusts = append(s.Distrusts, why)
	s.mu.Unlock()
	s.Die()
}

// CheckNetwork implements exec.Sandbox.
func (s *Sandbox) CheckNetwork(*api.NetPolicy) error { return nil }

// Narrow implements exec.Sandbox.
func (s *Sandbox) Narrow(string, string, *api.NetPolicy) error { return s.Narrows }

// BeginUse implements exec.Sandbox.
func (s *Sandbox) BeginUse() exec.Use { return exec.Use{} }

// Started implements exec.Sandbox.
func (s *Sandbox) Started() {}

// FileSize implements exec.Sandbox.
func (s *Sandbox) FileSize() (uint64, bool) { return s.File, s.File > 0 }

// CheckControllers implements exec.Sandbox.
func (s *Sandbox) CheckControllers(*api.Limits) error { return nil }

// StandIns implements exec.Sandbox.
func (s *Sandbox) StandIns() (nproc, data uint64) { return 64, 0 }

// CPUs implements exec.Sandbox.
func (s *Sandbox) CPUs(float64) []byte { return nil }

// EndUse implements exec.Sandbox.
func (s *Sandbox) EndUse(exec.Use, time.Duration, bool) (diskuse.Usage, bool) {
	return diskuse.Usage{Bytes: 7}, s.Full
}

// DiskLimit implements exec.Sandbox.
func (s *Sandbox) DiskLimit(peak diskuse.Usage) (api.Denial, *api.LimitHit) {
	return api.Denial{Kind: "limit", Target: "disk_bytes", Why: "full"},
		&api.LimitHit{Name: "disk_bytes", Of: "sandbox", Peak: peak.Bytes}
}

// Unrouted implements exec.Sandbox.
func (s *Sandbox) Unrouted() (all, v4 int64) { return 0, 0 }

// Policy implements exec.Sandbox.
func (s *Sandbox) Policy([]api.Denial) string { return "" }

// TellLate implements exec.Sandbox.
func (s *Sandbox) TellLate(since time.Time, _ int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Late = append(s.Late, since.UnixNano())
}

// SettleRefused implements exec.Sandbox.
func (s *Sandbox) SettleRefused() {}

// TellRefused implements exec.Sandbox.
func (s *Sandbox) TellRefused(r guestapi.Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Told = append(s.Told, r)
}

// Hint implements exec.Sandbox.
func (s *Sandbox) Hint(int, ...string) string { return "" }

// ShmHint implements exec.Sandbox.
func (s *Sandbox) ShmHint(int) string { return s.Hints }

// ForeignHint implements exec.Sandbox.
func (s *Sandbox) ForeignHint([]byte, bool) string { return "" }

// Unguarded implements exec.Sandbox.
func (s *Sandbox) Unguarded(string) []api.Unguarded { return nil }

// NewID implements exec.Sandbox.
func (s *Sandbox) NewID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.last
}

// PIDOf implements exec.Sandbox.
func (s *Sandbox) PIDOf(id uint64) int { return s.Pending[id] }

// Err implements exec.Sandbox.
func (s *Sandbox) Err() error { return nil }

// Ended implements exec.Sandbox.
func (s *Sandbox) Ended(id uint64, pid int) exec.Process {
	l := newLeader(pid)
	l.exit(0)
	return l
}

// Start starts what the first word of the command line names: true; exit CODE; signal NUMBER; hang and what has no
// other name, until a signal comes; immortal, which none ends; missing, which is not there; slow, when Held is closed;
// and a shell's worker.
func (s *Sandbox) Start(ctx context.Context, req guestapi.Request, fds []*os.File) (exec.Process, error) {
	s.mu.Lock()
	s.Asked = append(s.Asked, req)
	dead := s.dead
	l := newLeader(1000 + int(req.Exec))
	s.leaders[req.Exec] = l
	s.mu.Unlock()
	if dead {
		return nil, errors.New("PID 1 is gone")
	}
	if req.Worker == guestapi.WorkerShell {
		fd, err := unix.FcntlInt(fds[0].Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, err
		}
		return l, s.Worker(os.NewFile(uintptr(fd), "channel"))
	}
	number := 0
	if len(req.Argv) > 1 {
		number, _ = strconv.Atoi(req.Argv[1])
	}
	switch slices.Concat(req.Argv, []string{""})[0] {
	case "true":
		l.exit(0)
	case "exit":
		l.exit(number << 8)
	case "signal":
		l.exit(number)
	case "immortal":
		l.immortal = true
	case "missing":
		return nil, &guestapi.StartError{Reason: guestapi.ReasonNotFound, Message: "not there"}
	case "slow":
		select {
		case <-s.Held:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return l, nil
}

// Leader is the leader of a command.
type Leader struct {
	pid      int
	immortal bool
	once     sync.Once
	done     chan struct{}
	end      guestapi.Event
	err      error
	mu       sync.Mutex
	got      []syscall.Signal
	acked    bool
}

func newLeader(pid int) *Leader { return &Leader{pid: pid, done: make(chan struct{})} }

// Exit ends it with a wait status.
func (l *Leader) Exit(status int) { l.exit(status) }

func (l *Leader) exit(status int) {
	l.once.Do(func() {
		l.end = guestapi.Event{Ev: guestapi.EvExited, Status: status, PID: l.pid}
		if status != 0 && status < 128 {
			l.end.Killed = []int{l.pid}
		}
		close(l.done)
	})
}

func (l *Leader) gone() { l.once.Do(func() { l.err = errors.New("PID 1 is gone"); close(l.done) }) }

// Signals are those that it got.
func (l *Leader) Signals() []syscall.Signal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

// Acked reports whether PID 1 may forget it.
func (l *Leader) Acked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// PID implements exec.Process.
func (l *Leader) PID() int { return l.pid }

// Wait implements exec.Process.
func (l *Leader) Wait(ctx context.Context) (guestapi.Event, error) {
	select {
	case <-l.done:
		return l.end, l.err
	default:
	}
	select {
	case <-l.done:
		return l.end, l.err
	case <-ctx.Done():
		return guestapi.Event{}, context.Cause(ctx)
	}
}

// Signal implements exec.Process.
func (l *Leader) Signal(sig syscall.Signal) error {
	l.mu.Lock()
	l.got = append(l.got, sig)
	l.mu.Unlock()
	if !l.immortal {
		l.exit(int(sig))
	}
	return nil
}

// Kill implements exec.Process.
func (l *Leader) Kill() error {
	if !l.immortal {
		l.exit(int(unix.SIGKILL))
	}
	return nil
}

// Ack implements exec.Process.
func (l *Leader) Ack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = true
}

// Resume implements exec.Process.
func (l *Leader) Resume(context.Context) error { return nil }
