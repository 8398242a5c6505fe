package netns

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestRoutes reads back, by a library that knows nothing of ours, what the kernel made
// of our messages.
func TestRoutes(t *testing.T) {
	n, err := New(TProxy)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	const (
		local4    = "local 198.18.0.0/15 dev 1 src 127.0.0.1 table 255"
		prohibit4 = "prohibit 0.0.0.0/0 dev 0 src <nil> table 254"
		prohibit6 = "prohibit ::/0 dev 1 src <nil> table 254"
	)
	want := func(more ...string) {
		t.Helper()
		want := append([]string{local4, prohibit4, prohibit6}, more...)
		slices.Sort(want)
		if got := routes(t, n); !slices.Equal(got, want) {
			t.Errorf("routes\n%q, want\n%q", got, want)
		}
	}
	want()
	if err := n.Apply(Config{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8"),
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("198.18.3.0/24"),
		netip.MustParsePrefix("224.0.0.0/4")}}); err != nil {
		t.Fatal(err)
	}
	want("local 10.0.0.0/8 dev 1 src 127.0.0.1 table 255", "local fd00::/8 dev 1 src <nil> table 255")
	if err := n.Apply(Config{Open: true}); err != nil {
		t.Fatal(err)
	}
	want("local 0.0.0.0/0 dev 1 src 127.0.0.1 table 255", "local ::/0 dev 1 src <nil> table 255")
	if err := n.Apply(Config{}); err != nil {
		t.Fatal(err)
	}
	want()
}

// routes are those of a namespace that the kernel did not make by itself.
func routes(t *testing.T, n *Namespace) (list []string) {
	t.Helper()
	err := n.inside(func() error {
		for _, table := range []int{unix.RT_TABLE_MAIN, unix.RT_TABLE_LOCAL} {
			all, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: table},
				netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range all {
				if r.Protocol != unix.RTPROT_STATIC {
					continue
				}
				kind := map[int]string{unix.RTN_LOCAL: "local", unix.RTN_PROHIBIT: "prohibit"}[r.Type]
				list = append(list, fmt.Sprintf("%s %v dev %d src %v table %d", kind, r.Dst, r.LinkIndex, r.Src,
					r.Table))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}
