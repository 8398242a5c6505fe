package meter

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

// cpuFolder is that of the kernel's documentation (ABI/testing/sysfs-devices-system-cpu), below /sys.
const cpuFolder = "devices/system/cpu"

// sysFolders are what any /sys has. Nothing of the host is in them.
var sysFolders = []string{
	"block", "bus", "class", "dev", "devices", "devices/system", cpuFolder, "firmware", "fs", "fs/cgroup", "kernel",
	"module", "power",
}

// MaxCPUFolders bounds the folders of CPUs, which some programs count (stress-ng, old C libraries). They are empty:
// caches and cores are the host's business.
const MaxCPUFolders = 128

// Furnish makes in a folder, which is to be a sandbox's /sys, what is the same in every sandbox.
func (m *Meters) Furnish(at string) error {
	for _, name := range sysFolders {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			return err
		}
	}
	possible := m.cfg.Host.Possible
	for _, cpu := range possible[:min(MaxCPUFolders, len(possible))] {
		if err := os.Mkdir(filepath.Join(at, cpuFolder, "cpu"+strconv.Itoa(cpu)), 0o755); err != nil {
			return err
		}
	}
	all := listCPUs(possible)
	// Allocators have a list for each CPU that is possible, by its number (rseq(2)), and a process may run on any.
	for name, text := range map[string]string{"possible": all, "present": all,
		"kernel_max": strconv.Itoa(len(possible) - 1)} {
		if err := os.WriteFile(filepath.Join(at, cpuFolder, name), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Files are the files below /sys that follow the limits, without the newline at their end.
func (t *Meter) Files() map[string]string {
	files := map[string]string{cpuFolder + "/online": listCPUs(t.cpuList())}
	if path, _ := t.of.Cgroup(); path != "" {
		return files // a mount hides what would be there
	}
	group := map[string]string{"cgroup.controllers": "memory pids", "memory.max": "max", "pids.max": "max"}
	for _, u := range t.of.Record().Unenforced {
		switch {
		case u.Limit == "memory_bytes" && u.Metered:
			group["memory.max"] = plain(u.Value)
		case u.Limit == "pids" && u.Instead != "":
			group["pids.max"] = plain(u.Value)
		}
	}
	for name, text := range group {
		files["fs/cgroup/"+name] = text
	}
	return files
}

// seenCPUs are the CPUs that the commands of a sandbox start on; a program may ask for others (sched_setaffinity(2)).
type seenCPUs struct {
	list []int // in order
	n    int   // as many as its limit of CPUs is worth; 0 is all
	set  string
}

// is reports whether they are chosen, for these limits.
func (c *seenCPUs) is(n int, set string) bool { return c.list != nil && c.n == n && c.set == set }

func (t *Meter) chosen() seenCPUs {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	return t.cpus
}

// cpuList are those of the sandbox: of its cpuset, as many as its limit is worth, and on which the fewest other
// sandboxes are.
func (t *Meter) cpuList() []int {
	l, allowed := t.limits(), t.all.cfg.Host.Allowed
	n := int(math.Ceil(l.CPUs))
	if n <= 0 && l.CPUSet == "" {
		return allowed
	}
	if have := t.chosen(); have.is(n, l.CPUSet) {
		return have.list
	}
	cpus := allowed
	if l.CPUSet != "" {
		set, _ := api.ParseCPUSet(l.CPUSet)
		cpus = slices.DeleteFunc(slices.Clone(cpus), func(cpu int) bool { return !slices.Contains(set, cpu) })
	}
	listed := t.all.cfg.Sandboxes.All()
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.cpus.is(n, l.CPUSet) { // meanwhile
		return t.cpus.list
	}
	if n > 0 && n < len(cpus) {
		cpus = t.leastUsed(cpus, listed)[:n]
		slices.Sort(cpus)
	}
	t.cpus = seenCPUs{cpus, n, l.CPUSet}
	return cpus
}

// leastUsed is cpus in the order of how many of others are on each. Meters.mu is held.
func (t *Meter) leastUsed(cpus []int, others []*Meter) []int {
	on := map[int]int{}
	for _, other := range others {
		if other != t && len(other.cpus.list) < len(t.all.cfg.Host.Allowed) {
			for _, cpu := range other.cpus.list {
				on[cpu]++
			}
		}
	}
	cpus = slices.Clone(cpus)
	slices.SortStableFunc(cpus, func(a, b int) int { return cmp.Compare(on[a], on[b]) })
	return cpus
}

// CPUs is the mask of the CPUs of an exec that may use so many (guestapi.Request), nil where it has all that hutchd
// has.
func (t *Meter) CPUs(most float64) []byte {
	cpus := t.cpuList()
	if own := int(math.Ceil(most)); own > 0 && own < len(cpus) {
		cpus = cpus[:own]
	}
	if len(cpus) == 0 || len(cpus) == len(t.all.cfg.Host.Allowed) {
		return nil
	}
	mask := make([]byte, (cpus[len(cpus)-1]/64+1)*8)
	for _, cpu := range cpus {
		mask[cpu/8] |= 1 << (cpu % 8)
	}
	return mask
}

// moveCPUs gives what runs in the sandbox the CPUs that its commands have from now on, where it still has those that
// they had before.
func (t *Meter) moveCPUs(before []int) {
	now := t.cpuList()
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
	pid1 := t.of.Record().PID
	for _, pid := range t.PIDs() {
		if pid == pid1 {
			continue // it has all
		}
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			var has unix.CPUSet
			if err != nil || unix.SchedGetaffinity(tid, &has) != nil || has != from {
				continue // it has ended, or asked for others itself
			}
			_ = unix.SchedSetaffinity(tid, &to)
		}
	}
}

// listCPUs is a list as the kernel writes it: 0-3,8.
func listCPUs(cpus []int) string {
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
