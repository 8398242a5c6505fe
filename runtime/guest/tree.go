package guest

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// process is what /proc/pid/stat says of one, in this pid namespace.
type process struct {
	pid, ppid int
	pgrp, sid int // process group and session
	state     byte
	start     uint64 // clock ticks since boot
}

// dead is a process that has ended and waits for its parent.
func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// readProcesses lists the processes of the pid namespace. Those that end
// meanwhile are left out.
func readProcesses() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			list = append(list, p)
		}
	}
	return list, nil
}

func readProcess(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	return parseStat(data)
}

// parseStat parses /proc/pid/stat (proc_pid_stat(5)). The name in parentheses
// is the process's own choice and may hold spaces and parentheses.
func parseStat(data []byte) (process, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return process{}, fmt.Errorf("stat %.64q: no name in parentheses", data)
	}
	f := strings.Fields(string(data[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 || !unicode.IsLetter(rune(f[0][0])) {
		return process{}, fmt.Errorf("stat %.64q: no state and 19 fields after the name", data)
	}
	p := process{state: f[0][0]}
	var errs [5]error
	p.pid, errs[0] = strconv.Atoi(string(bytes.TrimSpace(data[:open])))
	p.ppid, errs[1] = strconv.Atoi(f[1])
	p.pgrp, errs[2] = strconv.Atoi(f[2])
	p.sid, errs[3] = strconv.Atoi(f[3])
	p.start, errs[4] = strconv.ParseUint(f[19], 10, 64)
	for _, err := range errs {
		if err != nil {
			return process{}, fmt.Errorf("stat %.64q: %w", data, err)
		}
	}
	return p, nil
}

// family is what is known of an exec when its members are looked for.
type family struct {
	origin
	over   bool     // the leader has been reaped
	others []origin // the other execs of which something may be left
}

// origin is where the processes of an exec come from.
type origin struct {
	leader int    // pid of the leader, also its session
	born   uint64 // just before its fork, clock ticks since boot
}

// halfPIDs is half of the smallest pid_max in use, 32768.
const halfPIDs = 1 << 14

// older tells whether the exec is older than p, so that p may come from it. In
// the same tick of 10 ms the pids decide: they count up, and start again from
// below at some point; a leap down by half of all pids may be that.
func (o origin) older(p process) bool {
	if p.start != o.born {
		return p.start > o.born
	}
	return p.pid > o.leader || p.pid < o.leader-halfPIDs
}

// members lists the living processes of the exec:
//   - the leader, and the processes of its session;
//   - their descendants, and the processes of the sessions these have made (a
//     session is joined by birth only, so all of it is the exec's);
//   - orphans in sessions of their own that only this exec can have left: no
//     other exec is as old as they are.
//
// Not found: an orphan in a session of its own while another exec that is older
// than it may have left it just as well.
func (f family) members(procs []process) []process {
	in := map[int]bool{}
	sessions := map[int]bool{f.leader: true}
	taken := slices.ContainsFunc(procs, func(p process) bool { return p.pid == f.leader })
	if f.over && taken {
		// The pid is somebody else's now, which the kernel allows only when
		// nothing is left of the session of that number.
		delete(sessions, f.leader)
	}
	for _, p := range procs {
		if f.onlyMine(p) {
			in[p.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range procs {
			if p.pid == 1 || in[p.pid] || !sessions[p.sid] && !in[p.ppid] {
				continue
			}
			in[p.pid], grown = true, true
		}
		for _, p := range procs {
			if in[p.pid] && p.sid > 1 && !sessions[p.sid] {
				sessions[p.sid], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(procs), func(p process) bool { return !in[p.pid] || p.dead() })
}

// onlyMine tells whether p is an orphan that no other exec can have left.
func (f family) onlyMine(p process) bool {
	if p.ppid != 1 || p.pid == f.leader || !f.older(p) {
		return false
	}
	for _, o := range f.others {
		if p.pid == o.leader || p.sid == o.leader || o.older(p) {
			return false
		}
	}
	return true
}
