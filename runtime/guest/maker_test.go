package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

func init() {
	insideTools["undumpable"] = func(args []string) error {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
		for _, dir := range args {
			fmt.Println(errnoOf(unix.Mkdir(dir, 0o755)))
		}
		return nil
	}
}

// TestMakerForeign: what PID 1 makes for commands is beneath the sandbox's own root, too: the wall that Landlock is for
// folders from elsewhere has no door in it. The path of this one says that it is in the guarded folder.
func TestMakerForeign(t *testing.T) {
	abi := requireLandlock(t)
	var want strings.Builder
	for _, try := range folderTries {
		errno := unix.EACCES
		if try.name == "stat" {
			errno = 0
		}
		fmt.Fprintf(&want, "%s %d\n", try.name, errno)
	}
	for _, k := range []ids{rangeMap, singleMap} {
		t.Run(string(k), func(t *testing.T) {
			s := newGuarded(t, k, abi,
				&guestapi.Guard{Roots: []guestapi.GuardRoot{{Path: "/tmp", Own: []string{".vscode", "sub/it"}}}})
			if got := s.tryIn(foreignFolder(t), "/proc/self/fd/0"); got != want.String() {
				t.Errorf("%s", got)
			}
			s.sh("mkdir -p /tmp/own/dir && cd /tmp/own && : >old && : >gone && printf '#!/bin/true\\n' >program && chmod 755 program")
			if got := s.tryIn(open(t, "/dev/null"), "/tmp/own"); strings.Count(got, " 0\n") != len(folderTries) {
				t.Errorf("in the guarded folder:\n%s", got)
			}
		})
	}
}

// TestMakerLimits: a process that nobody may look at makes nothing in the guarded folder, and all elsewhere; domains of
// programs' own, which would not hold for PID 1, cannot be made.
func TestMakerLimits(t *testing.T) {
	abi := requireLandlock(t)
	for _, k := range []ids{rangeMap, singleMap} {
		t.Run(string(k), func(t *testing.T) {
			s := newGuarded(t, k, abi,
				&guestapi.Guard{Roots: []guestapi.GuardRoot{{Path: "/tmp", Own: []string{".vscode"}}}})
			want := fmt.Sprintf("%d\n0", unix.EACCES)
			if got := s.sh("mkdir /tmp/a; /self undumpable /tmp/a/x /root/x"); got != want {
				t.Errorf("%s", got)
			}
			if r := s.run(guestapi.Request{Argv: []string{"/self", "stack-domains"}}); r.code() == 0 ||
				!strings.Contains(r.errOut, "operation not supported") {
				t.Errorf("exit %d: %s", r.code(), r.errOut)
			}
			s.sh("ln -s /tmp /root/way")
			s.startFails(guestapi.Request{Argv: []string{"true"}, Cwd: "/root/way/.vscode", MkCwd: true},
				guestapi.ReasonBadCwd)
			s.run(guestapi.Request{Argv: []string{"true"}, Cwd: "/root/way/other", MkCwd: true})
			if got := s.sh("mkdir /tmp/.vscode 2>/dev/null || echo no; mkdir /new && mkdir /new/x && mv /new /newer && mkdir /newer/y /new && ls /newer"); got != "no\nx\ny" {
				t.Errorf("%s", got)
			}
		})
	}
}

// TestMakerRefused: PID 1 is not ready with a guard that it cannot keep.
func TestMakerRefused(t *testing.T) {
	abi := requireLandlock(t)
	guard := &guestapi.Guard{Roots: []guestapi.GuardRoot{{Path: "/tmp", Own: []string{"x"}}}}
	for _, test := range []struct {
		abi  int
		args []string
	}{{0, []string{guestapi.ArgMakes}}, {abi, nil}, {abi, []string{guestapi.ArgFiles}}} {
		_, peer := newRawSandbox(t, singleMap, test.args...)
		c, err := guestapi.NewClient(peer)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Setup(t.Context(), memfile(t, "exec filter", execFilter()), nil, "", test.abi, guard)
		if api.ErrorCode(err) != api.Internal || !strings.Contains(err.Error(), "a guard of names") {
			t.Errorf("%+v: %v", test, err)
		}
		_ = c.Close()
	}
}
