package probe

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNetdRemedy: what root is to run is said, command by command, and no name ends a word.
func TestNetdRemedy(t *testing.T) {
	t.Parallel()
	h := host{uid: 1000, user: "eve"}
	c := h.viaNetd("ebpf", "/home/eve/it's; here/hutch-netd", unix.ENOENT)
	want := `getent group hutch >/dev/null || sudo groupadd --system hutch
sudo install -d -m 0755 /usr/local/libexec/hutch
sudo install -o root -g hutch -m 0750 '/home/eve/it'\''s; here/hutch-netd' /usr/local/libexec/hutch/hutch-netd
sudo setcap cap_bpf,cap_net_admin=ep /usr/local/libexec/hutch/hutch-netd
sudo usermod -aG hutch 'eve'
`
	if c.Status != No || !c.Fixable || c.Remedy != want {
		t.Errorf("%+v\nwant %s", c, want)
	}
	if c := h.viaNetd("ebpf", "", unix.ENOENT); c.Fixable || !strings.Contains(c.Detail, "make install-netd") {
		t.Errorf("nothing to install: %+v", c)
	}
	if c := h.viaNetd("ebpf", "/x", unix.EACCES); !c.Fixable || c.Remedy != "sudo usermod -aG hutch 'eve'\n" {
		t.Errorf("not in the group: %+v", c)
	}
	if c := h.viaNetd("ebpf", "/x", nil); c.Status != Yes {
		t.Errorf("installed: %+v", c)
	}
}
