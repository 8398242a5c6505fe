package launch_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// insideChurn makes and destroys many sandboxes and expects hutch-launch to hold
// no more than before.
func insideChurn(t *testing.T, d *hutchd) {
	const rounds = 60
	count := func(what string) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", os.Getppid(), what))
		must(t, err)
		return len(entries)
	}
	round := func(n int) {
		for i := range n {
			id := fmt.Sprintf("sb_%d", i)
			d.create(t, id).Close()
			d.destroy(t, id)
		}
	}
	round(5) // filters are made, threads started
	fds, threads := count("fd"), count("task")
	round(rounds)
	// libcontainer leaves a pidfd for each to the garbage collector, which runs
	// now and then.
	if now := count("fd"); now > fds+rounds/2 {
		t.Errorf("fds %d, then %d", fds, now)
	}
	if now := count("task"); now > threads+rounds/4 {
		t.Errorf("threads %d, then %d", threads, now)
	}
}

// insideBench measures creates and destroys, one at a time: medians of the wall
// clock, and the CPU time of hutch-launch and its children for each, which other
// load on the machine disturbs less.
func insideBench(t *testing.T, d *hutchd) {
	const warmup, rounds = 3, 60
	took := map[string][]float64{}
	var cpu float64
	for i := range warmup + rounds {
		if i == warmup {
			cpu = launcherCPU(t)
		}
		id := fmt.Sprintf("sb_%d", i)
		start := time.Now()
		sb := d.create(t, id)
		mid := time.Now()
		d.destroy(t, id)
		if i < warmup {
			continue
		}
		took["create"] = append(took["create"], ms(mid.Sub(start)))
		took["destroy"] = append(took["destroy"], ms(time.Since(mid)))
		for name, v := range sb.Phases {
			took[name] = append(took[name], v)
		}
	}
	took["cpu"] = []float64{(launcherCPU(t) - cpu) / rounds}
	for name, v := range took {
		slices.Sort(v)
		fmt.Fprintf(os.Stderr, "%s%s %.3f\n", benchLine, name, v[len(v)/2])
	}
}

// benchLine begins a median, in milliseconds.
const benchLine = "median "

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// launcherCPU is the CPU time of hutch-launch and of the children it has waited
// for, in milliseconds.
func launcherCPU(t *testing.T) float64 {
	t.Helper()
	stat := readFile(t, fmt.Sprintf("/proc/%d/stat", os.Getppid()))
	// utime, stime, cutime and cstime are fields 14 to 17 of proc_pid_stat(5), in
	// ticks of 10 ms; the cut leaves those from 3.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	var ticks int
	for _, f := range fields[11:15] {
		n, err := strconv.Atoi(f)
		must(t, err)
		ticks += n
	}
	return float64(ticks) * 10
}
