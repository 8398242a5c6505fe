package meter

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec/exectest"
)

// child is a process of this one's, which stands for a PID 1.
func child(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// TestStats: a sandbox uses what its cgroup says, or its processes, but for the threads of PID 1.
func TestStats(t *testing.T) {
	w := newWorld(t)
	b := w.box()
	b.limit(api.Limits{CPUs: 2, MemoryBytes: 1 << 30, PIDs: 50, DiskBytes: mega})
	b.write("file", 4096)
	w.stats = api.Stats{CPU: &api.CPUStats{}, Memory: &api.MemoryStats{AnonBytes: 5},
		PIDs: &api.PIDStats{Current: 1000, Peak: 1}}
	st, err := w.meters.Stats(b.rec.ID)
	if err != nil || st.Name != "name1" || st.CPU.Limit != 2 || st.Memory.LimitBytes != 1<<30 || st.PIDs.Limit != 50 ||
		st.PIDs.Current >= 1000 || st.PIDs.Peak != 0 || st.Disk.UsedBytes < 4096 || st.Disk.LimitBytes != mega {
		t.Errorf("%+v, %v", st, err)
	}
	w.fail("Stats", errInjected)
	_, err = w.meters.Stats(b.rec.ID)
	refused(t, api.FailedPrecondition, err)
	_, err = w.meters.Stats("sb_9")
	refused(t, api.NotFound, err)

	bare := w.box(func(b *box) { b.group, b.own = "", false })
	st, err = w.meters.Stats(bare.rec.ID)
	if err != nil || st.Source != api.SourceProcesses || st.Memory.AnonBytes == 0 || st.Disk != nil {
		t.Errorf("%+v, %v", st, err)
	}
	bare.rec.PID = 0
	_, err = w.meters.Stats(bare.rec.ID)
	refused(t, api.FailedPrecondition, err)
}

// TestProcesses: the list has each process as the sandbox counts.
func TestProcesses(t *testing.T) {
	w := newWorld(t)
	b := w.box()
	pid := child(t)
	list, err := w.meters.Processes(b.rec.ID)
	i := slices.IndexFunc(list.Processes, func(p api.Process) bool { return p.HostPID == pid })
	if err != nil || i < 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	if p := list.Processes[i]; p.PPID == 0 || p.Started.IsZero() || p.Name == "" {
		t.Errorf("%+v", p)
	}
	b.rec.PID = 0
	_, err = w.meters.Processes(b.rec.ID)
	refused(t, api.FailedPrecondition, err)
}

// TestPIDs: a cgroup lists processes at once; elsewhere they are looked for where there may be any.
func TestPIDs(t *testing.T) {
	w := newWorld(t)
	b := w.box()
	self, pid := os.Getpid(), child(t)
	w.pids = []int{self - 1, self, self + 1}
	if got := b.meter.PIDs(); !slices.Equal(got, []int{self, self - 1, self + 1}) {
		t.Errorf("%v", got)
	}
	w.pids = nil // the cgroup does not say
	if got := b.meter.PIDs(); got[0] != self || !slices.Contains(got, pid) {
		t.Errorf("%v", got) // w.dir has no list of children: there may be some
	}
	b.rec.PID = 0
	if got := b.meter.PIDs(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	b.meter.moveCPUs([]int{9}) // of which there are none
}

// TestMeteredMemory: of a sandbox whose processes use more than a metered limit the command that uses most is ended;
// what no command is, with the sandbox.
func TestMeteredMemory(t *testing.T) {
	w := newWorld(t)
	b := w.box(func(b *box) { b.group, b.own = "", false })
	if wait := b.meter.lookAtMemory(t.Context()); wait != 0 {
		t.Errorf("looked again after %v without a limit", wait)
	}
	b.rec.Unenforced = []api.Unenforced{{Limit: "memory_bytes", Value: 1 << 40, Metered: true}}
	child(t)
	if wait := b.meter.lookAtMemory(t.Context()); wait < minMeter || len(b.ended()) > 0 {
		t.Errorf("looked again after %v, ended %q", wait, b.ended())
	}
	b.rec.Unenforced[0].Value = 1
	if wait := b.meter.lookAtMemory(t.Context()); wait != minMeter || len(b.ended()) != 1 || len(b.hits) != 1 {
		t.Errorf("looked again after %v, ended %q, hits %+v", wait, b.ended(), b.hits)
	}
	commands := exectest.New(t)
	id := commands.Start("hang")
	b.set = commands.Box.Commands()
	b.meter.lookAtMemory(t.Context())
	if res := commands.Wait(id); res.Verdict != api.VerdictOOM || res.Limit.Limit != 1 || len(b.ended()) != 1 {
		t.Errorf("%+v, ended %q", res, b.ended())
	}
}

// TestWatchMemory: the watch is for what was asked for as far as it goes, looks when something is started, and ends
// with PID 1.
func TestWatchMemory(t *testing.T) {
	w := newWorld(t)
	ended := make(chan struct{})
	b := w.box(func(b *box) {
		b.group, b.own, b.rec.Limits.BestEffort = "", false, true
		b.rec.Unenforced = []api.Unenforced{{Limit: "memory_bytes", Value: 1, Metered: true}}
	})
	child(t)
	b.meter.Watch()
	b.meter.Started()
	b.meter.Started() // which is one look
	go func() { w.group.Wait(); close(ended) }()
	b.die()
	testenv.Within(t, ended, 10*time.Second, "the watch goes on")
}

// TestCPUs: sandboxes get the CPUs on which the fewest others are, and keep them as long as their limit says the same.
func TestCPUs(t *testing.T) {
	w := newWorld(t)
	limited := func(l api.Limits) *box { return w.box(func(b *box) { b.rec.Limits = l }) }
	for i, tt := range []struct {
		l    api.Limits
		want []int
	}{
		{api.Limits{}, []int{0, 1, 2, 3}},
		{api.Limits{CPUs: 1.5}, []int{0, 1}},
		{api.Limits{CPUs: 1}, []int{2}},
		{api.Limits{CPUs: 2}, []int{0, 3}},
		{api.Limits{CPUSet: "1,3"}, []int{1, 3}},
		{api.Limits{CPUSet: "1,3", CPUs: 1}, []int{1}},
	} {
		b := limited(tt.l)
		for range 2 {
			if got := b.meter.cpuList(); !slices.Equal(got, tt.want) {
				t.Errorf("%d: %v, want %v", i, got, tt.want)
			}
		}
	}
	b := limited(api.Limits{CPUSet: "1,3"})
	if got := b.meter.CPUs(0); !slices.Equal(got, []byte{0b1010, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("%v", got)
	}
	if got := b.meter.CPUs(1); got[0] != 0b10 {
		t.Errorf("%v", got)
	}
	if got := w.boxes[0].meter.CPUs(0); got != nil {
		t.Errorf("%v of who has all", got)
	}
	for want, list := range map[string][]int{"": nil, "0-3,8": {0, 1, 2, 3, 8}, "5": {5}} {
		if got := listCPUs(list); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSeen: what programs see of limits, and what is the same in every sandbox.
func TestSeen(t *testing.T) {
	w := newWorld(t)
	b := w.box(func(b *box) { b.rec.Limits.CPUs = 1 })
	online := map[string]string{"devices/system/cpu/online": "0"}
	if got := b.meter.Files(); !maps.Equal(got, online) {
		t.Errorf("%v", got)
	}
	b.group = ""
	b.rec.Unenforced = []api.Unenforced{{Limit: "memory_bytes", Value: 1 << 30, Metered: true},
		{Limit: "pids", Value: 50, Instead: "each user"}}
	want := map[string]string{"devices/system/cpu/online": "0", "fs/cgroup/cgroup.controllers": "memory pids",
		"fs/cgroup/memory.max": "1073741824", "fs/cgroup/pids.max": "50"}
	if got := b.meter.Files(); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	at := t.TempDir()
	if err := w.meters.Furnish(at); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if _, err := os.Stat(filepath.Dir(filepath.Join(at, name))); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(at, cpuFolder, "possible")); err != nil || string(text) != "0-3\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := w.meters.Furnish(at); err == nil {
		t.Error("it was made twice")
	}
}

// TestShm: /dev/shm has half of the limit of memory, and no more than a sandbox may keep.
func TestShm(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		l    api.Limits
		want int64
	}{
		{api.Limits{}, 1 << 30},
		{api.Limits{ShmBytes: 5 << 20, MemoryBytes: 1 << 30}, 5 << 20},
		{api.Limits{MemoryBytes: 1 << 30}, 1 << 29},
		{api.Limits{MemoryBytes: 1 << 30, DiskBytes: mega}, mega},
		{api.Limits{MemoryBytes: 1}, api.MinShmBytes},
	} {
		if got := w.meters.ShmOf(&tt.l); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.l, got, tt.want)
		}
	}
	b := w.box(func(b *box) {
		b.rec.Limits.ShmBytes = 3 << 20
		b.rec.Unenforced = []api.Unenforced{{Limit: "memory_bytes", Value: 1 << 30, Metered: true}}
	})
	if b.meter.ShmBytes() != 3<<20 || b.meter.MemoryFolder() != maxMeteredShm {
		t.Errorf("%d, %d", b.meter.ShmBytes(), b.meter.MemoryFolder())
	}
	if err := w.meters.ResizeShm(7, mega); err != nil || w.remounts != 1 {
		t.Errorf("%v, %d times", err, w.remounts)
	}
	sigbus := int(unix.SIGBUS)
	if hint := b.meter.ShmHint(sigbus); hint != "" {
		t.Errorf("%q of what is not there", hint)
	}
	if err := os.MkdirAll(w.dir+shmInside, 0o700); err != nil {
		t.Fatal(err)
	}
	if hint := b.meter.ShmHint(sigbus); hint == "" {
		t.Error("SIGBUS is not explained")
	}
	if got := MiB(3<<30) + ", " + MiB(5<<20); got != "3 GiB, 5 MiB" {
		t.Error(got)
	}
}
