package sandbox

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// The meter looks at the processes of a sandbox themselves: for their list, and for its
// use where there are no cgroups to count it. What they call themselves is theirs.

// ticks is how many times a second the kernel counts time for users (USER_HZ, which is
// the same for all architectures that matter: proc_pid_stat(5)).
const ticks = 100

const (
	maxListed = 4096
	maxArgv   = 4096 // bytes of a command line
)

// process is one process as /proc shows it.
type process struct {
	pid, inside, ppid int // ppid is outside's, too
	name, state       string
	threads, session  int           // the session is its leader's pid outside
	cpu, waited       time.Duration // its own, and of children that have ended and it has waited for
	start             time.Duration // since boot
	rss, anon, shmem  int64         // bytes
}

// meter reads all processes of the pid namespace of pid1, which comes first. Some may
// end meanwhile.
func meter(pid1 int) []process { return readProcesses(processesOf(pid1)) }

// meterBelow is meter by the walk of descendants, which may miss some that come and go.
func meterBelow(pid1 int) []process {
	pids, known := descendants(pid1)
	if !known { // or PID 1 has ended
		return meter(pid1)
	}
	return readProcesses(append([]int{pid1}, pids...))
}

func readProcesses(pids []int) (all []process) {
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil {
			all = append(all, p)
		}
	}
	return all
}

func readProcess(pid int) (process, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return process{}, err
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return process{}, err
	}
	p := process{pid: pid}
	if err := p.parseStat(string(stat)); err != nil {
		return p, err
	}
	p.parseStatus(string(status))
	return p, nil
}

// parseStat reads proc_pid_stat(5). The name, in parentheses, may hold anything, so
// the last one ends it.
func (p *process) parseStat(text string) error {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return fmt.Errorf("unexpected format of /proc/%d/stat", p.pid)
	}
	p.name = text[open+1 : end]
	f := strings.Fields(text[end+1:]) // from field 3 on
	if len(f) < 20 {
		return fmt.Errorf("unexpected format of /proc/%d/stat", p.pid)
	}
	n := make([]int64, len(f))
	for i := range f {
		n[i], _ = strconv.ParseInt(f[i], 10, 64)
	}
	tick := func(v int64) time.Duration { return time.Duration(v) * time.Second / ticks }
	p.state, p.ppid, p.session, p.threads = f[0], int(n[1]), int(n[3]), int(n[17])
	p.cpu, p.waited, p.start = tick(n[11]+n[12]), tick(n[13]+n[14]), tick(n[19])
	return nil
}

func (p *process) parseStatus(text string) {
	p.inside = p.pid
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) == 0 {
			continue
		}
		kb := func() int64 { n, _ := strconv.ParseInt(f[0], 10, 64); return n << 10 }
		switch name {
		case "NSpid":
			p.inside, _ = strconv.Atoi(f[len(f)-1])
		case "VmRSS":
			p.rss = kb()
		case "RssAnon":
			p.anon = kb()
		case "RssShmem":
			p.shmem = kb()
		}
	}
}

// sum is what processes use together.
func sum(all []process) api.Stats {
	st := api.Stats{Source: api.SourceProcesses, CPU: &api.CPUStats{}, Memory: &api.MemoryStats{},
		PIDs: &api.PIDStats{}}
	for i, p := range all {
		st.CPU.UsedMS += ms(p.cpu + p.waited)
		st.Memory.AnonBytes += p.anon
		st.Memory.ShmemBytes += p.shmem
		if i > 0 { // PID 1's own threads do not count
			st.PIDs.Current += int64(p.threads)
		}
	}
	st.Memory.CurrentBytes = st.Memory.AnonBytes + st.Memory.ShmemBytes
	return st
}

// Processes lists the processes of a sandbox.
func (m *Manager) Processes(ref string) (api.Processes, error) {
	s, pid1, err := m.alive(ref)
	if err != nil {
		return api.Processes{}, err
	}
	all := meter(pid1)
	if len(all) == 0 {
		return api.Processes{}, ended(s)
	}
	inside := map[int]int{}
	for _, p := range all {
		inside[p.pid] = p.inside
	}
	booted := bootTime()
	var list api.Processes
	for _, p := range all {
		if list.Truncated = len(list.Processes) == maxListed; list.Truncated {
			break
		}
		list.Processes = append(list.Processes, api.Process{
			PID: p.inside, HostPID: p.pid, PPID: inside[p.ppid], State: p.state, Threads: p.threads, CPUMS: ms(p.cpu),
			RSSBytes: p.rss, Started: booted.Add(p.start).UTC().Truncate(time.Millisecond),
			Name: strings.ToValidUTF8(p.name, "?"), Argv: argvOf(p.pid),
		})
	}
	slices.SortStableFunc(list.Processes, func(a, b api.Process) int { return cmp.Compare(a.PID, b.PID) })
	return list, nil
}

// argvOf is a process's command line, as far as it is shown.
func argvOf(pid int) []string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	defer f.Close()
	buf := make([]byte, maxArgv)
	n, _ := f.Read(buf)
	text := bytes.TrimRight(buf[:max(0, n)], "\x00")
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.ToValidUTF8(string(text), "?"), "\x00")
}

// bootTime is the moment that starts of processes count from.
func bootTime() time.Time {
	data, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return time.Unix(n, 0)
		}
	}
	return time.Time{}
}
