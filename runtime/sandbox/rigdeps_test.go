package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// fakeImages has any image, of one layer.
type fakeImages struct {
	r *rig

	mu     sync.Mutex
	leases int
	pins   map[string]bool
	config api.ImageConfig
	lower  string // the folder of the layer
}

// with changes what an image is.
func (f *fakeImages) with(change func(*fakeImages)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeImages) count() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return map[string]int{"leases of images": f.leases}
}

func (f *fakeImages) Resolve(ctx context.Context, ref, _ string, _ api.PullPolicy, _ func(api.Progress)) (*spec.Root,
	error) {
	if err := f.r.points.at("Images.Resolve"); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	release, err := f.lease()
	layer := filepath.Join(f.r.dir, orElse(f.lower, "layers/base"))
	if err := os.MkdirAll(layer, 0o755); err != nil {
		return nil, err
	}
	return &spec.Root{Ref: ref, Digest: "sha256:0", Config: f.config, Dir: filepath.Dir(layer),
		Lower: []string{filepath.Base(layer)}, Binds: []spec.Bind{}, Release: release}, err
}

func (f *fakeImages) lease() (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leases++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.leases--
	}, nil
}

func (f *fakeImages) Hold([]string) (func(), error) {
	if err := f.r.points.at("Images.Hold"); err != nil {
		return nil, err
	}
	return f.lease()
}

func (f *fakeImages) Pin(name string, _ []string) error {
	if err := f.r.points.at("Images.Pin"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pins[name] = true
	return nil
}

func (f *fakeImages) Unpin(name string) error {
	if err := f.r.points.at("Images.Unpin"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pins, name)
	return nil
}

func (f *fakeImages) Pins() (list []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.pins {
		list = append(list, name)
	}
	return list, nil
}

// fakeCgroups is a list of cgroups, and numbers that the test sets.
type fakeCgroups struct {
	r       *rig
	enabled bool

	mu     sync.Mutex
	groups map[string]map[string]bool // by sandbox, with those of its execs
	usage  time.Duration              // of each exec, and of each sandbox
	stats  api.Stats
	oom    uint64
	pids   uint64
	limits []api.Limits // that were set
	frozen map[string]bool
	onUse  func(c *fakeCgroups) // called by each look at what is used
}

// made is how many cgroups execs of a sandbox have.
func (c *fakeCgroups) made(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.groups["/hutch/"+id])
}

func (c *fakeCgroups) count() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]int{"cgroups": len(c.groups), "frozen": len(c.frozen)}
}

