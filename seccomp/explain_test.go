package seccomp

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExplain: what programs only try is a probe. Who is refused a namespace hears that its own sandbox is not needed,
// and how a browser gets one; of other calls nobody hears that.
func TestExplain(t *testing.T) {
	number := func(call string) uint32 {
		for nr, name := range names() {
			if name == call {
				return nr
			}
		}
		t.Fatal("no call", call)
		return 0
	}
	socket := number("socket")
	for protocol, want := range map[uint64]bool{unix.NETLINK_KOBJECT_UEVENT: true, unix.NETLINK_NETFILTER: false} {
		if r := Explain("default", socket, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, protocol}); r.Probe != want {
			t.Errorf("netlink %d: %+v", protocol, r)
		}
	}
	for _, c := range []struct {
		profile, call string
		flags         uint64
		own           bool
		how           string
	}{
		{"default", "clone", unix.CLONE_NEWNS | unix.CLONE_NEWPID, true, ""},
		{"default", "unshare", unix.CLONE_NEWUSER, true, "--seccomp browser"},
		{"browser", "unshare", unix.CLONE_NEWNS, true, ""},
		{"default", "mount", 0, false, ""},
	} {
		r := Explain(c.profile, number(c.call), [6]uint64{c.flags})
		if got := strings.HasPrefix(r.Why, ownSandbox+": "); got != c.own || r.HowToAllow != c.how {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}
