package guest_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// started is a command that says "up" when it is ready to be killed, and a pipe
// that ends when it and all it started are gone.
func (s *sandbox) started(script string) (*guestapi.Exec, *os.File) {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = r.Close() })
	null := open(s.t, "/dev/null")
	e, err := s.Start(s.t.Context(), guestapi.Request{
		Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"},
		Rlimits: []guestapi.Rlimit{{Resource: unix.RLIMIT_NPROC, Soft: 200, Hard: 200}}, // for a fork bomb
	}, []*os.File{null, w, null})
	_ = w.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	up := make([]byte, 3)
	if _, err := io.ReadFull(r, up); err != nil || string(up) != "up\n" {
		s.t.Fatalf("%s: %q, %v", script, up, err)
	}
	return e, r
}

// ends tells whether everybody who held the other end of r is gone.
func ends(r *os.File, d time.Duration) bool {
	_ = r.SetReadDeadline(time.Now().Add(d))
	_, err := r.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestSignal(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		e, _ := s.started("trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done")
		if err := e.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ev, err := e.Wait(within(t, 20*time.Second))
		if err != nil || syscall.WaitStatus(ev.Status).ExitStatus() != 9 || len(ev.Killed) != 0 {
			t.Errorf("%+v, %v", ev, err)
		}
		if err := e.Signal(syscall.SIGTERM); err != nil { // it is over
			t.Error(err)
		}
	})
}

// Kill ends an exec's whole tree, however its processes have hidden. A shell that
// cannot fork ends by itself: it never leads the fork bomb.
func TestKill(t *testing.T) {
	for name, script := range map[string]string{
		"alone":      "echo up; exec sleep 1000",
		"children":   "sleep 1000 & (sleep 1000; :) & echo up; sleep 1000",
		"session":    "setsid sh -c 'sleep 1000 & echo up; sleep 1000' & sleep 1000",
		"orphan":     "(sleep 1000 &) ; echo up; sleep 1000",
		"daemon":     "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo up; exec sleep 1000",
		"deaf":       "trap '' TERM HUP INT; (trap '' TERM; sleep 1000) & echo up; sleep 1000",
		"stopped":    "sleep 1000 & kill -STOP $!; echo up; kill -STOP $$",
		"forks":      "f() { sleep 0.001 & wait; (f &) ; }; f & f & echo up; sleep 1000",
		"fork bomb":  "echo up; f() { while :; do (f) & (f & f &); done; }; f & exec sleep 1000",
		"many":       "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid sleep 1000 &); sleep 1000 & done; echo up; sleep 1000",
		"after exec": "sleep 1000 & echo up; exec sh -c 'sleep 1000 & sleep 1000'",
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, s *sandbox) {
				e, r := s.started(script)
				if err := e.Kill(); err != nil {
					t.Fatal(err)
				}
				ev, err := e.Wait(within(t, 30*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				if ws := syscall.WaitStatus(ev.Status); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
					t.Errorf("status %#x", ev.Status)
				}
				if len(ev.Killed) == 0 || ev.Killed[0] != e.PID {
					t.Errorf("killed %v, leader %d", ev.Killed, e.PID)
				}
				if !ends(r, 10*time.Second) {
					t.Errorf("something is left after killing %v:\n%s", ev.Killed,
						s.sh("ps -eo pid,ppid,sid,stat,args"))
				}
			})
		})
	}
}

// sleepers asserts how many `sleep 1000` there are. A process that was forked may
// not have become one yet, for which there is no event: so it counts again.
func (s *sandbox) sleepers(want string) {
	s.t.Helper()
	got := ""
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if got = s.sh("ps -eo args | grep -c '[s]leep 1000'"); got == want {
			return
		}
	}
	s.t.Errorf("%s processes are left, want %s:\n%s", got, want, s.sh("ps -eo pid,ppid,sid,stat,args"))
}

// A kill spares other execs and what they left behind.
func TestKillSparesOthers(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		_, older := s.started("(setsid sleep 1000 &); echo up; exec sleep 1000")
		_, left := s.started("(setsid sleep 1000 &); sleep 1000 & echo up")
		e, r := s.started("sleep 1000 & echo up; sleep 1000")
		_, younger := s.started("(setsid sleep 1000 &); echo up; exec sleep 1000")
		if err := e.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Wait(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		if !ends(r, 10*time.Second) {
			t.Error("something of the killed exec is left")
		}
		s.sh("true") // PID 1 has done what it does after a kill
		for name, other := range map[string]*os.File{"older": older, "left": left, "younger": younger} {
			if ends(other, time.Millisecond) {
				t.Errorf("%s exec was killed as well", name)
			}
		}
		s.sleepers("6")
	})
}

// An exec that has ended hides no orphan of the next one from a kill, and what was
// killed is no zombie for the one after that.
func TestKillNext(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		for range 20 {
			s.sh("true")
			e, r := s.started("(setsid sleep 1000 &); echo up; exec sleep 1000")
			if err := e.Kill(); err != nil {
				t.Fatal(err)
			}
			ev, err := e.Wait(within(t, 30*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if seen := s.sh("n=; for f in /proc/[0-9]*/stat; do read -r line <$f && n=\"$n $line\\n\"; done; printf \"$n\""); strings.Contains(seen, "(sleep)") {
				t.Errorf("behind a kill of %v:\n%s", ev.Killed, seen)
			}
			if !ends(r, 10*time.Second) {
				t.Fatalf("something is left after killing %v", ev.Killed)
			}
		}
	})
}

// Background children outlive their leader, until their exec is killed.
func TestBackground(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		e, r := s.started("sleep 1000 & (setsid sleep 1000 &); echo up; exit 4")
		ev, err := e.Wait(within(t, 20*time.Second))
		if err != nil || syscall.WaitStatus(ev.Status).ExitStatus() != 4 {
			t.Fatalf("%+v, %v", ev, err)
		}
		s.sleepers("2")
		if err := e.Kill(); err != nil {
			t.Fatal(err)
		}
		if !ends(r, 20*time.Second) {
			t.Errorf("left after kill:\n%s", s.sh("ps -eo pid,ppid,sid,stat,args"))
		}
	})
}

// Orphans are reaped, also those that nobody knows.
func TestReapOrphans(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		s.sh("for i in $(seq 50); do (setsid true &); (sh -c 'exit 3' &); done")
		// The orphans have written nothing and closed stdout, so they are dead; PID
		// 1 hears of all of them, but when is its own affair.
		ctx := within(t, 20*time.Second)
		for {
			got := s.sh("ps -eo stat= | grep -c Z || true")
			if got == "0" {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s zombies:\n%s", got, s.sh("ps -ef"))
			}
		}
	})
}

// A debugger cannot keep a killed exec from ending.
func TestKillTraced(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		e, _ := s.started("echo up; exec sleep 1000")
		tracer, _ := s.started("exec /self trace " + itoa(e.PID))
		if err := e.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, ended := range []*guestapi.Exec{e, tracer} {
			if ev, err := ended.Wait(within(t, 20*time.Second)); err != nil {
				t.Fatalf("%+v, %v", ev, err)
			}
		}
	})
}
