package seccomp

import "golang.org/x/sys/unix"

// browserNamespaces are what Chromium and Firefox make for their renderers: no mount
// namespace, for mount(2) is refused in it as well.
const browserNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC

// Options of setsockopt(2) and getsockopt(2) that reach the firewall and IPsec of a network
// namespace (linux/netfilter_*/, linux/ip_vs.h, linux/in.h, linux/in6.h).
const (
	ipTables   = 64 // and 65 to 67: IPT_BASE_CTL, and IP6T_BASE_CTL, which has the same number
	arpTables  = 96
	ebTables   = 128
	ipvs       = 64 + 1024 + 64 // and the 15 after it
	ipPolicies = 16             // and 17: IP_IPSEC_POLICY, IP_XFRM_POLICY
	ip6IPsec   = 34             // and 35: IPV6_IPSEC_POLICY, IPV6_XFRM_POLICY
)

// Requests of sockets that only read, in the range of those that configure interfaces
// (linux/sockios.h).
var interfaceQuestions = []uint64{
	0x8901, 0x8902, 0x8903, 0x8904, 0x8905, // owners of a socket, and urgent data
	0x8906, 0x8907, // time of the last packet
	unix.SIOCGIFNAME, unix.SIOCGIFCONF, unix.SIOCGIFFLAGS, unix.SIOCGIFADDR, unix.SIOCGIFDSTADDR, unix.SIOCGIFBRDADDR,
	unix.SIOCGIFNETMASK, unix.SIOCGIFMTU, unix.SIOCGIFHWADDR, unix.SIOCGIFINDEX,
}

// Browser is Default for programs that confine their own children by namespaces. Who makes a
// user namespace has every capability in it: over networks that are its own, too, whose
// administration is kernel code with a long record of holes. So what such a capability
// would open beyond the namespaces is refused here: netlink altogether, the firewall's and
// IPsec's socket options, and the configuration of interfaces. All that Default refuses stays refused:
// mounting, joining namespaces, bpf, keyrings.
func Browser() Profile {
	namespaces := []Rule{
		{Reason: "a browser locks its renderers up in namespaces of their own",
			Syscalls: []string{"clone"}, When: []Cond{{Arg: 0, Mask: newNamespaces &^ browserNamespaces}}},
		{Reason: namespaceReason, Syscalls: []string{"clone"}, Errno: unix.EPERM},
		{Reason: "as clone",
			Syscalls: []string{"unshare"},
			When:     []Cond{{Arg: 0, Mask: (newNamespaces | unix.CLONE_NEWTIME) &^ browserNamespaces}}},
		{Reason: namespaceReason, Syscalls: []string{"unshare"}, Errno: unix.EPERM},
	}
	rules := append(namespaces, socketRules(false)...)
	for _, o := range []struct {
		level, first, mask uint64
	}{
		{unix.SOL_IP, ipTables, 3}, {unix.SOL_IP, arpTables, 3}, {unix.SOL_IP, ebTables, 3}, {unix.SOL_IP, ipvs, 15},
		{unix.SOL_IP, ipPolicies, 1}, {unix.SOL_IPV6, ipTables, 3}, {unix.SOL_IPV6, ip6IPsec, 1},
	} {
		rules = append(rules, Rule{
			Reason:   "firewall, load balancer and IPsec: reachable by whoever made a network namespace",
			Syscalls: []string{"setsockopt", "getsockopt"}, Errno: unix.EPERM,
			When: []Cond{int32Arg(1, o.level), {Arg: 2, Mask: int32Mask &^ o.mask, Value: o.first}},
		})
	}
	for _, request := range interfaceQuestions {
		rules = append(rules, Rule{Reason: "what interfaces there are",
			Syscalls: []string{"ioctl"}, When: []Cond{int32Arg(1, request)}})
	}
	rules = append(rules, Rule{Reason: "configures interfaces, routes, bridges and tunnels of a network namespace",
		Syscalls: []string{"ioctl"}, Errno: unix.EPERM, When: []Cond{{Arg: 1, Mask: int32Mask &^ 0xff, Value: 0x8900}}})
	return change(BrowserName, Default(), rules)
}
