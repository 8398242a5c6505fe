package sandbox

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestMeter(t *testing.T) {
	p, err := readProcess(os.Getpid())
	if err != nil || p.pid != os.Getpid() || p.ppid != os.Getppid() || p.threads < 1 || p.rss == 0 || p.state == "" {
		t.Errorf("%+v, %v", p, err)
	}
	// A name that looks like the rest of the line.
	hostile := process{pid: 1}
	err = hostile.parseStat("7 (a) S 1 (b)) R 3 0 0 0 0 0 0 0 0 0 150 50 10 20 0 0 4 0 900 0 0")
	if err != nil || hostile.name != "a) S 1 (b)" || hostile.state != "R" || hostile.ppid != 3 ||
		hostile.threads != 4 ||
		hostile.cpu != 2*time.Second || hostile.waited != 300*time.Millisecond || hostile.start != 9*time.Second {
		t.Errorf("%+v, %v", hostile, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (a) R 3 0 0 0 0 0 0 0 0 0 150 50 10 20 0 0 4 0 900 0 0", "NSpid:\t7\t1\nVmRSS:\t 9 kB\n")
	f.Add(")(", ":\nNSpid:")
	f.Fuzz(func(t *testing.T, stat, status string) {
		var p process
		cost.Input(t, stat, func(stat string) { _ = p.parseStat(stat) })
		cost.Input(t, status, func(status string) { p.parseStatus(status) })
	})
}

// leaderOf is a command, by the PID of its leader.
type leaderOf int

func (l leaderOf) PID() int { return int(l) }

// TestSharesOf: a process is its exec's when it is below the leader, or in its session.
func TestSharesOf(t *testing.T) {
	a, b := leaderOf(10), leaderOf(20)
	all := []process{
		{pid: 1001, inside: 1, ppid: 7, session: 1001, anon: 1 << 30},
		{pid: 1010, inside: 10, ppid: 1001, session: 1010, anon: 1},
		{pid: 1011, inside: 11, ppid: 1010, session: 1010, anon: 2, shmem: 4},
		{pid: 1012, inside: 12, ppid: 1011, session: 1012, anon: 8},  // a session of its own
		{pid: 1013, inside: 13, ppid: 1001, session: 1010, anon: 16}, // an orphan
		{pid: 1020, inside: 20, ppid: 1001, session: 1020, anon: 32},
		{pid: 1021, inside: 21, ppid: 1001, session: 1021, anon: 64}, // nobody's
		{pid: 1022, inside: 22, ppid: 1023, session: 1022, anon: 128},
		{pid: 1023, inside: 23, ppid: 1022, session: 1022, anon: 256}, // pids that were used again meanwhile
	}
	if got := sharesOf(all, []leaderOf{a, b}); got[a] != 31 || got[b] != 32 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := together(all); got != 511 {
		t.Errorf("together %d", got)
	}
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
	all := meterBelow(os.Getpid())
	if len(all) < 3 || all[0].pid != os.Getpid() ||
		!slices.ContainsFunc(all, func(p process) bool { return p.ppid == cmd.Process.Pid }) {
		t.Errorf("%+v", all)
	}
	_ = out.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestShare: what is shared with nobody is all a process's own.
func TestShare(t *testing.T) {
	hold := make([]byte, 64<<20)
	for i := 0; i < len(hold); i += 4096 {
		hold[i] = 1
	}
	p := process{pid: os.Getpid()}
	if p.share(); p.anon < 64<<20 {
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
			meterBelow(self)
		}
	})
	b.Run("share", func(b *testing.B) {
		p := process{pid: self}
		for b.Loop() {
			p.share()
		}
	})
}
