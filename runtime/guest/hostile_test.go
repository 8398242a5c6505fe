package guest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// No signal from inside harms PID 1.
func TestSignalImmunity(t *testing.T) {
	eachWithoutLandlock(t, func(t *testing.T, s *sandbox) {
		for range 3 {
			r := s.run(guestapi.Request{Argv: []string{"/self", "signal-storm"}})
			if r.out != "sent\n" || r.Status != 0 {
				t.Fatalf("status %#x, stdout %q, stderr %q", r.Status, r.out, r.errOut)
			}
		}
		if got := s.sh("echo alive"); got != "alive" {
			t.Errorf("got %q", got)
		}
		// All but SIGCHLD, SIGURG, SIGKILL and SIGSTOP.
		if got := s.sh(`grep -E 'SigIgn|SigCgt' /proc/1/status`); got != "SigIgn:\tffffffffffbafeff\nSigCgt:\t0000000000410000" {
			t.Errorf("PID 1 has default effects, or handles more than SIGCHLD and SIGURG: %q", got)
		}
	})
}

// Nor does one that comes while PID 1 forks, when its main thread may block it and others
// do not.
func TestSignalImmunityForking(t *testing.T) {
	eachWithoutLandlock(t, func(t *testing.T, s *sandbox) {
		for range 3 {
			_, storm, err := s.start(guestapi.Request{Argv: []string{"/self", "signal-storm"}})
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if r := s.run(guestapi.Request{Argv: []string{"true"}}); r.Status != 0 {
					t.Fatalf("status %#x", r.Status)
				}
			}
			if r := storm(); r.out != "sent\n" || r.Status != 0 {
				t.Fatalf("status %#x, stdout %q, stderr %q", r.Status, r.out, r.errOut)
			}
		}
	})
}

// PID 1 is out of reach for sandbox root, which may do the same to others.
func TestInitIsClosed(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		got := s.sh("/self attack-init; true")
		want := fmt.Sprintf("true %[1]d %[1]d %[1]d %[2]d\nfalse 0 0 0 0", int(unix.EACCES), int(unix.EPERM))
		if got != want {
			t.Errorf("errnos of environ, fd, mem and ptrace, PID 1 and twin:\n%s\nwant\n%s", got, want)
		}
	})
}

// Requests that are none are answered or ignored, and PID 1 goes on.
func TestMalformedRequests(t *testing.T) {
	s, peer := newRawSandbox(t, singleMap)
	null := open(t, "/dev/null")
	for _, c := range []struct {
		packet string
		fds    int
		want   string
	}{
		{"\x00\xff", 0, "decode"},
		{"[]", 0, "decode"},
		{`{}`, 0, "unknown operation"},
		{`{"op":"root","exec":3}`, 0, "unknown operation"},
		{`{"op":"exec","exec":3,"argv":["true"]}`, 3, "before setup"},
		{`{"op":"exec","exec":3,"argv":["true"]}`, 2, "2 fds instead of 3"},
		{`{"op":"exec","exec":3,"argv":["true"],"tty":true}`, 3, "3 fds instead of 1"},
		{`{"op":"exec","argv":["true"]}`, 3, "no exec id"},
		{`{"op":"exec","exec":3}`, 3, "either argv or command"},
		{`{"op":"exec","exec":3,"argv":["a"],"command":"b"}`, 3, "either argv or command"},
		{`{"op":"exec","exec":3,"argv":["a\u0000b"]}`, 3, "NUL"},
		{`{"op":"exec","exec":3,"argv":["a"],"cwd":"x"}`, 3, "not absolute"},
		{`{"op":"exec","exec":3,"argv":["a"],"rlimits":[{"resource":16}]}`, 3, "rlimit resource"},
		{`{"op":"exec","exec":3,"argv":["a"]}`, 6, "too many fds"},
		{`{"op":"signal","exec":3,"signal":65}`, 0, "signal 65"},
		{`{"op":"large"}`, 0, "without its memfd"},
		{`{"op":"large"}`, 1, "decode"}, // /dev/null is empty
		{`{"op":"setup"}`, 1, "seccomp filter"},
		{strings.Repeat(" ", guestapi.MaxPacket+1), 0, "too large"},
		{`{"op":"kill","exec":9}` + `x`, 0, "decode"},
	} {
		fds := make([]int, c.fds)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		if err := unix.Sendmsg(int(peer.Fd()), []byte(c.packet), rights(fds), nil, 0); err != nil {
			t.Fatalf("%.60q: %v", c.packet, err)
		}
		buf := make([]byte, guestapi.MaxPacket)
		n, err := unix.Read(int(peer.Fd()), buf)
		if err != nil {
			t.Fatalf("%.60q: %v", c.packet, err)
		}
		if got := string(buf[:n]); !strings.Contains(got, `"ev":"failed"`) || !strings.Contains(got, c.want) {
			t.Errorf("%.60q: answer %s, want %q", c.packet, got, c.want)
		}
	}
	// An empty packet is not the end of the channel either way, but looks like it.
	_ = peer.Close()
	s.awaitEnd()
}

