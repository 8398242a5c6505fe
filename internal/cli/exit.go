package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// The exit codes that are hutch's own; every other one is the command's. They
// are docker's and timeout(1)'s, so that scripts written for those keep working.
const (
	ExitTimeout       = 124 // the command ran into its timeout
	ExitHutch         = 125 // hutch itself failed: nothing is known of the command
	ExitNotExecutable = 126 // the command was found, but cannot be executed
	ExitNotFound      = 127 // the command was not found
	ExitSignal        = 128 // + n: the command was killed by signal n
)

// ExitCodes is the table above as help texts show it.
const ExitCodes = `Exit codes:
  the command's own; 124 timeout; 125 hutch itself failed;
  126 not executable; 127 not found; 128+n killed by signal n`

// Exit is an error that decides the exit code. Without Err hutch ends silently:
// everything worth saying was said by the command.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// ExitCode maps what a verb returned to hutch's exit code. It is the only place
// that does, together with Outcome.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var exit *Exit
	if errors.As(err, &exit) {
		return exit.Code
	}
	return ExitHutch
}

// Outcome is what the end of a command means for hutch: nil when it ended well,
// else an Exit with its code, and an Err where the command could not tell the
// user why it ended.
func Outcome(res *api.ExecResult) error {
	exit := &Exit{Code: res.ExitCode}
	switch res.Verdict {
	case api.VerdictTimeoutWall:
		exit.Code = ExitTimeout
		exit.Err = api.Errorf(api.DeadlineExceeded, "the command was killed at its timeout, after %s",
			formatMS(res.DurationMS)).WithHint("--timeout SECONDS gives it more time")
	case api.VerdictTimeoutCPU:
		exit.Code = ExitTimeout
		exit.Err = api.Errorf(api.DeadlineExceeded, "the command has used up its CPU time, %s",
			formatMS(res.Peaks.CPUMS)).WithHint("--cpu-time SECONDS gives it more")
	case api.VerdictNotRun:
		// The daemon tells 126 from 127; what it leaves open is hutch's failure.
		if exit.Code < ExitHutch || exit.Code > ExitNotFound {
			exit.Code = ExitHutch
		}
		exit.Err = errors.New(res.Error)
	case api.VerdictOOM:
		exit.Err = api.Errorf(api.ResourceExhausted, "the command was killed: the sandbox is out of memory%s",
			bound(res.Limit, Bytes)).
			WithHint("-m SIZE gives it more memory")
	case api.VerdictPIDs:
		exit.Err = api.Errorf(api.ResourceExhausted, "the sandbox had no process left for the command%s",
			bound(res.Limit, func(n int64) string { return strconv.FormatInt(n, 10) })).
			WithHint("--pids-limit N gives it more")
	case api.VerdictOutput:
		exit.Err = api.Errorf(api.ResourceExhausted, "the command wrote more than it may").
			WithHint("--output-limit SIZE gives it more")
	case api.VerdictDisk:
		exit.Err = api.Errorf(api.ResourceExhausted, "the command was killed: a file grew over its limit").
			WithHint("--ulimit fsize=BYTES gives it more")
		for _, d := range res.Denials {
			if d.Kind == "limit" {
				exit.Err = api.Errorf(api.ResourceExhausted, "the sandbox has reached its limit of disk space: %s, %s",
					d.Why, d.Rule).
					WithHint("%s", d.HowToAllow)
			}
		}
		if exit.Code == 0 { // it had ended before anybody noticed
			exit.Code = ExitHutch
		}
	case api.VerdictDenied:
		known := api.Errorf(api.PermissionDenied, "the command was killed by a seccomp filter (SIGSYS)")
		if exit.Err = known; res.Hint == "" { // which says what of the caller's own profile kills
			exit.Err = known.WithHint("hutch's profiles kill only what calls the kernel as another architecture does: run a program " +
				"that is made for this machine, or look for a filter of the program's own")
		}
	case api.VerdictSandbox:
		exit.Err = api.Errorf(api.FailedPrecondition, "the sandbox ended before the command did")
		if exit.Code == 0 {
			exit.Code = ExitHutch
		}
	}
	if res.TimedOut {
		exit.Code = ExitTimeout
	}
	if exit.Code == 0 && exit.Err == nil {
		return nil
	}
	return exit
}

// bound says which limit that was.
func bound(l *api.LimitHit, number func(int64) string) string {
	switch {
	case l == nil || l.Limit == 0:
		return ""
	case l.Peak == 0:
		return fmt.Sprintf(" (limits.%s of the %s: %s)", l.Name, l.Of, number(l.Limit))
	}
	return fmt.Sprintf(" (limits.%s of the %s: %s, peak %s)", l.Name, l.Of, number(l.Limit), number(l.Peak))
}

// StartFailure gives the failure of exec.start the exit code that Outcome gives
// exec.run's.
func StartFailure(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Field != "argv" {
		return err
	}
	switch e.Code {
	case api.NotFound:
		return &Exit{Code: ExitNotFound, Err: err}
	case api.FailedPrecondition:
		return &Exit{Code: ExitNotExecutable, Err: err}
	}
	return err
}

// Usage is an error in how hutch was called; command is the verb's whole name,
// e.g. "hutch run".
func Usage(command string, err error) error {
	e := api.Errorf(api.InvalidArgument, "%s", strings.TrimSpace(err.Error())).WithHint("%s --help", command)
	if _, verb, ok := strings.Cut(command, " "); ok {
		e.Op = verb
	}
	return e
}
