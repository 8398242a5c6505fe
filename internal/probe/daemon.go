package probe

import (
	"fmt"
	"strings"
)

// Daemon reports the walls that a running daemon has put around itself (internal/harden), as
// proc_pid_status(5) tells them to everybody. pid is hutchd's; 0 says that none runs.
func Daemon(pid int) Check { return thisHost().daemon(pid) }

func (h host) daemon(pid int) Check {
	const name = "daemon_walls"
	if pid == 0 {
		return inconclusive(name, "no daemon runs; the first command starts one")
	}
	file := fmt.Sprintf("/proc/%d/status", pid)
	if _, ok := h.read(file); !ok {
		return inconclusive(name, fmt.Sprintf("hutchd is not process %d of this PID namespace", pid))
	}
	var lacks []string
	if h.statusOf(file, "NoNewPrivs") != "1" {
		lacks = append(lacks, "no_new_privs")
	}
	if h.statusOf(file, "Seccomp") != "2" {
		lacks = append(lacks, "a seccomp filter")
	}
	if len(lacks) > 0 {
		return no(name, fmt.Sprintf("hutchd, process %d, runs without %s", pid, strings.Join(lacks, " and ")), "hutch rpc system.shutdown; the next command starts a daemon of this build")
	}
	return yes(name, fmt.Sprintf("hutchd, process %d, has no_new_privs and a seccomp filter, and nobody but root can trace it", pid))
}
