package guest

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// maxRlimits is more than there are resources (RLIM_NLIMITS is 16).
const maxRlimits = 32

// maxCPUMask is for 8192 CPUs, the most that x86 has (CONFIG_NR_CPUS).
const maxCPUMask = 1024

// check refuses requests that make no sense. hutchd sends none; the checks are
// here so that a mistake there is an answer and not a crash of PID 1.
func check(req *guestapi.Request, fds int) error {
	bad := func(format string, args ...any) error {
		return errBadRequest{req.Exec, req.Op + ": " + fmt.Sprintf(format, args...)}
	}
	wantFDs := 0
	switch req.Op {
	case guestapi.OpSetup:
		wantFDs = 1
		if req.Cgroups {
			wantFDs = 2
		}
	case guestapi.OpGuard:
		if req.Exec == 0 || req.Guard == nil {
			return bad("no number, or no guard")
		}
	case guestapi.OpExec:
		wantFDs = 3
		if req.TTY {
			wantFDs = 1
		}
		if err := checkExec(req); err != nil {
			return bad("%v", err)
		}
	case guestapi.OpSignal:
		if req.Signal < 1 || req.Signal > 64 {
			return bad("signal %d is not between 1 and 64", req.Signal)
		}
	case guestapi.OpStop, guestapi.OpGoOn, guestapi.OpHold, guestapi.OpRelease, guestapi.OpMade:
		if req.Exec == 0 {
			return bad("no number")
		}
	case guestapi.OpKill, guestapi.OpList:
	default:
		return bad("unknown operation")
	}
	if fds != wantFDs {
		return bad("%d fds instead of %d", fds, wantFDs)
	}
	return nil
}

func checkExec(req *guestapi.Request) error {
	switch {
	case req.Exec == 0:
		return fmt.Errorf("no exec id")
	case req.Worker != "" && req.Worker != guestapi.WorkerFiles && req.Worker != guestapi.WorkerShell:
		return fmt.Errorf("unknown worker %.32q", req.Worker)
	case one(len(req.Argv) > 0)+one(req.Command != "")+one(req.Worker != "") != 1:
		return fmt.Errorf("needs either argv or command, or a worker")
	case req.Cwd != "" && !path.IsAbs(req.Cwd):
		return fmt.Errorf("cwd %q is not absolute", req.Cwd)
	case strings.ContainsAny(req.Cgroup, "/\x00") || req.Cgroup == "." || req.Cgroup == "..":
		return fmt.Errorf("cgroup %q is no name", req.Cgroup)
	case len(req.Rlimits) > maxRlimits:
		return fmt.Errorf("%d rlimits, at most %d", len(req.Rlimits), maxRlimits)
	case len(req.CPUs) > maxCPUMask || len(req.CPUs)%8 != 0:
		return fmt.Errorf("cpus of %d bytes, at most %d, by eights", len(req.CPUs), maxCPUMask)
	}
	for _, r := range req.Rlimits {
		if r.Resource < 0 || r.Resource > unix.RLIMIT_RTTIME {
			return fmt.Errorf("rlimit resource %d is not between 0 and %d", r.Resource, unix.RLIMIT_RTTIME)
		}
	}
	for _, list := range [][]string{req.Argv, req.Env, {req.Command, req.Cwd, req.User}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return fmt.Errorf("%.64q contains a NUL byte", s)
			}
		}
	}
	return nil
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lookup returns the value of the first name= in env, as getenv(3) does.
func lookup(env []string, name string) (value string, ok bool) {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}
