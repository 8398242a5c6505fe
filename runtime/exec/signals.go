package exec

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
	MaxSignal   = 64
)

// ParseSignal reads "SIGINT", "INT", "2" or "SIGRTMIN+3", which is what stops systemd in an image.
func ParseSignal(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= MaxSignal {
		return syscall.Signal(n), nil
	}
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	if sig := realTime(upper); sig >= minRealTime && sig <= MaxSignal {
		return syscall.Signal(sig), nil
	}
	return 0, api.Errorf(api.InvalidArgument, "signal: %q is no signal", name).WithField("signal").
		WithHint("use a name such as SIGTERM or SIGRTMIN+3, or 1 to %d", MaxSignal)
}

// realTime is the number of SIGRTMIN, SIGRTMIN+N, SIGRTMAX or SIGRTMAX-N; 0 is none of them.
func realTime(name string) int {
	for _, from := range []struct {
		name string
		sign byte
		at   int
	}{{"SIGRTMIN", '+', minRealTime}, {"SIGRTMAX", '-', MaxSignal}} {
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
