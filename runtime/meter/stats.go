package meter

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// Stats says what a sandbox uses.
func (m *Meters) Stats(ref string) (api.Stats, error) {
	t, pid1, err := m.cfg.Sandboxes.Living(ref)
	if err != nil {
		return api.Stats{}, err
	}
	var st api.Stats
	if group, _ := t.of.Cgroup(); group == "" {
		all := procs.Of(pid1)
		if len(all) == 0 {
			return st, t.of.Ended()
		}
		st = sum(all)
	} else {
		if st, err = m.cfg.Cgroups.Stats(group); err != nil {
			return st, t.of.Ended()
		}
		if p, err := procs.Read(pid1); err == nil && st.PIDs != nil {
			// PID 1's own threads do not count, and the peak has as many of them.
			st.PIDs.Current = max(0, st.PIDs.Current-int64(p.Threads))
			st.PIDs.Peak = max(0, st.PIDs.Peak-int64(p.Threads))
		}
	}
	rec := t.of.Record()
	limits := &rec.Limits
	st.Sandbox, st.Name, st.Time = t.of.ID(), rec.Name, time.Now().UTC()
	st.Execs = t.of.Commands().Len()
	if st.CPU != nil {
		st.CPU.Limit = limits.CPUs
	}
	if st.Memory != nil {
		st.Memory.LimitBytes = limits.MemoryBytes
	}
	if st.PIDs != nil {
		st.PIDs.Limit = limits.PIDs
	}
	if t.disk != nil {
		t.gauge(longEnough, diskuse.Usage{})
		used := t.disk.use()
		st.Disk = &api.DiskStats{UsedBytes: used.Bytes, LimitBytes: limits.DiskBytes, Inodes: used.Inodes}
	}
	return st, nil
}

// sum is what processes use together.
func sum(all []procs.Process) api.Stats {
	st := api.Stats{Source: api.SourceProcesses, CPU: &api.CPUStats{}, Memory: &api.MemoryStats{},
		PIDs: &api.PIDStats{}}
	for i, p := range all {
		st.CPU.UsedMS += ms(p.CPU + p.Waited)
		st.Memory.AnonBytes += p.Anon
		st.Memory.ShmemBytes += p.Shmem
		if i > 0 { // PID 1's own threads do not count
			st.PIDs.Current += int64(p.Threads)
		}
	}
	st.Memory.CurrentBytes = st.Memory.AnonBytes + st.Memory.ShmemBytes
	return st
}

// maxListed bounds the list of the processes of a sandbox.
const maxListed = 4096

// Processes lists the processes of a sandbox.
func (m *Meters) Processes(ref string) (api.Processes, error) {
	t, pid1, err := m.cfg.Sandboxes.Living(ref)
	if err != nil {
		return api.Processes{}, err
	}
	all := procs.Of(pid1)
	if len(all) == 0 {
		return api.Processes{}, t.of.Ended()
	}
	inside := map[int]int{}
	for _, p := range all {
		inside[p.PID] = p.Inside
	}
	booted := procs.Booted()
	var list api.Processes
	for _, p := range all {
		if list.Truncated = len(list.Processes) == maxListed; list.Truncated {
			break
		}
		list.Processes = append(list.Processes, api.Process{
			PID: p.Inside, HostPID: p.PID, PPID: inside[p.PPID], State: p.State, Threads: p.Threads, CPUMS: ms(p.CPU),
			RSSBytes: p.RSS, Started: booted.Add(p.Start).UTC().Truncate(time.Millisecond),
			Name: strings.ToValidUTF8(p.Name, "?"), Argv: procs.Argv(p.PID),
		})
	}
	slices.SortStableFunc(list.Processes, func(a, b api.Process) int { return cmp.Compare(a.PID, b.PID) })
	return list, nil
}

// PIDs lists the host pids of the sandbox's processes, PID 1 first, for who is told which were killed. A cgroup lists
// them at once. To ask /proc about each thread of a PID 1 takes as long again when they die, as what was looked up
// there has to be forgotten then: a quarter of a removal, which is left out where there can be no other process.
func (t *Meter) PIDs() []int {
	pid1 := t.of.Record().PID
	if pid1 == 0 {
		return []int{}
	}
	if group, _ := t.of.Cgroup(); group != "" {
		pids, err := t.all.cfg.Cgroups.Processes(group)
		if i, found := slices.BinarySearch(pids, pid1); err == nil && found {
			return append([]int{pid1}, slices.Delete(pids, i, i+1)...)
		}
	}
	if !t.of.Used() && !procs.HasOrphans(t.all.cfg.Kernel.Proc(pid1), pid1) {
		return []int{pid1}
	}
	pids, known := procs.Descendants(pid1)
	if !known {
		return procs.IDs(pid1)
	}
	slices.Sort(pids)
	return append([]int{pid1}, pids...)
}
