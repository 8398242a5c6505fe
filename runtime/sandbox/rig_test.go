package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/isolation"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// rig is a real Manager with a real shelf and real files, around which everything is fake: no process, no mount, no
// cgroup and no network is ever made. In a bubble of testing/synctest its clock is the bubble's: nothing of it waits
// for the kernel but the streams of commands, so that commands whose output is captured (captured) are for tests
// outside.
//
// Each call that the Manager makes of a fake goes by its points, by the name "Launcher.Create": there a test counts it,
// has it fail, or holds it up. In the end of each test, nothing of any sandbox may be left.
type rig struct {
	t        *testing.T
	m        *Manager
	dir      string
	cfg      Config
	points   *points
	kernel   *fakeKernel
	images   *fakeImages
	launcher *fakeLauncher
	networks *fakeNetworks
	cgroups  *fakeCgroups
	events   *fakeEvents
	left     bool // what is left at the end is the test's matter
}

// newRig makes one whose configuration the test has changed. Its files are in memory where that can be had: on a disk,
// folders alone would take most of the time.
func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "hutch-rig-")
	if err != nil {
		return newRigIn(t, t.TempDir(), change...)
	}
	t.Cleanup(func() { // the last of all
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return newRigIn(t, dir, change...)
}

// newRigIn is newRig in a folder, on whose file system it depends how limits of disk space are kept.
func newRigIn(t *testing.T, dir string, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, points: newPoints()}
	for _, dir := range []string{"home/sandboxes", "proc", "netns", "spools", "layers/base", "mounts", "volumes"} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	store, err := shelf.Open(filepath.Join(r.dir, "shelf"), log)
	if err != nil {
		t.Fatal(err)
	}
	r.kernel = &fakeKernel{r: r, inits: map[int]*fakeInit{}, mounted: map[string]bool{}}
	r.images = &fakeImages{r: r, pins: map[string]bool{}}
	r.launcher = &fakeLauncher{r: r, inits: map[string]*fakeInit{}, held: map[string]*heldExec{}}
	r.networks = &fakeNetworks{r: r, open: map[string]int{}}
	r.cgroups = &fakeCgroups{r: r, groups: map[string]map[string]bool{}, enabled: true}
	r.events = &fakeEvents{r: r}
	all := []int{0, 1, 2, 3}
	r.cfg = Config{
		Dir: filepath.Join(r.dir, "home/sandboxes"), Kernel: r.kernel, Images: r.images, Launcher: r.launcher,
		Events: r.events, Audit: r.events, Networks: r.networks, Cgroups: r.cgroups, Seccomp: fakeSeccomp{r},
		Volumes: fakeVolumes{r}, Shelf: store, Logger: log, Owner: 1000,
		Host: Host{
			UIDs: []spec.Extent{{Start: 0, Count: 65536}}, GIDs: []spec.Extent{{Start: 0, Count: 65536}},
			Host: isolation.Host{UserMap: "range", CgroupMode: "v2", CgroupMount: "/sys/fs/cgroup",
				Controllers: []string{"cpu", "cpuset", "io", "memory", "pids"}},
			NoFileHard: 1024, NProc: 1000, CPUs: len(all), Allowed: all, Possible: all,
			MemoryBytes: 8 << 30, Disk: "8:0", CgroupPath: "/hutch", CgroupV2: true,
		},
		Settings: Settings{
			Exec:    api.ExecBounds{TimeoutS: 60, MaxTimeoutS: 3600},
			Network: api.NetPolicy{Mode: api.NetNone},
		},
	}
	for _, f := range change {
		f(&r.cfg)
	}
	r.open()
	t.Cleanup(r.close)
	return r
}

// open begins a daemon over what is there.
func (r *rig) open() {
	r.t.Helper()
	r.launcher.wg.Wait()
	r.m = NewManager(r.cfg)
	if err := r.m.Adopt(r.t.Context(), nil); err != nil {
		r.t.Fatal(err)
	}
}

