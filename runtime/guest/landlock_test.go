package guest_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

func init() {
	insideTools["try-folder"] = tryFolder
	insideTools["stack-domains"] = stackDomains
}

// folderTries is what tryFolder does to a folder such as foreignFolder makes, in order.
var folderTries = []struct {
	name string
	do   func(folder string) error
}{
	{"stat", func(f string) error { _, err := os.Stat(f + "/old"); return err }},
	{"list", func(f string) error { _, err := os.ReadDir(f + "/."); return err }},
	{"read", func(f string) error { _, err := os.ReadFile(f + "/old"); return err }},
	{"write", func(f string) error { return os.WriteFile(f+"/old", []byte("x"), 0) }},
	{"truncate", func(f string) error { return os.Truncate(f+"/old", 0) }},
	{"make", func(f string) error { return os.WriteFile(f+"/new", nil, 0o600) }},
	{"mkdir", func(f string) error { return os.Mkdir(f+"/sub", 0o755) }},
	{"link", func(f string) error { return os.Symlink("/", f+"/link") }},
	{"fifo", func(f string) error { return unix.Mkfifo(f+"/fifo", 0o600) }},
	{"hard link", func(f string) error { return os.Link(f+"/old", f+"/dir/again") }},
	{"move", func(f string) error { return os.Rename(f+"/old", f+"/dir/old") }},
	{"remove", func(f string) error { return os.Remove(f + "/gone") }},
	{"execute", func(f string) error {
		fd, err := unix.Open(f+"/program", unix.O_PATH, 0)
		if err == nil {
			defer unix.Close(fd)
			_, err = os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"program"}, &os.ProcAttr{})
		}
		return err
	}},
}

// tryFolder prints the errno of each.
func tryFolder(args []string) error {
	for _, try := range folderTries {
		fmt.Printf("%s %d\n", try.name, errnoOf(try.do(args[0])))
	}
	return nil
}

// stackDomains prints how many further domains this process can enter.
func stackDomains([]string) error {
	n := 0
	for ; n < 100; n++ {
		err := sys.LandlockRestrict(&unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK},
			nil)
		if errors.Is(err, unix.E2BIG) {
			break
		}
		if err != nil {
			return err
		}
	}
	fmt.Println(n)
	return nil
}

// requireLandlock skips where the kernel has none that commands could use.
func requireLandlock(t *testing.T) (abi int) {
	t.Helper()
	testenv.Require(t, probe.Landlock())
	abi, err := sys.LandlockABI()
	if err != nil {
		t.Fatal(err)
	}
	return abi
}

// foreignFolder is a folder of the host's that anybody may use, as a command's stdin would be
// if hutchd let it pass.
func foreignFolder(t *testing.T) *os.File {
	t.Helper()
	dir := t.TempDir()
	err := os.Mkdir(filepath.Join(dir, "dir"), 0)
	for _, name := range []string{"old", "gone", "program"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/true\n"), 0o600))
	}
	for name, mode := range map[string]os.FileMode{"": 0o777, "dir": 0o777, "old": 0o666, "gone": 0o666,
		"program": 0o755} {
		err = errors.Join(err, os.Chmod(filepath.Join(dir, name), mode))
	}
	if err != nil {
		t.Fatal(err)
	}
	return open(t, dir)
}

