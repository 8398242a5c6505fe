package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Stats reads what a sandbox's cgroup has counted. It fails when there is no such cgroup
// any more. Limits are the caller's to fill in.
func (x *Execs) Stats(sandbox string) (api.Stats, error) {
	st := api.Stats{Source: api.SourceCgroup1}
	if x.mode == V2 {
		st.Source = api.SourceCgroup2
	}
	c := counters{x: x, sandbox: sandbox}
	st.CPU = c.cpu()
	st.Memory = c.memory()
	st.PIDs = c.pids()
	st.IO = c.io()
	if x.mounts[""] != "" {
		p := api.Pressures{CPU: c.pressure("cpu"), Memory: c.pressure("memory"), IO: c.pressure("io")}
		if p != (api.Pressures{}) {
			st.Pressure = &p
		}
	}
	if st.CPU == nil && st.Memory == nil && st.PIDs == nil && c.gone {
		return st, fs.ErrNotExist
	}
	return st, nil
}

// counters reads files of one cgroup. What is not there is "" or 0.
type counters struct {
	x       *Execs
	sandbox string
	gone    bool // a file was missing
}

// text reads a file of a hierarchy.
func (c *counters) text(controller, file string) string {
	mount, ok := c.x.mounts[controller]
	if !ok {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(mount, c.sandbox, file))
	c.gone = c.gone || errors.Is(err, fs.ErrNotExist)
	return string(data)
}

func (c *counters) number(controller, file string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(c.text(controller, file)), 10, 64)
	return n
}

func (c *counters) cpu() *api.CPUStats {
	const us, ns = 1e-3, 1e-6 // in milliseconds
	if text := c.text("", "cpu.stat"); text != "" {
		st := &api.CPUStats{UsedMS: key(text, "usage_usec") * us, UserMS: key(text, "user_usec") * us,
			SystemMS: key(text, "system_usec") * us}
		if c.x.v2("cpu") {
			st.ThrottledMS = key(text, "throttled_usec") * us
		} else {
			st.ThrottledMS = key(c.text("cpu", "cpu.stat"), "throttled_time") * ns
		}
		return st
	}
	if c.text("cpuacct", "cpuacct.usage") == "" {
		return nil
	}
	return &api.CPUStats{
		UsedMS:      float64(c.number("cpuacct", "cpuacct.usage")) * ns,
		UserMS:      float64(c.number("cpuacct", "cpuacct.usage_user")) * ns,
		SystemMS:    float64(c.number("cpuacct", "cpuacct.usage_sys")) * ns,
		ThrottledMS: key(c.text("cpu", "cpu.stat"), "throttled_time") * ns,
	}
}

func (c *counters) memory() *api.MemoryStats {
	stat := c.text("memory", "memory.stat")
	if stat == "" {
		return nil
	}
	count := func(name string) int64 { return int64(key(stat, name)) }
	if c.x.v2("memory") {
		return &api.MemoryStats{
			CurrentBytes: c.number("memory", "memory.current"), PeakBytes: c.number("memory", "memory.peak"),
			AnonBytes: count("anon"), FileBytes: count("file"), ShmemBytes: count("shmem"),
			SwapBytes: c.number("memory", "memory.swap.current"),
			OOMKills:  uint64(key(c.text("memory", "memory.events"), "oom_kill")),
		}
	}
	return &api.MemoryStats{
		CurrentBytes: c.number("memory", "memory.usage_in_bytes"),
		PeakBytes:    c.number("memory", "memory.max_usage_in_bytes"),
		AnonBytes:    count("rss"), FileBytes: count("cache"), ShmemBytes: count("shmem"), SwapBytes: count("swap"),
		OOMKills: uint64(key(c.text("memory", "memory.oom_control"), "oom_kill")),
	}
}

func (c *counters) pids() *api.PIDStats {
	if c.text("pids", "pids.current") == "" {
		return nil
	}
	return &api.PIDStats{
		Current: c.number("pids", "pids.current"), Peak: c.number("pids", "pids.peak"),
		Refused: uint64(key(c.text("pids", "pids.events"), "max")),
	}
}

// io sums up all disks.
func (c *counters) io() *api.IOStats {
	st := &api.IOStats{}
	if c.x.v2("io") {
		for field := range strings.FieldsSeq(c.text("io", "io.stat")) {
			name, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch name {
			case "rbytes":
				st.ReadBytes += n
			case "wbytes":
				st.WriteBytes += n
			case "rios":
				st.Reads += n
			case "wios":
				st.Writes += n
			}
		}
		return st
	}
	if c.x.mounts["io"] == "" {
		return nil
	}
	st.ReadBytes, st.WriteBytes = oldIO(c.text("io", "blkio.throttle.io_service_bytes_recursive"))
	st.Reads, st.Writes = oldIO(c.text("io", "blkio.throttle.io_serviced_recursive"))
	return st
}

// oldIO sums up lines as "8:0 Read 4096".
func oldIO(text string) (read, written int64) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseInt(f[2], 10, 64)
		switch f[1] {
		case "Read":
			read += n
		case "Write":
			written += n
		}
	}
	return read, written
}

// pressure is nil where the kernel does not measure it (CONFIG_PSI, psi=1).
func (c *counters) pressure(of string) *api.Pressure {
	return parsePressure(c.text("", of+".pressure"))
}

func parsePressure(text string) *api.Pressure {
	var p api.Pressure
	found := false
	for line := range strings.Lines(text) {
		who, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		share := &p.Some
		switch who {
		case "some":
		case "full":
			share = &p.Full
		default:
			continue
		}
		found = true
		for field := range strings.FieldsSeq(rest) {
			name, value, _ := strings.Cut(field, "=")
			v, _ := strconv.ParseFloat(value, 64)
			switch name {
			case "avg10":
				share.Avg10 = v
			case "avg60":
				share.Avg60 = v
			case "avg300":
				share.Avg300 = v
			case "total": // microseconds
				share.TotalMS = v / 1000
			}
		}
	}
	if !found {
		return nil
	}
	return &p
}

func key(text, name string) float64 {
	n, _ := flatKey(text, name)
	return float64(n)
}
