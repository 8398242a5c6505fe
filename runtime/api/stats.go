package api

import (
	"math"
	"time"
)

// UpdateParams are sandbox.update's params. Of Limits those that are set are changed,
// Unlimited lifts one, and 0 leaves it as it is. Those of each exec are for execs that
// start later.
type UpdateParams struct {
	Sandbox string `json:"sandbox"`
	Limits  Limits `json:"limits,omitzero"`
	// TTLS is how many seconds the sandbox lives from now on, 0 for no end.
	TTLS *float64 `json:"ttl_s,omitempty"`
}

// Validate refuses an update that could never be made.
func (p *UpdateParams) Validate() error {
	if t := p.TTLS; t != nil && (math.IsNaN(*t) || *t < 0 || *t > MaxSeconds) {
		return invalid("ttl_s", "%g is not possible", *t).WithHint("give seconds from now on, at most %d, 0 for no end",
			MaxSeconds)
	}
	if p.Limits == (Limits{}) && p.TTLS == nil {
		return invalid("limits", "nothing to change").
			WithHint("name at least one limit, as in {\"limits\": {\"pids\": 100}}")
	}
	return p.Limits.Validate("limits")
}

// Source says where numbers about a sandbox come from.
type Source string

// The sources.
const (
	SourceCgroup2 Source = "cgroup-v2"
	SourceCgroup1 Source = "cgroup-v1" // of hybrid hosts, too, where CPU time is the v2 hierarchy's
	// SourceProcesses: no cgroups; the sum over the living processes. Peaks are not known,
	// memory that processes share counts for each, and what is over between two looks
	// is not seen.
	SourceProcesses Source = "processes"
)

// Stats is sandbox.stats's result: what a sandbox uses at one moment, and has used since
// it began. What the source cannot tell is missing; it is never 0 for that reason.
type Stats struct {
	Sandbox  string       `json:"sandbox"`
	Name     string       `json:"name,omitempty"`
	Time     time.Time    `json:"time"`
	Source   Source       `json:"source"`
	CPU      *CPUStats    `json:"cpu,omitempty"`
	Memory   *MemoryStats `json:"memory,omitempty"`
	PIDs     *PIDStats    `json:"pids,omitempty"`
	IO       *IOStats     `json:"io,omitempty"`
	Disk     *DiskStats   `json:"disk,omitempty"`
	Pressure *Pressures   `json:"pressure,omitempty"`
	Execs    int          `json:"running_execs"` // commands that run
}

// CPUStats is CPU time since the sandbox began, of all processes and CPUs together.
type CPUStats struct {
	UsedMS      float64 `json:"used_ms"`         // CPU time since the start
	UserMS      float64 `json:"user_ms"`         // in programs
	SystemMS    float64 `json:"system_ms"`       // in the kernel
	ThrottledMS float64 `json:"throttled_ms"`    // it waited for its limit to let it go on
	Limit       float64 `json:"limit,omitempty"` // CPU time per wall time
}

// MemoryStats is memory in bytes. Current includes the page cache of files, which the
// kernel takes back before it kills anything.
type MemoryStats struct {
	CurrentBytes int64  `json:"current_bytes"`         // in use now
	PeakBytes    int64  `json:"peak_bytes,omitempty"`  // most that was in use
	AnonBytes    int64  `json:"anon_bytes"`            // the processes' own
	FileBytes    int64  `json:"file_bytes,omitempty"`  // page cache, with what is in tmpfs
	ShmemBytes   int64  `json:"shmem_bytes,omitempty"` // of that, what is in tmpfs and shared memory
	SwapBytes    int64  `json:"swap_bytes,omitempty"`  // in swap
	LimitBytes   int64  `json:"limit_bytes,omitempty"`
	OOMKills     uint64 `json:"oom_kills"` // processes that the kernel killed at the limit
}

// PIDStats counts processes and threads, but for PID 1's own.
type PIDStats struct {
	Current int64  `json:"current"`         // processes and threads now
	Peak    int64  `json:"peak,omitempty"`  // the most there were
	Limit   int64  `json:"limit,omitempty"` // the most there may be
	Refused uint64 `json:"refused"`         // forks that the limit refused
}

// IOStats is what went to and came from block devices, since the sandbox began.
type IOStats struct {
	ReadBytes  int64 `json:"read_bytes"`  // from disks
	WriteBytes int64 `json:"write_bytes"` // to disks
	Reads      int64 `json:"reads"`       // operations
	Writes     int64 `json:"writes"`      // operations
}

// DiskStats is what the sandbox has written and kept.
type DiskStats struct {
	UsedBytes  int64 `json:"used_bytes"` // what it has written and kept
	LimitBytes int64 `json:"limit_bytes,omitempty"`
	Inodes     int64 `json:"inodes,omitempty"` // files and folders of it
}

// Pressures says how long processes of the sandbox had to wait for something that was
// scarce (PSI, Documentation/accounting/psi.rst). It needs cgroup v2, hybrid hosts included.
type Pressures struct {
	CPU    *Pressure `json:"cpu,omitempty"`
	Memory *Pressure `json:"memory,omitempty"`
	IO     *Pressure `json:"io,omitempty"`
}

// Pressure is the wait for one resource: of some process, and of all at once.
type Pressure struct {
	Some PressureShare `json:"some"`
	Full PressureShare `json:"full"`
}

// PressureShare is the share of wall time in the last 10, 60 and 300 seconds, in per
// cent, and the sum since the sandbox began.
type PressureShare struct {
	Avg10   float64 `json:"avg10"`    // percent of the last 10 seconds
	Avg60   float64 `json:"avg60"`    // percent of the last minute
	Avg300  float64 `json:"avg300"`   // percent of the last 5 minutes
	TotalMS float64 `json:"total_ms"` // since the start
}

// Process is one process of a sandbox. Name and Argv are the sandbox's own words.
type Process struct {
	PID      int       `json:"pid"`       // in the sandbox
	HostPID  int       `json:"host_pid"`  // as the daemon's host sees it
	PPID     int       `json:"ppid"`      // in the sandbox; 0 for PID 1
	State    string    `json:"state"`     // R, S, D, T, Z, as in proc_pid_stat(5)
	Threads  int       `json:"threads"`   // how many it has
	CPUMS    float64   `json:"cpu_ms"`    // CPU time since its start
	RSSBytes int64     `json:"rss_bytes"` // memory that it has
	Started  time.Time `json:"started"`
	Name     string    `json:"name"`
	Argv     []string  `json:"argv,omitempty"` // at most 4 KiB of it
}

// Processes is sandbox.processes's result, PID 1 first.
type Processes struct {
	Processes []Process `json:"processes"`
	Truncated bool      `json:"truncated"` // there are more than are listed
}
