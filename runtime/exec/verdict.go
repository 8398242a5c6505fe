package exec

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// evidence is what is known of the end of an exec whose leader ended by itself.
type evidence struct {
	status syscall.WaitStatus // of the leader
	bounds bounds
	cpu    time.Duration // used by the tree, or by what the leader has waited for
	output int64         // bytes written to captured streams

	// While it ran the sandbox had a process killed for memory, a fork refused.
	oom, pids bool
	// alone says that no other exec ran in the sandbox meanwhile.
	alone bool
	disk  bool // the sandbox has reached its limit of disk space meanwhile
}

// verdict says how the exec ended. A limit that was exceeded goes before how the
// leader took it: a shell whose child was killed ends as if nothing had been, and
// a program that was told to end may do so with any code.
func (e *evidence) verdict() api.Verdict {
	failed := e.status != 0
	switch {
	case e.oom && failed && (e.alone || e.died(unix.SIGKILL)):
		return api.VerdictOOM
	case e.bounds.cpu > 0 && (e.cpu >= e.bounds.cpu || e.died(unix.SIGXCPU)):
		return api.VerdictTimeoutCPU
	case e.bounds.output > 0 && e.output > e.bounds.output:
		return api.VerdictOutput
	case e.disk, e.bounds.fsize && e.died(unix.SIGXFSZ):
		return api.VerdictDisk
	case e.pids && failed:
		return api.VerdictPIDs
	case e.status.Signaled() && e.status.Signal() == unix.SIGSYS:
		return api.VerdictDenied
	case e.status.Signaled():
		return api.VerdictSignal
	case failed:
		return api.VerdictNonzero
	}
	return api.VerdictOK
}

// died tells whether the leader died of sig, or, as a shell, says so of its child.
func (e *evidence) died(sig syscall.Signal) bool {
	return e.status.Signaled() && e.status.Signal() == sig || e.status.ExitStatus() == 128+int(sig)
}
