package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

func TestUsers(t *testing.T) {
	t.Run(string(rangeMap), usersOfRange)
	t.Run(string(singleMap), usersOfSingle)
}

func usersOfRange(t *testing.T) {
	s := newSandbox(t, rangeMap)
	for user, want := range map[string]string{
		"":              "0 0 0 10 /root",
		"0":             "0 0 0 10 /root",
		"root":          "0 0 0 10 /root",
		"root:0":        "0 0 0 /root",
		"dev":           "1000 1000 1000 4 44 /home/dev",
		"1000":          "1000 1000 1000 4 44 /home/dev",
		"dev:video":     "1000 44 44 /home/dev",
		"dev:7":         "1000 7 7 /home/dev",
		"nohome":        "1001 1001 1001 /home/1001",
		"4242":          "4242 0 0 /home/4242",
		"65534:65534":   "65534 65534 65534 /home/65534",
		"0065535:00010": "65535 10 10 /home/65535",
	} {
		r := s.run(guestapi.Request{Argv: []string{"sh", "-c", "echo $(id -u) $(id -g) $(id -G) $HOME"}, User: user})
		if strings.TrimSpace(r.out) != want {
			t.Errorf("user %q: %q (stderr %q), want %q", user, r.out, r.errOut, want)
		}
		// Who has no home of the account files can write to the one that they get.
		if strings.Contains(want, "/home/") && !strings.HasSuffix(want, "/dev") {
			if r := s.run(guestapi.Request{Argv: []string{"sh", "-c", "cd && echo x >.new && cat .new"},
				User: user}); r.out != "x\n" {
				t.Errorf("user %q: %q, %q", user, r.out, r.errOut)
			}
		}
	}
	for _, user := range []string{"nobody2", "dev:nogroup2", "70000", "0:70000", "4294967295", "-1", "+1", "1 ",
		"a:b:c"} {
		f := s.startFails(guestapi.Request{Argv: []string{"true"}, User: user}, guestapi.ReasonBadUser)
		if !strings.Contains(f.Message, fmt.Sprintf("%q", user)) {
			t.Errorf("user %q: message %q does not name it", user, f.Message)
		}
	}
}

func usersOfSingle(t *testing.T) {
	s := newSandbox(t, singleMap)
	for _, user := range []string{"", "root", "0:0"} {
		if r := s.run(guestapi.Request{Argv: []string{"id", "-u"}, User: user}); r.out != "0\n" {
			t.Errorf("user %q: %q", user, r.out)
		}
	}
	for _, user := range []string{"dev", "1", "0:1"} {
		f := s.startFails(guestapi.Request{Argv: []string{"true"}, User: user}, guestapi.ReasonBadUser)
		if !strings.Contains(f.Message, "0 only") {
			t.Errorf("user %q: message %q does not say what is mapped", user, f.Message)
		}
	}
}

// Account files are the sandbox's own, and may be anything.
func TestHostileAccounts(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		for name, script := range map[string]string{
			"fifo":     "mkfifo /etc/passwd",
			"endless":  "ln -s /dev/zero /etc/passwd",
			"folder":   "mkdir /etc/passwd",
			"too big":  "head -c 2000000 /dev/zero >/etc/passwd",
			"loop":     "ln -s passwd /etc/passwd",
			"init's":   "ln -s /proc/self/fd/3 /etc/passwd",
			"missing":  "rm -f /etc/group",
			"long row": "tr '\\0' x </dev/zero | head -c 1000000 >/etc/passwd",
		} {
			s.sh("rm -rf /etc/passwd; " + script)
			s.startFails(guestapi.Request{Argv: []string{"true"}, User: "dev"}, guestapi.ReasonBadUser)
			if r := s.run(guestapi.Request{Argv: []string{"sh", "-c", "id -u; echo $HOME"},
				User: "0:0"}); r.out != "0\n/\n" {
				t.Errorf("%s: %q", name, r.out)
			}
		}
	})
}

// Sandbox root keeps the sandbox's bounding set but for what only PID 1 needs;
// everybody else has nothing.
func TestCapabilities(t *testing.T) {
	var root uint64
	for _, c := range keptCaps {
		if c != unix.CAP_SETPCAP {
			root |= 1 << c
		}
	}
	s := newSandbox(t, rangeMap)
	for user, caps := range map[string]uint64{"0": root, "1000": 0} {
		r := s.run(guestapi.Request{Argv: []string{"grep", "^Cap", "/proc/self/status"}, User: user})
		want := fmt.Sprintf("CapInh:\t%016x\nCapPrm:\t%016x\nCapEff:\t%016x\nCapBnd:\t%016x\nCapAmb:\t%016x\n", 0, caps,
			caps, caps, 0)
		if r.out != want {
			t.Errorf("user %s:\n%swant\n%s", user, r.out, want)
		}
	}
}

// A user can reopen its own pipes, as programs that log to /dev/stderr do.
func TestStdioBelongsToUser(t *testing.T) {
	s := newSandbox(t, rangeMap)
	r := s.run(guestapi.Request{Argv: []string{"sh", "-c", "echo a >/proc/self/fd/1; echo b >/proc/self/fd/2"},
		User: "dev"})
	if r.out != "a\n" || r.errOut != "b\n" {
		t.Errorf("stdout %q, stderr %q", r.out, r.errOut)
	}
}