// close ends the daemon, and looks for what is left.
func (r *rig) close() {
	r.t.Helper()
	err := r.m.Close(context.Background())
	r.launcher.wg.Wait()
	if r.left {
		return
	}
	if err != nil {
		r.t.Errorf("close: %v", err)
	}
	r.empty()
}

// empty checks that there is no sandbox, and nothing of one that was; stopped ones are on the shelf.
func (r *rig) empty() {
	r.t.Helper()
	r.m.Settle(context.Background())
	for what, n := range r.leftovers() {
		if n != 0 {
			r.t.Errorf("left: %d %s", n, what)
		}
	}
}

// leftovers counts what a sandbox has, and what the Manager knows of one.
func (r *rig) leftovers() map[string]int {
	m := r.m
	m.mu.Lock()
	left := map[string]int{
		"ids": len(m.byID), "names": len(m.byName), "creating": len(m.creating), "gone": len(m.gone),
		"scopes": len(m.scopes), "shells": m.Shells.Left(),
	}
	maps.Copy(left, m.Execs.Left())
	if m.closed { // those on the shelf are listed to the end
		for _, s := range m.byID {
			if s.stopped {
				left["ids"]--
				if s.name != "" {
					left["names"]--
				}
				if s.spec.Scope != nil {
					left["scopes"]--
				}
			}
		}
		left["execs"] = 0 // what those have written
	}
	m.mu.Unlock()
	maps.Copy(left, r.kernel.count())
	maps.Copy(left, r.images.count())
	maps.Copy(left, r.launcher.count())
	maps.Copy(left, r.networks.count())
	maps.Copy(left, r.cgroups.count())
	for _, dir := range []string{"home/sandboxes", "proc", "netns"} {
		entries, err := os.ReadDir(filepath.Join(r.dir, dir))
		if err != nil {
			r.t.Error(err)
		}
		left["files in "+dir] = len(entries)
	}
	return left
}

// logTo has the daemon's log in the test's, and errors in it as such.
type logTo struct{ t *testing.T }

func (l logTo) Write(line []byte) (int, error) {
	l.t.Logf("%s", line)
	return len(line), nil
}

// request is a create of a plain sandbox of user 1000, on connection 1.
func request(change ...func(*CreateRequest)) CreateRequest {
	req := CreateRequest{Spec: api.Spec{Image: "tiny"}, User: 1000, Conn: 1, Progress: func(api.Progress) {}}
	for _, f := range change {
		f(&req)
	}
	return req
}

// named gives it a name.
func named(name string) func(*CreateRequest) {
	return func(req *CreateRequest) { req.Spec.Name = name }
}

// create makes a sandbox.
func (r *rig) create(change ...func(*CreateRequest)) api.Sandbox {
	r.t.Helper()
	sb, err := r.m.Create(r.t.Context(), request(change...))
	if err != nil {
		r.t.Fatalf("create: %v", err)
	}
	return sb
}

// remove removes one, all of it.
func (r *rig) remove(id string) {
	r.t.Helper()
	if _, err := r.m.Remove(r.t.Context(), id); err != nil {
		r.t.Fatalf("remove: %v", err)
	}
	r.m.Settle(r.t.Context())
}

