package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/refusals"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// execHost is the Manager as package exec uses it.
type execHost struct{ m *Manager }

func (h execHost) Find(ref string) (exec.Sandbox, error) {
	s, err := h.m.find(ref)
	if err != nil {
		return nil, err
	}
	return execBoxOf(h.m, s), nil
}

func (h execHost) Bounds() api.ExecBounds { return h.m.settings.Load().Exec }

// execBox is a sandbox as package exec uses it. Its meter is most of what counts what commands use.
type execBox struct {
	m *Manager
	s *Sandbox
	*meter.Meter
}

func execBoxOf(m *Manager, s *Sandbox) execBox { return execBox{m, s, s.meter} }

func (b execBox) ID() string              { return b.s.id }
func (b execBox) Commands() *exec.Set     { return b.s.execs }
func (b execBox) Record() api.Sandbox     { return b.s.Record() }
func (b execBox) CapDrop() []string       { return b.s.spec.CapDrop }
func (b execBox) Cgroup() (string, bool)  { return b.s.cgroup, b.s.grouped }
func (b execBox) Init() exec.Init         { return guestInit{b.s.guest} }
func (b execBox) BeginCall()              { b.s.beginCall() }
func (b execBox) EndCall()                { b.s.endCall(b.m) }
func (b execBox) Exited() <-chan struct{} { return b.s.exited }
func (b execBox) AwaitEnd()               { b.s.awaitEnd() }
func (b execBox) WhyEnded() api.Verdict   { return b.m.whyEnded() }
func (b execBox) Distrust(why string)     { b.m.removeLater(b.s, why) }

func (b execBox) Env() (image []string, own map[string]string) {
	if b.s.root != nil {
		image = b.s.root.Config.Env
	}
	return image, b.s.spec.Env
}

func (b execBox) Enter(ctx context.Context) (leave func(), err error) {
	return b.m.Pauses.Enter(ctx, pauseBox{b.m, b.s})
}

func (b execBox) Here() bool { return b.m.here(b.s) }

func (b execBox) CheckNetwork(p *api.NetPolicy) error {
	return b.m.Egress.CheckNarrow(egressBox{b.m, b.s}, p)
}

func (b execBox) Narrow(exec, group string, p *api.NetPolicy) error {
	return b.m.Egress.Narrow(egressBox{b.m, b.s}, exec, group, p)
}

// Pts opens /dev/pts as PID 1 sees it and makes sure that it is the devpts instance of the sandbox. Terminals are
// opened through the sandbox's own mount of it: through hutchd's, /proc/self/fd inside would show a host path.
func (b execBox) Pts() (*os.File, error) {
	root, err := workspace.OpenPath(fmt.Sprintf("/proc/%d/root", b.s.Record().PID))
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), "dev/pts", &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open terminal: /dev/pts inside: %w", err)
	}
	dir := os.NewFile(uintptr(fd), "pts")
	var inside, own unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &inside), unix.Stat(filepath.Join(b.s.dir, "pts"), &own))
	if err == nil && inside.Dev != own.Dev {
		err = errors.New("/dev/pts inside is not the sandbox's own")
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	return dir, nil
}

// CheckControllers refuses what the exec's cgroup cannot enforce. On hybrid
// hosts the controllers are v1's, which a process cannot be cloned into.
func (b execBox) CheckControllers(l *api.Limits) error {
	if err := b.m.Meters.CheckControllers(l); err != nil {
		return err
	}
	mode := b.m.cfg.Host.CgroupMode
	if b.s.grouped && mode == "v2" {
		return nil
	}
	return api.Errorf(api.Unavailable,
		"limits: cpus, memory_bytes and pids of a single exec need cgroup v2 alone, this host's mode is %q", mode).
		WithField("limits").
		WithHint("set them on the sandbox, or boot with systemd.unified_cgroup_hierarchy=1")
}

func (b execBox) Unrouted() (all, v4 int64) {
	if b.s.net != nil || b.m.cfg.Host.EBPF.On { // which say more
		return 0, 0
	}
	return refusals.Routeless(b.s.Record().PID)
}

func (b execBox) TellLate(since time.Time, unrouted int64) {
	if b.s.net != nil {
		b.s.net.Unanswered(since)
	}
	if unrouted > 0 {
		b.m.Refusals.Unrouted(b.s.id, unrouted)
	}
}

func (b execBox) Policy(refused []api.Denial) string {
	if len(refused) == 0 {
		return ""
	}
	kind := b.s.seen.Advise(refused)
	if kind == "" {
		return ""
	}
	return about.Paragraph(b.s.Record(), &b.s.spec, kind)
}

func (b execBox) SettleRefused() {
	if b.s.enforced != nil {
		b.s.enforced.Settle()
	}
}

func (b execBox) TellRefused(r guestapi.Refused) {
	b.m.Refusals.Call(egressBox{b.m, b.s}, r)
}

func (b execBox) Hint(code int, argv ...string) string { return b.s.hint(code, argv...) }

func (b execBox) ForeignHint(said []byte, seen bool) string {
	return b.m.Workspaces.ForeignHint(b.m.ctx, workspaceBox{b.m, b.s}, said, seen)
}

func (b execBox) Unguarded(exec string) []api.Unguarded {
	found := b.s.folders.Guards.Look(b.s.guest)
	for _, u := range found {
		b.m.emit(api.EventUnguarded, b.s, exec, u)
	}
	return found
}

// guestInit is a PID 1 as package exec uses it.
type guestInit struct{ *guestapi.Client }

func (c guestInit) Start(ctx context.Context, req guestapi.Request, fds []*os.File) (exec.Process, error) {
	e, err := c.Client.Start(ctx, req, fds)
	if err != nil {
		return nil, err
	}
	return guestExec{e}, nil
}

func (c guestInit) Ended(id uint64, pid int) exec.Process { return guestExec{c.Client.Ended(id, pid)} }

// guestExec is the leader of an exec as package exec uses it.
type guestExec struct{ *guestapi.Exec }

func (e guestExec) PID() int { return e.Exec.PID }

// recall makes what a stopped sandbox had written readable, where that can be.
func (b execBox) recall() {
	if err := b.m.Execs.Recall(b, filepath.Join(b.s.dir, outputDir)); err != nil {
		b.m.cfg.Logger.Warn("what a stopped sandbox had written is not to be read", "sandbox", b.s.id, "err", err)
	}
}

// outputDir is where the end of what the last command has written is kept, below the folder of a stopped sandbox.
const outputDir = "output"

// watchLimits tells of the sandbox's limits that are met, as it happens. What cannot be
// watched is told at the end of the command that failed by it.
func (b execBox) watchLimits() (stop func() error) {
	stopped, err := b.m.cfg.Cgroups.Watch(b.s.cgroup, func(limit api.Verdict) { b.m.Execs.Hit(b, limit) })
	if err != nil {
		b.m.cfg.Logger.Debug("watch limits", "sandbox", b.s.id, "err", err)
	}
	return func() error { stopped(); return nil }
}

// Use lets a sandbox that is paused go on, and keeps it from being idle until done is called.
func (m *Manager) Use(ctx context.Context, ref string) (done func(), err error) {
	s, err := m.find(ref)
	if err != nil {
		return nil, err
	}
	leave, err := m.Pauses.Enter(ctx, pauseBox{m, s})
	if err != nil {
		return nil, err
	}
	s.beginCall()
	leave()
	return func() { s.endCall(m) }, nil
}
