package guest_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

func TestExitStatus(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		for _, c := range []struct {
			script string
			code   int
			signal syscall.Signal
		}{
			{"exit 0", 0, 0},
			{"exit 7", 7, 0},
			{"exit 255", 255, 0},
			{"kill -TERM $$", -1, syscall.SIGTERM},
			{"kill -KILL $$", -1, syscall.SIGKILL},
			{"kill -SEGV $$", -1, syscall.SIGSEGV},
			{"kill -PIPE $$", -1, syscall.SIGPIPE},
		} {
			r := s.run(guestapi.Request{Argv: []string{"sh", "-c", c.script}})
			ws := syscall.WaitStatus(r.Status)
			if ws.ExitStatus() != c.code || c.signal != 0 && ws.Signal() != c.signal {
				t.Errorf("%s: status %#x, want code %d signal %d", c.script, r.Status, c.code, c.signal)
			}
		}
	})
}

func TestWho(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		got := s.sh(`echo $(id -u) $(id -g) $PPID $HOME $(pwd) $(umask); ps -o sid= -o pgid= -o pid= -p $$`)
		lines := strings.Split(got, "\n")
		if lines[0] != "0 0 1 /root / 0022" {
			t.Errorf("got %q", lines[0])
		}
		if f := strings.Fields(lines[1]); f[0] != f[2] || f[1] != f[2] {
			t.Errorf("sid, pgid, pid: %q: not a session leader", lines[1])
		}
	})
}
