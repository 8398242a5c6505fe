package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where a result comes from. Results of different machines do not
// compare, ratios do a little.
type Machine struct {
	Kernel  string `json:"kernel"`
	Arch    string `json:"arch"`
	CPU     string `json:"cpu,omitempty"`
	Cores   int    `json:"cores"` // that this process may use
	Memory  int    `json:"memory_mib"`
	Cgroups string `json:"cgroups"` // v1, hybrid, v2 or none
	System  string `json:"system,omitempty"`
	// Load1 is the load average of the last minute: runnable and blocked tasks.
	Load1Before float64 `json:"load1_before"`
	Load1After  float64 `json:"load1_after"`
}

// thisMachine describes the machine before a measurement.
func thisMachine() Machine {
	var u unix.Utsname
	var info unix.Sysinfo_t
	m := Machine{Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Cgroups: cgroupKind(), Load1Before: load1()}
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if unix.Sysinfo(&info) == nil {
		m.Memory = int(info.Totalram * uint64(info.Unit) >> 20)
	}
	m.CPU = field("/proc/cpuinfo", "model name", ":")
	m.System = strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)
	return m
}

// String is the machine as one line of a header.
func (m Machine) String() string {
	s := fmt.Sprintf("Linux %s %s, %d cores", m.Kernel, m.Arch, m.Cores)
	if m.CPU != "" {
		s += " (" + m.CPU + ")"
	}
	s += fmt.Sprintf(", %d MiB, cgroups %s", m.Memory, m.Cgroups)
	if m.System != "" {
		s += ", " + m.System
	}
	return s
}

// load1 is the first number of /proc/loadavg (proc_loadavg(5)), or 0.
func load1() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	v, err := strconv.ParseFloat(string(first), 64)
	if err != nil {
		return 0
	}
	return v
}

// cgroupKind tells by the file systems which hierarchies are mounted.
func cgroupKind() string {
	const root = "/sys/fs/cgroup"
	var st unix.Statfs_t
	if unix.Statfs(root, &st) != nil {
		return "none"
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return "v2"
	}
	if unix.Statfs(unified, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return "hybrid"
	}
	if _, err := os.Stat(filepath.Join(root, "memory")); errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	return "v1"
}

// field is the value of the first line "KEY SEP VALUE" of a file, or "".
func field(file, key, sep string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, sep); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