// state is a sandbox's, StateRemoved of one that is not there.
func (r *rig) state(id string) api.State {
	r.t.Helper()
	sb, err := r.m.Get(id)
	if api.ErrorCode(err) == api.NotFound {
		return api.StateRemoved
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return sb.State
}

// params are those of a command without output, as one in a bubble must be; see fakeInit for what it may be.
func params(id string, argv ...string) api.ExecParams {
	return api.ExecParams{Sandbox: id, Argv: argv, Stdio: &api.Stdio{}}
}

// captured are those of one whose output is kept.
func captured(id string, argv ...string) api.ExecParams {
	return api.ExecParams{Sandbox: id, Argv: argv}
}

// run runs a command to its end.
func (r *rig) run(p api.ExecParams) api.ExecResult {
	r.t.Helper()
	res, err := r.m.Execs.Run(r.t.Context(), exec.Request{Params: p, Started: func(string, int) {}})
	if err != nil {
		r.t.Fatalf("run %q: %v", p.Argv, err)
	}
	return res
}

// start starts one.
func (r *rig) start(p api.ExecParams) string {
	r.t.Helper()
	res, err := r.m.Execs.Start(r.t.Context(), exec.Request{Params: p, Started: func(string, int) {}})
	if err != nil {
		r.t.Fatalf("start %q: %v", p.Argv, err)
	}
	return res.Exec
}

// wait waits for the end of one.
func (r *rig) wait(id string) api.ExecResult {
	r.t.Helper()
	res, err := r.m.Execs.Wait(r.t.Context(), api.WaitParams{Exec: id})
	if err != nil {
		r.t.Fatalf("wait: %v", err)
	}
	return res
}

// refused checks that a call was refused with a code.
func (r *rig) refused(want api.Code, err error) {
	r.t.Helper()
	if err == nil || api.ErrorCode(err) != want {
		r.t.Errorf("error %v, want one of code %s", err, want)
	}
}

// errInjected is what a fake fails with.
var errInjected = errors.New("injected")

// points are the calls that the Manager makes of fakes, by name.
type points struct {
	mu    sync.Mutex
	calls []string
	fail  map[string]func() error // the next call fails so, where that is an error
	hold  map[string]*held
}

// held is a call that is held up.
type held struct {
	arrived chan struct{} // closed when somebody is there
	release chan struct{}
	once    sync.Once
}

func newPoints() *points { return &points{fail: map[string]func() error{}, hold: map[string]*held{}} }

// at is called by each fake, first.
func (p *points) at(name string) error {
	p.mu.Lock()
	p.calls = append(p.calls, name)
	fail, hold := p.fail[name], p.hold[name]
	p.mu.Unlock()
	if hold != nil {
		hold.once.Do(func() { close(hold.arrived) })
		<-hold.release
	}
	if fail != nil {
		return fail()
	}
	return nil
}

// failing has all calls of a name fail, from now on; nil ends that.
func (p *points) failing(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.fail, name); err != nil {
		p.fail[name] = func() error { return err }
	}
}

// holding holds all calls of a name up, until release is called.
func (p *points) holding(name string) (arrived <-chan struct{}, release func()) {
	h := &held{arrived: make(chan struct{}), release: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold[name] = h
	return h.arrived, sync.OnceFunc(func() {
		p.mu.Lock()
		delete(p.hold, name)
		p.mu.Unlock()
		close(h.release)
	})
}

// count is how many calls of a name there were.
func (p *points) count(name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c == name {
			n++
		}
	}
	return n
}

// names are those of all calls, each once, in their order.
func (p *points) names() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// forget forgets the calls so far.
func (p *points) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = nil
}

// newFile is an empty file, opened: what stands for an fd of the kernel's.
func (r *rig) newFile(dir, pattern string) (*os.File, error) {
	return os.CreateTemp(filepath.Join(r.dir, dir), pattern)
}

// resolver is the address of one that nobody asks.
var resolver = netip.MustParseAddr("127.0.0.53")

// openFDs is how many there are.
func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// list, scopes, ports and execs are what the Manager lists.
func (r *rig) list() []api.Sandbox {
	l, err := r.m.List(r.t.Context(), api.ListParams{})
	if err != nil {
		r.t.Error(err)
	}
	return l.Sandboxes
}

func (r *rig) scopes() []api.ScopeInfo {
	l, err := r.m.Scopes.List(r.t.Context(), api.Empty{})
	if err != nil {
		r.t.Error(err)
	}
	return l.Scopes
}

func (r *rig) ports(sandbox string) ([]api.Port, error) {
	l, err := r.m.Ports.List(r.t.Context(), api.PortListParams{Sandbox: sandbox})
	return l.Ports, err
}

func (r *rig) execs(sandbox string) ([]api.Exec, error) {
	l, err := r.m.Execs.List(r.t.Context(), api.SandboxParams{Sandbox: sandbox})
	return l.Execs, err
}
