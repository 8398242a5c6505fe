package exec

import (
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestParseSignal(t *testing.T) {
	for name, want := range map[string]syscall.Signal{
		"SIGINT": syscall.SIGINT, "int": syscall.SIGINT, "2": syscall.SIGINT, "TERM": syscall.SIGTERM, "64": 64,
		"SIGRTMIN": 34, "SIGRTMIN+3": 37, "rtmin+30": 64,
		"SIGRTMAX": 64, "RTMAX-1": 63, "SIGQUIT": syscall.SIGQUIT,
	} {
		if got, err := ParseSignal(name); err != nil || got != want {
			t.Errorf("%q is %d, %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"", "2 ", "0", "65", "-1", "SIGNO", "SIGRTMIN+31", "RTMIN-1", "RTMAX+1", "RTMAX-31",
		"RTMIN+", "RTMIN+x", "RTMIN3"} {
		if got, err := ParseSignal(name); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%q is %d, %v", name, got, err)
		}
	}
}
