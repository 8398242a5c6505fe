package refusals

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// TestCalls: a refused call is reported with its arguments, for its exec; a probe as such, and one that is held until
// its exec is known not.
func TestCalls(t *testing.T) {
	r, s, n := refusing(t)
	s.record.Seccomp = api.SeccompDefault
	call := guestapi.Refused{NR: 7, Args: [6]uint64{255}, Errno: int(unix.EPERM), Count: 3, PID: 12, Command: "mount"}
	r.Call(s, call)
	r.Call(s, guestapi.Refused{NR: 0, Count: 1})
	s.early = true
	r.Call(s, call)
	if len(n.other) != 2 || !n.other[1].(api.SyscallEvent).Probe {
		t.Fatalf("events %+v", n.other)
	}
	e := n.other[0].(api.SyscallEvent)
	if e.Syscall != "call7" || e.Rule != "seccomp profile default" || e.Args[0] != "0xff" || e.Count != 3 ||
		e.Errno != "EPERM" || e.Process.Command[0] != "mount" {
		t.Errorf("%+v", e)
	}
	all, _ := s.ledger.Read()
	all = slices.DeleteFunc(all, func(d api.Denial) bool { return d.Probe })
	if len(all) != 1 || all[0].Exec != "ex_2" || len(s.audited) != 2 {
		t.Errorf("kept %+v, audited %v", all, s.audited)
	}
}

// TestFiles: a refused file is explained by the innermost mount that cannot be written, or by modes and owners.
func TestFiles(t *testing.T) {
	r, s, n := refusing(t)
	s.readOnly = []ReadOnly{{Target: "/", Rule: "root"},
		{Target: "/usr/", Rule: "usr"}, {Target: "/usr", Rule: "later"}}
	dir := guestapi.RefusedAt{Path: "/d", UID: 5, GID: 6, Mode: 0o1755, FSUID: 7, FSGID: 8}
	for _, c := range []struct {
		path          string
		at            guestapi.RefusedAt
		errno         error
		by, rule, how string
	}{
		{"/usr/bin/x", dir, unix.EROFS, "mount", "usr", ""},
		{"/usrx", dir, unix.EROFS, "mount", "root", ""},
		{"/m", dir, unix.EBUSY, "mount", "mount point", ""},
		{"/m", dir, unix.EXDEV, "mount", "overlay of a folder", "mv, which copies it; or mode rw"},
		{"/d/f", dir, unix.EPERM, "mode", "owner 5, mode 1755",
			"run the command as the owner of the file, or as root: --user root"},
		{"/d/f", dir, unix.EACCES, "mode", "owner 5:6, mode 1755", "--user 5, or another mode or owner"},
		{"/proc/1/mem", dir, unix.EACCES, "mode", "owner 5:6, mode 1755", ""},
		{"/f", guestapi.RefusedAt{UID: 7, FSUID: 7}, unix.EACCES, "mode", "owner 7:0, mode 0000",
			"chmod: the process owns it"},
		{"/f", guestapi.RefusedAt{UID: 7}, unix.EPERM, "mode", "owner 7, mode 0000", "change its mode or owner"},
		{"/f", guestapi.RefusedAt{UID: 65534}, unix.EPERM, "mode", "owner 65534, mode 0000",
			"it belongs to a user whom the sandbox does not have: change its mode on the host"},
	} {
		n.other = nil
		var errno unix.Errno
		errors.As(c.errno, &errno)
		r.Call(s, guestapi.Refused{Errno: int(errno), Count: 1,
			File: &guestapi.RefusedFile{Op: guestapi.FileWrite, Path: c.path, At: c.at}})
		if len(n.other) != 1 {
			t.Errorf("%s: %d events", c.path, len(n.other))
			continue
		}
		e := n.other[0].(api.FileEvent)
		if e.By != c.by || e.Rule != c.rule || e.HowToAllow != c.how || e.Why == "" && c.by == "mode" {
			t.Errorf("%s, %v: %+v", c.path, errno, e)
		}
	}
	s.readOnly = nil
	if x := explainMount(s, "/x", unix.EROFS); x.Rule != "read-only mount" {
		t.Errorf("of no mount that is known: %+v", x)
	}
	r.Call(s, guestapi.Refused{File: &guestapi.RefusedFile{Op: guestapi.FileRepository, Path: "/w"}})
	r.Unrouted(s.ID(), 4)
	if last := n.all[len(n.all)-1]; last.Count != 4 || last.By != "route" {
		t.Errorf("%+v", last)
	}
	r.Failed("sb_gone", api.FailedEvent{})
	if len(n.failed) != 1 || n.failed[0].Count != 1 {
		t.Errorf("%+v", n.failed)
	}
}
