package exec

import (
	"errors"
	"math"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestVerdict(t *testing.T) {
	exit := func(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }
	died := func(sig unix.Signal) syscall.WaitStatus { return syscall.WaitStatus(sig) }
	cpu := bounds{cpu: time.Second}
	for _, tt := range []struct {
		name string
		e    evidence
		want api.Verdict
	}{
		{"ok", evidence{}, api.VerdictOK},
		{"nonzero", evidence{status: exit(1)}, api.VerdictNonzero},
		{"signal", evidence{status: died(unix.SIGTERM)}, api.VerdictSignal},
		{"oom", evidence{status: died(unix.SIGKILL), oom: true}, api.VerdictOOM},
		{"oom of a shell's child, in company", evidence{status: exit(137), oom: true}, api.VerdictOOM},
		{"oom of a child that another code tells of", evidence{status: exit(2), oom: true, alone: true},
			api.VerdictOOM},
		{"oom of somebody else", evidence{status: exit(2), oom: true}, api.VerdictNonzero},
		{"oom that did no harm", evidence{oom: true, alone: true}, api.VerdictOK},
		{"killed without an oom", evidence{status: died(unix.SIGKILL)}, api.VerdictSignal},
		{"CPU time", evidence{bounds: cpu, cpu: time.Second}, api.VerdictTimeoutCPU},
		{"CPU time, by the kernel", evidence{bounds: cpu, cpu: 999 * time.Millisecond, status: died(unix.SIGXCPU)},
			api.VerdictTimeoutCPU},
		{"CPU time left", evidence{bounds: cpu, cpu: 999 * time.Millisecond}, api.VerdictOK},
		{"SIGXCPU of its own", evidence{status: died(unix.SIGXCPU)}, api.VerdictSignal},
		{"output", evidence{bounds: bounds{output: 9}, output: 10}, api.VerdictOutput},
		{"output within", evidence{bounds: bounds{output: 10}, output: 10}, api.VerdictOK},
		{"file size", evidence{bounds: bounds{fsize: true}, status: died(unix.SIGXFSZ)}, api.VerdictDisk},
		{"file size of a shell's child", evidence{bounds: bounds{fsize: true}, status: exit(153)}, api.VerdictDisk},
		{"pids", evidence{pids: true, status: exit(254)}, api.VerdictPIDs},
		{"pids that did no harm", evidence{pids: true}, api.VerdictOK},
		{"denied", evidence{status: died(unix.SIGSYS)}, api.VerdictDenied},
	} {
		if got := tt.e.verdict(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestBounds(t *testing.T) {
	m := New(Config{Sandboxes: bounded{}, Hard: HardLimits{NoFile: 4096, NProc: 64}})
	s := bounded{limits: api.Limits{
		TimeoutS: 4, CPUTimeS: 5, OutputBytes: 6,
		Rlimits: api.Rlimits{NoFile: &api.Rlimit{Soft: 7}, Core: &api.Rlimit{}},
	}}
	b, err := m.boundsOf(s, &api.ExecParams{})
	if err != nil || b.timeout != 4*time.Second || b.cpu != 5*time.Second || b.output != 6 {
		t.Errorf("%+v, %v", b, err)
	}
	set := map[int][2]uint64{}
	for _, r := range b.rlimits {
		set[r.Resource] = [2]uint64{r.Soft, r.Hard}
	}
	for resource, want := range map[int][2]uint64{
		unix.RLIMIT_NOFILE: {7, 7}, unix.RLIMIT_CORE: {1, 1}, unix.RLIMIT_NPROC: {64, 64}, unix.RLIMIT_CPU: {5, 6},
	} {
		if set[resource] != want {
			t.Errorf("resource %d: %v, want %v", resource, set[resource], want)
		}
	}
	hard := int64(8)
	own := &api.ExecParams{Limits: &api.Limits{CPUTimeS: 0.5, TimeoutS: 9,
		Rlimits: api.Rlimits{NoFile: &api.Rlimit{Soft: 2, Hard: &hard}}}}
	if b, err = m.boundsOf(s, own); err != nil || b.timeout != 9*time.Second || b.cpu != time.Second/2 ||
		b.output != 6 {
		t.Errorf("%+v, %v", b, err)
	}
	if b, err = m.boundsOf(bounded{}, &api.ExecParams{Background: true}); err != nil || b.timeout != 0 ||
		len(b.rlimits) != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	long, rl := 31.0, func(r api.Rlimits) api.ExecParams { return api.ExecParams{Limits: &api.Limits{Rlimits: r}} }
	for _, tt := range []struct {
		field string
		code  api.Code
		p     api.ExecParams
	}{
		{"timeout_s", api.InvalidArgument, api.ExecParams{TimeoutS: &long}},
		{"limits.timeout_s", api.InvalidArgument, api.ExecParams{Limits: &api.Limits{TimeoutS: long}}},
		{"limits.output_bytes", api.Unavailable, api.ExecParams{Stdio: &api.Stdio{}}},
		{"limits.memory_bytes", api.Unavailable, api.ExecParams{Limits: &api.Limits{MemoryBytes: 64 << 20}}},
		{"limits.rlimits.nofile", api.InvalidArgument, rl(api.Rlimits{NoFile: &api.Rlimit{Soft: 4097}})},
		{"limits.rlimits.nproc", api.InvalidArgument, rl(api.Rlimits{NProc: &api.Rlimit{Soft: api.Unlimited}})},
		{"limits.rlimits.core", api.InvalidArgument, rl(api.Rlimits{Core: &api.Rlimit{Soft: math.MaxInt64}})},
	} {
		_, err := m.boundsOf(s, &tt.p)
		var e *api.Error
		if !errors.As(err, &e) || e.Field != tt.field || e.Code != tt.code || e.Hint == "" {
			t.Errorf("%s: %v", tt.field, err)
		}
	}
}

// bounded is a sandbox with limits, and all there are.
type bounded struct {
	Sandbox
	limits api.Limits
	size   uint64 // of any file
}

func (b bounded) Find(string) (Sandbox, error)         { return b, nil }
func (b bounded) Bounds() api.ExecBounds               { return api.ExecBounds{TimeoutS: 3, MaxTimeoutS: 30} }
func (b bounded) Record() api.Sandbox                  { return api.Sandbox{Limits: b.limits} }
func (b bounded) StandIns() (nproc, data uint64)       { return 64, 0 }
func (b bounded) FileSize() (bytes uint64, known bool) { return b.size, b.size > 0 }

func (b bounded) CheckControllers(*api.Limits) error {
	return api.Errorf(api.Unavailable, "none here").WithField("limits.memory_bytes").WithHint("do without")
}

// TestFileSize: what a full sandbox may write bounds each file, whatever the command asks for; what it asks for itself
// stays its own where that is less.
func TestFileSize(t *testing.T) {
	m := New(Config{Sandboxes: bounded{}, Hard: HardLimits{NoFile: 4096, NProc: 64}})
	hard := int64(1 << 20)
	for _, tt := range []struct {
		own  *api.Rlimit
		soft uint64
		mine bool
	}{{nil, 1000, false}, {&api.Rlimit{Soft: 10, Hard: &hard}, 10, true}, {&api.Rlimit{Soft: hard}, 1000, false}} {
		p := &api.ExecParams{Limits: &api.Limits{Rlimits: api.Rlimits{FSize: tt.own}}}
		b, err := m.boundsOf(bounded{size: 1000}, p)
		if err != nil || !b.fsize || b.fsizeOwn != tt.mine {
			t.Errorf("%+v: %+v, %v", tt.own, b, err)
		}
		for _, l := range b.rlimits {
			if l.Resource == unix.RLIMIT_FSIZE && (l.Soft != tt.soft || l.Hard > 1000) {
				t.Errorf("%+v: %+v", tt.own, l)
			}
		}
	}
}
