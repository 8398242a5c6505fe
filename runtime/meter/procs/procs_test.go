package procs

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestMeter(t *testing.T) {
	p, err := Read(os.Getpid())
	if err != nil || p.PID != os.Getpid() || p.PPID != os.Getppid() || p.Threads < 1 || p.RSS == 0 || p.State == "" {
		t.Errorf("%+v, %v", p, err)
	}
	// A name that looks like the rest of the line.
	hostile := Process{PID: 1}
	err = hostile.parseStat("7 (a) S 1 (b)) R 3 0 0 0 0 0 0 0 0 0 150 50 10 20 0 0 4 0 900 0 0")
	if err != nil || hostile.Name != "a) S 1 (b)" || hostile.State != "R" || hostile.PPID != 3 ||
		hostile.Threads != 4 ||
		hostile.CPU != 2*time.Second || hostile.Waited != 300*time.Millisecond || hostile.Start != 9*time.Second {
		t.Errorf("%+v, %v", hostile, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (a) R 3 0 0 0 0 0 0 0 0 0 150 50 10 20 0 0 4 0 900 0 0", "NSpid:\t7\t1\nVmRSS:\t 9 kB\n")
	f.Add(")(", ":\nNSpid:")
	f.Fuzz(func(t *testing.T, stat, status string) {
		var p Process
		cost.Input(t, stat, func(stat string) { _ = p.parseStat(stat) })
		cost.Input(t, status, func(status string) { p.parseStatus(status) })
	})
}

// TestMeterBelow: children and theirs are found, whichever thread has started them.
func TestMeterBelow(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("sh", "-c", "echo; sh -c 'echo; read x; :'; :")
	cmd.Stdin = in
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := io.ReadFull(ready, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	all := Below(os.Getpid())
	if len(all) < 3 || all[0].PID != os.Getpid() ||
		!slices.ContainsFunc(all, func(p Process) bool { return p.PPID == cmd.Process.Pid }) {
		t.Errorf("%+v", all)
	}
	_ = out.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestSearch: the search of /proc finds this process first, and a child; PID 1 has orphans when its main thread has
// children, or nobody can tell.
func TestSearch(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	all := Of(os.Getpid())
	if len(all) < 2 || all[0].PID != os.Getpid() ||
		!slices.ContainsFunc(all, func(p Process) bool { return p.PID == cmd.Process.Pid }) {
		t.Errorf("%+v", all)
	}
	if ids := IDs(0); len(ids) != 0 {
		t.Errorf("%v of no PID 1", ids)
	}
	if argv := Argv(cmd.Process.Pid); !slices.Equal(argv, []string{"sleep", "1000"}) {
		t.Errorf("%q", argv)
	}
	if Argv(0) != nil || !Booted().Before(time.Now()) {
		t.Error("what is not there has a command line, or has yet to boot")
	}
	proc := "/proc/" + strconv.Itoa(cmd.Process.Pid)
	if HasOrphans(proc, cmd.Process.Pid) || !HasOrphans("/nowhere", 1) {
		t.Error("a process has children, or one that is not there has none")
	}
	if IsGone(os.ErrPermission) {
		t.Error("who may not be looked at has ended")
	}
}

// TestShare: what is shared with nobody is all a process's own.
func TestShare(t *testing.T) {
	hold := make([]byte, 64<<20)
	for i := 0; i < len(hold); i += 4096 {
		hold[i] = 1
	}
	p := Process{PID: os.Getpid()}
	if p.Share(); p.Anon < 64<<20 {
		t.Errorf("%+v", p)
	}
	runtime.KeepAlive(hold)
}

// BenchmarkMeter is one look at the processes of a pid namespace, and the walk of their
// page tables.
func BenchmarkMeter(b *testing.B) {
	self := os.Getpid()
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			Below(self)
		}
	})
	b.Run("share", func(b *testing.B) {
		p := Process{PID: self}
		for b.Loop() {
			p.Share()
		}
	})
}