// tryIn has a command try what it can do to folder, its stdin being in.
func (s *sandbox) tryIn(in *os.File, folder string) string {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	s.own(w)
	e, err := s.Start(s.t.Context(), guestapi.Request{Argv: []string{"/self", "try-folder", folder}},
		[]*os.File{in, w, w})
	_ = w.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := e.Wait(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(out)
}

// TestLandlock: what is not beneath the sandbox's root can be looked at and nothing more, by whatever fd. Without the
// domain it can be used, and beneath the root everything works.
func TestLandlock(t *testing.T) {
	abi := requireLandlock(t)
	var works, refused strings.Builder
	for _, try := range folderTries {
		errno := unix.EACCES
		if try.name == "stat" {
			errno = 0
		}
		fmt.Fprintf(&works, "%s 0\n", try.name)
		fmt.Fprintf(&refused, "%s %d\n", try.name, errno)
	}
	for _, k := range []ids{rangeMap, singleMap} {
		t.Run(string(k), func(t *testing.T) {
			without, within := newWalled(t, k, 0), newWalled(t, k, abi)
			if got := without.tryIn(foreignFolder(t), "/proc/self/fd/0"); got != works.String() {
				t.Errorf("without a domain:\n%s", got)
			}
			if got := within.tryIn(foreignFolder(t), "/proc/self/fd/0"); got != refused.String() {
				t.Errorf("in the domain:\n%s", got)
			}
			within.sh("mkdir -p /tmp/own/dir && cd /tmp/own && : >old && : >gone && printf '#!/bin/true\\n' >program && chmod 755 program")
			if got := within.tryIn(open(t, "/dev/null"), "/tmp/own"); got != works.String() {
				t.Errorf("beneath the root:\n%s", got)
			}
		})
	}
}

// TestLandlockShared: all commands are in one domain, so they can do to each other what they can
// without, and PID 1 is beyond them.
func TestLandlockShared(t *testing.T) {
	abi := requireLandlock(t)
	eachKind(t, func(t *testing.T, s *sandbox) {
		if got := s.sh("/self stack-domains") + " " + s.sh("/self stack-domains"); got != "15 15" {
			t.Errorf("commands can enter %s more domains, want 15 of 16", got)
		}
		_, wait, err := s.start(guestapi.Request{Argv: []string{"sh", "-c",
			"echo $$ >/tmp/pid.new; mv /tmp/pid.new /tmp/pid; exec sleep 60"}})
		if err != nil {
			t.Fatal(err)
		}
		s.sh("until [ -e /tmp/pid ]; do sleep 0.01; done; p=$(cat /tmp/pid); kill -0 $p && cat /proc/$p/environ && ls -l /proc/$p/fd/ /proc/$p/cwd/")
		tracer, _ := s.started("exec /self trace $(cat /tmp/pid)")
		if err := tracer.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := tracer.Wait(within(t, 20*time.Second)); err != nil {
			t.Fatal(err)
		}
		s.sh("kill -TERM $(cat /tmp/pid)")
		if r := wait(); unix.WaitStatus(r.Status).Signal() != unix.SIGTERM {
			t.Errorf("status %#x", r.Status)
		}
		want := "0"
		if abi >= 6 {
			want = "1"
		}
		if got := s.sh("kill -0 1 2>/dev/null; echo $?"); got != want {
			t.Errorf("kill -0 1: %s", got)
		}
		if got := newWalled(t, s.ids, 0).sh("kill -0 1; echo $?; /self stack-domains"); got != "0\n16" {
			t.Errorf("without a domain: %s", got)
		}
	})
}

// TestLandlockStdio: what a command gets from outside, it can open again by its path.
func TestLandlockStdio(t *testing.T) {
	requireLandlock(t)
	eachKind(t, func(t *testing.T, s *sandbox) {
		s.sh("cat /dev/fd/0")  // /dev/null of the host
		if s.ids == rangeMap { // else the pipes are not the sandbox root's own
			s.sh("echo x >/dev/fd/1 && echo y >/dev/fd/2")
		}
		master, slave := pty(t)
		e, err := s.Start(t.Context(), guestapi.Request{
			Argv: []string{"sh", "-c", ": </dev/tty && stty -echo </dev/tty && stty rows 11 && stty size"},
			Env:  []string{"PATH=/usr/bin:/bin"}, TTY: true,
		}, []*os.File{slave})
		_ = slave.Close()
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := e.Wait(within(t, 10*time.Second)); err != nil || ev.Status != 0 {
			buf := make([]byte, 256)
			n, _ := master.Read(buf)
			t.Errorf("status %#x, %v: %q", ev.Status, err, buf[:n])
		}
	})
}

// TestLandlockRefused: PID 1 does not say that it is ready without the domain that it was asked for.
func TestLandlockRefused(t *testing.T) {
	requireLandlock(t)
	for _, abi := range []int{-1, 1, 2, 99} {
		_, peer := newRawSandbox(t, singleMap)
		c, err := guestapi.NewClient(peer)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Setup(t.Context(), memfile(t, "exec filter", execFilter()), nil, "", abi, nil)
		if api.ErrorCode(err) != api.Internal || !strings.Contains(err.Error(), fmt.Sprintf("Landlock ABI %d", abi)) {
			t.Errorf("ABI %d: %v", abi, err)
		}
		_ = c.Close()
	}
}
