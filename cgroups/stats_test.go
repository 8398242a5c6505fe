package cgroups

import (
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestParsePressure(t *testing.T) {
	p := parsePressure("some avg10=1.50 avg60=2.00 avg300=3.00 total=4000\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=7\n")
	if p == nil || p.Some != (api.PressureShare{Avg10: 1.5, Avg60: 2, Avg300: 3, TotalMS: 4}) || p.Full.Avg10 != 0.5 {
		t.Errorf("%+v", p)
	}
	if p := parsePressure(""); p != nil { // not measured is not 0
		t.Errorf("%+v", p)
	}
	if r, w := oldIO("8:0 Read 10\n8:0 Write 20\n8:16 Read 1\n8:0 Total 31\nTotal 31\n"); r != 11 || w != 20 {
		t.Errorf("%d, %d", r, w)
	}
}

// TestSettings: the same limits for both kinds of hierarchies.
func TestSettings(t *testing.T) {
	l := api.Limits{CPUs: 0.5, CPUWeight: 200, PIDs: api.Unlimited, CPUSet: "0-1", IOWriteBPS: 9,
		IOReadBPS: api.Unlimited, MemoryBytes: api.Unlimited}
	v2 := &Execs{mode: V2, disk: "8:0", mounts: map[string]string{"": "/c", "cpu": "/c", "memory": "/c", "pids": "/c",
		"cpuset": "/c", "io": "/c"}}
	want := []setting{
		{"memory", "memory.max", "max"}, {"memory", "memory.swap.max", "max"}, {"cpu", "cpu.max", "50000 100000"},
		{"pids", "pids.max", "max"},
		{"cpu", "cpu.weight", "200"}, {"cpuset", "cpuset.cpus", "0-1"}, {"io", "io.max", "8:0 rbps=max"},
		{"io", "io.max", "8:0 wbps=9"},
	}
	if got := v2.settings(l); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	v1 := &Execs{mode: V1, disk: "8:0", mounts: map[string]string{"": "/u", "cpu": "/cpu", "memory": "/m", "pids": "/p",
		"cpuset": "/s", "io": "/b"}}
	want = []setting{
		{"cpu", "cpu.cfs_period_us", "100000"}, {"cpu", "cpu.cfs_quota_us", "50000"}, {"pids", "pids.max", "max"},
		{"cpu", "cpu.shares", "2048"}, {"cpuset", "cpuset.cpus", "0-1"},
		{"io", "blkio.throttle.read_bps_device", "8:0 0"}, {"io", "blkio.throttle.write_bps_device", "8:0 9"},
	}
	if got := v1.settings(l); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
