package probe

import (
	"errors"
	"fmt"
	"strings"
)

// Daemon reports the walls that a running daemon has put around itself (internal/harden), as
// proc_pid_status(5) tells them to everybody, and the kernel whether it is dumpable. hutchd is
// its process; 0 says that none runs.
func Daemon(hutchd, monitor int) Check { return thisHost().daemon(hutchd, monitor) }

func (h host) daemon(hutchd, monitor int) Check {
	const name = "daemon_walls"
	if hutchd == 0 {
		return inconclusive(name, "no daemon runs; the first command starts one")
	}
	var lacks []string
	for _, p := range []struct {
		name string
		pid  int
	}{{"hutchd", hutchd}, {"the monitor", monitor}} {
		file := fmt.Sprintf("/proc/%d/status", p.pid)
		if _, ok := h.read(file); !ok {
			return inconclusive(name, fmt.Sprintf("%s is not process %d of this PID namespace", p.name, p.pid))
		}
		if h.statusOf(file, "NoNewPrivs") != "1" {
			lacks = append(lacks, fmt.Sprintf("%s, process %d, without no_new_privs", p.name, p.pid))
		}
		if h.statusOf(file, "Seccomp") != "2" {
			lacks = append(lacks, fmt.Sprintf("%s, process %d, without a seccomp filter", p.name, p.pid))
		}
	}
	memory := "hutchd's memory goes into no core file"
	switch dumpable, err := h.dumpable(hutchd); {
	case errors.Is(err, errors.ErrUnsupported):
		memory = "whether hutchd's memory goes into core files, this kernel does not tell (before Linux 6.16)"
	case err != nil:
		memory = "whether hutchd's memory goes into core files is not known: " + err.Error()
	case dumpable:
		lacks = append(lacks, fmt.Sprintf("hutchd, process %d, dumpable", hutchd))
	}
	if len(lacks) > 0 {
		return no(name, "there is "+strings.Join(lacks, " and "),
			"hutch rpc system.shutdown; the next command starts a daemon of this build")
	}
	return yes(name, fmt.Sprintf("hutchd, process %d, and the monitor, process %d, have no_new_privs and a seccomp filter; %s", hutchd, monitor, memory))
}
