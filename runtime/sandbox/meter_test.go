package sandbox

import (
	"os"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	p, err := readProcess(os.Getpid())
	if err != nil || p.pid != os.Getpid() || p.ppid != os.Getppid() || p.threads < 1 || p.rss == 0 || p.state == "" {
		t.Errorf("%+v, %v", p, err)
	}
	// A name that looks like the rest of the line.
	hostile := process{pid: 1}
	err = hostile.parseStat("7 (a) S 1 (b)) R 3 0 0 0 0 0 0 0 0 0 150 50 10 20 0 0 4 0 900 0 0")
	if err != nil || hostile.name != "a) S 1 (b)" || hostile.state != "R" || hostile.ppid != 3 || hostile.threads != 4 ||
		hostile.cpu != 2*time.Second || hostile.waited != 300*time.Millisecond || hostile.start != 9*time.Second {
		t.Errorf("%+v, %v", hostile, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (a) R 3 0 0 0 0 0 0 0 0 0 150 50 10 20 0 0 4 0 900 0 0", "NSpid:\t7\t1\nVmRSS:\t 9 kB\n")
	f.Add(")(", ":\nNSpid:")
	f.Fuzz(func(_ *testing.T, stat, status string) {
		var p process
		_ = p.parseStat(stat)
		p.parseStatus(status)
	})
}
