package sandbox

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// What programs see of a sandbox's limits, which they size themselves by: the CPUs of sched_getaffinity(2) and of
// /sys/devices/system/cpu/online, and the files of its cgroup (spec.Build), or where it has none, files that say what
// stands in for it. The limits themselves are the cgroup's.

// cpuFolder is that of the kernel's documentation (ABI/testing/sysfs-devices-system-cpu), below sysFolder.
const cpuFolder = "devices/system/cpu"

// sysFolders are what any /sys has. Nothing of the host is in them.
var sysFolders = []string{
	"block", "bus", "class", "dev", "devices", "devices/system", cpuFolder, "firmware", "fs", "fs/cgroup", "kernel",
	"module", "power",
}

// maxCPUFolders bounds the folders of CPUs, which some programs count (stress-ng, old C libraries). They are empty:
// caches and cores are the host's business.
const maxCPUFolders = 128

// furnish makes in the folder at what is the same in every sandbox.
func (m *Manager) furnish(at string) error {
	for _, name := range append([]string{toldFolder, sysFolder}, under(sysFolder, sysFolders)...) {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			return err
		}
	}
	for _, cpu := range m.cfg.Host.Possible[:min(maxCPUFolders, len(m.cfg.Host.Possible))] {
		if err := os.Mkdir(filepath.Join(at, sysFolder, cpuFolder, "cpu"+strconv.Itoa(cpu)), 0o755); err != nil {
			return err
		}
	}
	all := cpuList(m.cfg.Host.Possible)
	// Allocators have a list for each CPU that is possible, by its number (rseq(2)), and a process may run on any.
	for name, text := range map[string]string{"possible": all, "present": all,
		"kernel_max": strconv.Itoa(len(m.cfg.Host.Possible) - 1)} {
		if err := os.WriteFile(filepath.Join(at, sysFolder, cpuFolder, name), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func under(folder string, names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = folder + "/" + name
	}
	return paths
}

// limitFiles are the files below aboutFolder that follow the limits, without the newline at their end.
func (m *Manager) limitFiles(s *Sandbox) map[string]string {
	files := map[string]string{sysFolder + "/" + cpuFolder + "/online": cpuList(m.cpusOf(s))}
	if s.cgroup != "" {
		return files // a mount hides what would be there
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	group := map[string]string{"cgroup.controllers": "memory pids", "memory.max": "max", "pids.max": "max"}
	for _, u := range s.record.Unenforced {
		switch {
		case u.Limit == "memory_bytes" && u.Metered:
			group["memory.max"] = plain(u.Value)
		case u.Limit == "pids" && u.Instead != "":
			group["pids.max"] = plain(u.Value)
		}
	}
	for name, text := range group {
		files[sysFolder+"/fs/cgroup/"+name] = text
	}
	return files
}

// seenCPUs are the CPUs that the commands of a sandbox start on; a program may ask for others (sched_setaffinity(2)).
type seenCPUs struct {
	list []int // in order
	n    int   // as many as its limit of CPUs is worth; 0 is all
	set  string
}

// cpusOf are those of s: of its cpuset, as many as its limit is worth, and on which the fewest other sandboxes are.
func (m *Manager) cpusOf(s *Sandbox) []int {
	l := s.limits()
	n := int(math.Ceil(l.CPUs))
	if n <= 0 && l.CPUSet == "" {
		return m.cfg.Host.Allowed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := &s.cpus; c.list != nil && c.n == n && c.set == l.CPUSet {
		return c.list
	}
	cpus := m.cfg.Host.Allowed
	if l.CPUSet != "" {
		set, _ := api.ParseCPUSet(l.CPUSet)
		cpus = slices.DeleteFunc(slices.Clone(cpus), func(cpu int) bool { return !slices.Contains(set, cpu) })
	}
	if n > 0 && n < len(cpus) {
		on := map[int]int{}
		for _, other := range m.byID {
			if other != s && len(other.cpus.list) < len(m.cfg.Host.Allowed) {
				for _, cpu := range other.cpus.list {
					on[cpu]++
				}
			}
		}
		cpus = slices.Clone(cpus)
		slices.SortStableFunc(cpus, func(a, b int) int { return cmp.Compare(on[a], on[b]) })
		cpus = cpus[:n]
		slices.Sort(cpus)
	}
	s.cpus = seenCPUs{cpus, n, l.CPUSet}
	return cpus
}

// affinity is the mask of the CPUs of an exec that may use so many (guestapi.Request), nil where it has all that hutchd
// has.
func (m *Manager) affinity(s *Sandbox, most float64) []byte {
	cpus := m.cpusOf(s)
	if own := int(math.Ceil(most)); own > 0 && own < len(cpus) {
		cpus = cpus[:own]
	}
	if len(cpus) == 0 || len(cpus) == len(m.cfg.Host.Allowed) {
		return nil
	}
	mask := make([]byte, (cpus[len(cpus)-1]/64+1)*8)
	for _, cpu := range cpus {
		mask[cpu/8] |= 1 << (cpu % 8)
	}
	return mask
}

// moveCPUs gives what runs in s the CPUs that its commands have from now on, where it still has those that they had
// before.
func (m *Manager) moveCPUs(s *Sandbox, before []int) {
	now := m.cpusOf(s)
	if slices.Equal(before, now) {
		return
	}
	from, to := unix.CPUSet{}, unix.CPUSet{}
	for _, cpu := range before {
		from.Set(cpu)
	}
	for _, cpu := range now {
		to.Set(cpu)
	}
	for _, pid := range m.processes(s)[1:] { // PID 1 has all
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			var has unix.CPUSet
			if err != nil || unix.SchedGetaffinity(tid, &has) != nil || has != from {
				continue // it has ended, or asked for others itself
			}
			_ = unix.SchedSetaffinity(tid, &to)
		}
	}
}

// cpuList is a list as the kernel writes it: 0-3,8.
func cpuList(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		last := i
		for last+1 < len(cpus) && cpus[last+1] == cpus[last]+1 {
			last++
		}
		part := strconv.Itoa(cpus[i])
		if last > i {
			part = fmt.Sprintf("%d-%d", cpus[i], cpus[last])
		}
		parts, i = append(parts, part), last+1
	}
	return strings.Join(parts, ",")
}
