package exec

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// result is exec.run's and exec.wait's result of an exec that has ended, with at
// most limit bytes of each stream.
func (r *Exec) result(limit int64, want api.Encoding) (api.ExecResult, error) {
	res := r.Outcome()
	if len(r.io.Streams) == 0 {
		return res, nil
	}
	if limit == 0 {
		limit = api.DefaultOutputBytes
	}
	out, err := r.io.Streams[0].Excerpt(limit)
	if err != nil {
		return res, err
	}
	errs, err := r.io.Streams[1].Excerpt(limit)
	if err != nil {
		return res, err
	}
	res.Stdout, res.StdoutEncoding = out.Text(want)
	res.Stderr, res.StderrEncoding = errs.Text(want)
	res.Truncated = r.cut || out.Omitted()+errs.Omitted() > 0
	return res, nil
}

// Outcome maps the end of the leader to a result without output.
func (r *Exec) Outcome() api.ExecResult {
	ws := syscall.WaitStatus(r.end.Status)
	res := api.ExecResult{
		Exec: r.id, ExitCode: ws.ExitStatus(), Verdict: r.verdict,
		TimedOut:       r.verdict == api.VerdictTimeoutWall || r.verdict == api.VerdictTimeoutCPU,
		DurationMS:     ms(r.took),
		Killed:         r.end.Killed,
		StdoutEncoding: api.Text, StderrEncoding: api.Text,
	}
	if res.Killed == nil {
		res.Killed = []int{}
	}
	if ws.Signaled() {
		res.ExitCode = 128 + int(ws.Signal())
		res.Signal = unix.SignalName(ws.Signal())
	}
	res.Limit = r.met
	res.Denials, res.Failures = refusals.Part(r.denials)
	res.Unguarded, res.Policy = r.unguarded, r.policy
	argv := append(slices.Clone(r.params.Argv), r.params.Command)
	res.Hint = cmp.Or(r.s.Hint(res.ExitCode, argv...), r.why)
	res.Peaks = api.Peaks{MemoryBytes: r.memory, CPUMS: ms(r.cpu), DiskBytes: r.disk.Bytes, Inodes: r.disk.Inodes}
	return res
}

// notRun maps a failed start for exec.run: what the command line made impossible
// is a result, with the exit code that shells use; the rest is an error.
func notRun(ctx context.Context, r *Exec, err error) (api.ExecResult, error) {
	if r != nil && errors.Is(err, ErrTimeout) {
		r.end, r.verdict = guestapi.Event{Status: int(unix.SIGKILL)}, api.VerdictTimeoutWall
		return r.Outcome(), nil
	}
	code, err := StartError(ctx, err)
	if code == 0 {
		return api.ExecResult{}, err
	}
	r.verdict = api.VerdictNotRun
	res := r.Outcome()
	res.ExitCode, res.Error = code, err.Error()
	return res, nil
}

// StartError makes a failed start an error that users can act on. code is the exit
// code that shells use for a command that cannot be run, else 0.
func StartError(ctx context.Context, err error) (code int, _ error) {
	var se *guestapi.StartError
	if errors.Is(err, ErrTimeout) {
		return 0, api.Errorf(api.DeadlineExceeded, "the command was not started in time").
			WithHint("the sandbox is overloaded; give it a longer timeout_s")
	}
	if !errors.As(err, &se) {
		return 0, withCause(ctx, err)
	}
	switch se.Reason {
	case guestapi.ReasonNotFound:
		return 127, api.Errorf(api.NotFound, "%s", se.Message).WithField("argv").
			WithHint("name a program that is in the sandbox; PATH decides where it is looked for")
	case guestapi.ReasonNotExecutable:
		return 126, api.Errorf(api.FailedPrecondition, "%s", se.Message).WithField("argv").
			WithHint("make it executable, or run it with its interpreter")
	case guestapi.ReasonBadUser:
		return 0, api.Errorf(api.InvalidArgument, "%s", se.Message).WithField("user").
			WithHint("name a user of the image's /etc/passwd, or ids that the sandbox has (see /proc/self/uid_map inside)")
	case guestapi.ReasonBadCwd:
		hint := "choose a folder that exists in the sandbox"
		if errors.Is(se, unix.EACCES) {
			hint = "run it as a user who may enter it, such as --user 0, or let others: chmod o+x"
		}
		return 0, api.Errorf(api.InvalidArgument, "%s", se.Message).WithField("cwd").WithHint("%s", hint)
	case guestapi.ReasonTooBig:
		return 0, api.Errorf(api.InvalidArgument, "%s", se.Message).WithField("argv").
			WithHint("pass large data on standard input or in a file; command, which the shell runs, can be longer")
	case guestapi.ReasonNoProcess:
		return 0, api.Errorf(api.ResourceExhausted, "%s", se.Message).
			WithHint("end some processes in the sandbox, or raise limits.pids")
	}
	return 0, api.Errorf(api.Internal, "%s", se.Message).WithHint("the daemon's log may say more")
}

// Tail is the end of what an exec has written so far, at most so many bytes of each stream, as text.
func (r *Exec) Tail(most int64) string {
	var all strings.Builder
	for _, st := range r.io.Streams {
		data, _, err := st.Read(max(0, st.Len()-most), most)
		if err == nil {
			all.WriteString(strings.ToValidUTF8(string(data), "?"))
		}
	}
	return strings.TrimSpace(all.String())
}

// withCause prefers the reason for a cancellation to what it broke.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