// with changes the numbers.
func (c *fakeCgroups) with(f func(c *fakeCgroups)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// enter puts a PID 1 into its cgroup.
func (c *fakeCgroups) enter(sandbox string) {
	c.with(func(c *fakeCgroups) { c.groups[sandbox] = map[string]bool{} })
}

func (c *fakeCgroups) Enabled() bool { return c.enabled }
func (c *fakeCgroups) Hasten()       {}

func (c *fakeCgroups) Mount(string) (*os.File, error) {
	if err := c.r.points.at("Cgroups.Mount"); err != nil {
		return nil, err
	}
	return os.Open(os.DevNull)
}

func (c *fakeCgroups) Make(sandbox, exec string, _ api.Limits) error {
	if err := c.r.points.at("Cgroups.Make"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch execs := c.groups[sandbox]; {
	case execs == nil:
		return unix.ENOENT
	case execs[exec]:
		return unix.EEXIST
	default:
		execs[exec] = true
		return nil
	}
}

func (c *fakeCgroups) Reusable(_, _ string) bool       { return true }
func (c *fakeCgroups) Number(_, exec string) uint64    { return uint64(len(exec)) }
func (c *fakeCgroups) Processes(string) ([]int, error) { return nil, unix.ENOENT }

func (c *fakeCgroups) Usage(_, _ string) (cpu time.Duration, memory int64, err error) {
	if err := c.r.points.at("Cgroups.Usage"); err != nil {
		return 0, 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onUse != nil {
		c.onUse(c)
	}
	return c.usage, 1 << 20, nil
}

// Kill leaves the ends of commands to their PID 1.
func (c *fakeCgroups) Kill(context.Context, string, string) ([]int, error) {
	return nil, c.r.points.at("Cgroups.Kill")
}

func (c *fakeCgroups) Freeze(_ context.Context, sandbox string) error {
	if err := c.r.points.at("Cgroups.Freeze"); err != nil {
		return err
	}
	c.with(func(c *fakeCgroups) {
		if c.frozen == nil {
			c.frozen = map[string]bool{}
		}
		c.frozen[sandbox] = true
	})
	return nil
}

func (c *fakeCgroups) Thaw(sandbox string) error {
	if err := c.r.points.at("Cgroups.Thaw"); err != nil {
		return err
	}
	c.with(func(c *fakeCgroups) { delete(c.frozen, sandbox) })
	return nil
}

func (c *fakeCgroups) Reclaim(string, func(int64)) func() { return func() {} }

func (c *fakeCgroups) KillAll(context.Context, string) error { return c.r.points.at("Cgroups.KillAll") }

func (c *fakeCgroups) Retire(sandbox, exec string) {
	c.with(func(c *fakeCgroups) { delete(c.groups[sandbox], exec) })
}

func (c *fakeCgroups) Forget(sandbox string) {
	c.with(func(c *fakeCgroups) {
		delete(c.groups, sandbox)
		delete(c.frozen, sandbox)
	})
}

func (c *fakeCgroups) Limit(_ string, l api.Limits) error {
	if err := c.r.points.at("Cgroups.Limit"); err != nil {
		return err
	}
	c.with(func(c *fakeCgroups) { c.limits = append(c.limits, l) })
	return nil
}

func (c *fakeCgroups) Watch(string, func(api.Verdict)) (func(), error) {
	return func() {}, c.r.points.at("Cgroups.Watch")
}

func (c *fakeCgroups) Stats(string) (api.Stats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats, nil
}

func (c *fakeCgroups) Events(string) (oom, pids uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.oom, c.pids
}

type fakeSeccomp struct{ r *rig }

func (s fakeSeccomp) Check(string) error { return s.r.points.at("Seccomp.Check") }
func (s fakeSeccomp) Explain(string, uint32, [6]uint64) (call, why, how string, quiet bool) {
	return "call", "why", "how", false
}
func (s fakeSeccomp) Describe(string) (rules []api.DebugRule, other string) { return nil, "" }

// fakeVolumes has a folder for each.
type fakeVolumes struct{ r *rig }

func (v fakeVolumes) Use(_ uint32, name string, _ bool) (*os.File, error) {
	if err := v.r.points.at("Volumes.Use"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(v.Path(0, name), 0o755); err != nil {
		return nil, err
	}
	return os.Open(v.Path(0, name))
}

func (v fakeVolumes) Path(_ uint32, name string) string {
	return filepath.Join(v.r.dir, "volumes", name)
}

// event is one that was told, or noted for the audit log.
type event struct {
	kind          string
	sandbox, exec string
	data          any
}

// fakeEvents records both logs.
type fakeEvents struct {
	r *rig

	mu     sync.Mutex
	events []event
	audits []event
	told   map[string]chan struct{} // of those who wait, by what for
}

func (e *fakeEvents) Emit(kind api.EventKind, sandbox, exec string, data any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event{string(kind), sandbox, exec, data})
	if st, ok := data.(api.StateEvent); ok {
		if ch := e.told[sandbox+" "+string(st.State)]; ch != nil {
			close(ch)
			delete(e.told, sandbox+" "+string(st.State))
		}
	}
}

func (e *fakeEvents) Note(entry audit.Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.audits = append(e.audits, event{string(entry.Kind), entry.Sandbox, entry.Exec, entry.Data})
}

func (e *fakeEvents) Wants(api.AuditKind) bool { return true }
func (e *fakeEvents) Full() bool               { return false }

// states are those that a sandbox was told to have, in their order, each with its reason behind a colon.
func (e *fakeEvents) states(sandbox string) (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.events {
		if st, ok := ev.data.(api.StateEvent); ok && ev.sandbox == sandbox {
			list = append(list, strings.TrimSuffix(string(st.State)+": "+st.Reason, ": "))
		}
	}
	return list
}

// of are the events, and the notes of the audit log, of one kind about a sandbox.
func (e *fakeEvents) of(kind, sandbox string) (events, audits []event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	is := func(list []event) (found []event) {
		for _, ev := range list {
			if ev.kind == kind && ev.sandbox == sandbox {
				found = append(found, ev)
			}
		}
		return found
	}
	return is(e.events), is(e.audits)
}

// await returns what is closed when a sandbox is told to have a state, which it has not yet.
func (e *fakeEvents) await(sandbox string, state api.State) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told == nil {
		e.told = map[string]chan struct{}{}
	}
	ch := make(chan struct{})
	e.told[sandbox+" "+string(state)] = ch
	return ch
}