func rights(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return unix.UnixRights(fds...)
}

// The end of the channel is the end of the sandbox.
func TestEndOfChannel(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		null := open(t, "/dev/null")
		_, err = s.Start(t.Context(), guestapi.Request{
			Argv: []string{"sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & echo up; sleep 1000"},
			Env:  []string{"PATH=/usr/bin:/bin"},
		}, []*os.File{null, w, null})
		_ = w.Close()
		if err != nil {
			t.Fatal(err)
		}
		up := make([]byte, 3)
		if _, err := r.Read(up); err != nil || string(up) != "up\n" {
			t.Fatalf("%q, %v", up, err)
		}
		_ = s.Close()
		s.awaitEnd()
		_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := r.Read(up); n != 0 || err == nil || os.IsTimeout(err) {
			t.Errorf("a process of the sandbox is left: read %d, %v", n, err)
		}
	})
}

// A process of the sandbox cannot attach to the exec stub, which has PID 1's
// laxer filter until just before the command.
func TestStubIsClosed(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		e, wait, err := s.start(guestapi.Request{Argv: []string{"/self", "attack-stubs"}})
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			s.run(guestapi.Request{Argv: []string{"/bin/true"}})
		}
		s.sh("touch /tmp/over")
		r := wait()
		var stubs, others int
		if _, err := fmt.Sscanf(r.out, "ready\n%d %d", &stubs, &others); err != nil {
			t.Fatalf("%d: %q, %q: %v", e.PID, r.out, r.errOut, err)
		}
		t.Logf("attached to %d stubs and %d commands", stubs, others)
		if stubs != 0 {
			t.Errorf("attached to %d exec stubs", stubs)
		}
	})
}

// A named pipe of the host keeps its owner when it is a command's stdio; an
// anonymous one is given to the command's user.
func TestNamedPipeKeepsOwner(t *testing.T) {
	s := newSandbox(t, rangeMap)
	name := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	named, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	r, anonymous, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer anonymous.Close()
	s.own(named)
	s.own(anonymous)
	e, err := s.Start(t.Context(), guestapi.Request{Argv: []string{"/bin/true"}, User: "dev"},
		[]*os.File{named, anonymous, named})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[*os.File]uint32{named: firstID, anonymous: firstID + 1000} {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Uid != want {
			t.Errorf("owner %d, want %d (%v)", st.Uid, want, err)
		}
	}
}

// Anywhere but as PID 1 of a sandbox hutch-init refuses to run.
func TestRefusesToRun(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), testenv.Bin(t, "hutch-init")).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 125 ||
		!strings.Contains(string(out), "first process of a sandbox") {
		t.Errorf("%v: %s", err, out)
	}
}
