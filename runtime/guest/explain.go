package guest

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// failed is failure for an exec whose id the caller fills in.
func failed(reason guestapi.Reason, err error, what string) *guestapi.Event {
	ev := failure(0, reason, err, what)
	return &ev
}

// explain turns the stub's verdict into the event for hutchd.
func explain(at stage, errno unix.Errno, req *guestapi.Request) *guestapi.Event {
	argv0 := shell()
	if len(req.Argv) > 0 {
		argv0 = req.Argv[0]
	}
	switch at {
	case stageExec:
		if errno == unix.E2BIG {
			return failed(guestapi.ReasonTooBig, errno, tooBig(req))
		}
		return failed(execReason(errno), errno, fmt.Sprintf("execute %.256q", argv0))
	case stageChdir:
		return failed(guestapi.ReasonBadCwd, errno, fmt.Sprintf("enter %.256q as user %q", req.Cwd, req.User))
	case stageGroups, stageGID, stageUID:
		return failed(guestapi.ReasonBadUser, errno, fmt.Sprintf("become user %q", req.User))
	case stageRlimit:
		return failed(guestapi.ReasonInternal, errno, fmt.Sprintf("set rlimits %v", req.Rlimits))
	case stageBounding:
		return failed(guestapi.ReasonInternal, errno, "drop the capability bounding set (hutch-init needs CAP_SETPCAP)")
	}
	what, ok := stageNames[at]
	if !ok {
		what = fmt.Sprintf("exec stub, stage %d", at)
	}
	return failed(guestapi.ReasonInternal, errno, what)
}

// tooBig says what execve(2) found too big: one argument, or all that there is.
func tooBig(req *guestapi.Request) string {
	total := len(req.Command)
	for i, arg := range append(req.Argv, req.Env...) {
		if len(arg) > maxArg && i < len(req.Argv) {
			return fmt.Sprintf("argument %d has %d bytes, and an argument can have %d", i, len(arg), maxArg)
		}
		if len(arg) > maxArg {
			name, _, _ := strings.Cut(arg, "=")
			return fmt.Sprintf("the variable %.64q has %d bytes with its name, and it can have %d", name,
				len(arg), maxArg)
		}
		total += len(arg) + 1
	}
	return fmt.Sprintf("arguments and environment have %d bytes, and together they can have a quarter of the limit of the stack (ulimit -s), usually 2 MiB", total)
}

var stageNames = map[stage]string{
	stageConfig:  "exec stub: read its config",
	stageSignals: "reset signals",
	stageCaps:    "set capabilities",
	stageSeccomp: "install the exec seccomp filter",
}

// execReason classifies errno of execve(2). 127 is for what does not exist, 126
// for what exists and cannot be run, as shells have it.
func execReason(errno unix.Errno) guestapi.Reason {
	switch {
	case errors.Is(errno, unix.ENOENT), errno == unix.ENOTDIR, errno == unix.ENAMETOOLONG:
		return guestapi.ReasonNotFound
	case errno == unix.E2BIG:
		return guestapi.ReasonTooBig
	case errno == unix.EAGAIN, errno == unix.ENOMEM:
		return guestapi.ReasonNoProcess
	}
	return guestapi.ReasonNotExecutable
}
