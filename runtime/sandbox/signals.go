package sandbox

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// The real-time signals as programs know them: libc keeps the first two (signal(7)).
const (
	minRealTime = 34
	maxSignal   = 64
)

// parseSignal reads "SIGINT", "INT", "2" or "SIGRTMIN+3", which is what stops systemd in an image.
func parseSignal(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= maxSignal {
		return syscall.Signal(n), nil
	}
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	if sig := realTime(upper); sig >= minRealTime && sig <= maxSignal {
		return syscall.Signal(sig), nil
	}
	return 0, api.Errorf(api.InvalidArgument, "signal: %q is no signal", name).WithField("signal").
		WithHint("use a name such as SIGTERM or SIGRTMIN+3, or 1 to %d", maxSignal)
}

// realTime is the number of SIGRTMIN, SIGRTMIN+N, SIGRTMAX or SIGRTMAX-N; 0 is none of them.
func realTime(name string) int {
	for _, from := range []struct {
		name string
		sign byte
		at   int
	}{{"SIGRTMIN", '+', minRealTime}, {"SIGRTMAX", '-', maxSignal}} {
		rest, ok := strings.CutPrefix(name, from.name)
		if ok && rest == "" {
			return from.at
		}
		if ok && rest[0] == from.sign {
			n, err := strconv.Atoi(rest)
			if err != nil {
				return 0
			}
			return from.at + n
		}
	}
	return 0
}

// stopSignal is what asks an exec of s to end: its image's, or the spec's, unless it is ours.
func (s *Sandbox) stopSignal(r *running) syscall.Signal {
	if r.kept != "" || r.shell != "" {
		return unix.SIGTERM
	}
	sig, err := parseSignal(s.Record().StopSignal)
	if err != nil { // none, or of an image that has it wrong
		return unix.SIGTERM
	}
	return sig
}

// checkSpec is Spec.Validate, and refuses a stop signal that is none.
func checkSpec(sp *api.Spec) error {
	if err := sp.Validate(); err != nil || sp.StopSignal == "" {
		return err
	}
	if _, err := parseSignal(sp.StopSignal); err != nil {
		return api.Errorf(api.InvalidArgument, "stop_signal: %q is no signal", sp.StopSignal).WithField("stop_signal").
			WithHint("use a name such as SIGINT or SIGRTMIN+3, or 1 to %d", maxSignal)
	}
	return nil
}
