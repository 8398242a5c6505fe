package probe

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
)

// nftable is where an attempt of nf_tables is made, in the child's own network namespace:
// each in a table of its own, because others are made there, too.
func nftable(attempt string) nlmsg.Chain {
	return nlmsg.Chain{Family: unix.NFPROTO_IPV4, Table: "hutch_" + attempt, Name: "probe"}
}

func tryNFTables(request) error { return nlmsg.NFTables(nftable("nftables").NewTable()).Send() }

// tryTProxy makes a rule that gives packets to a transparent socket.
func tryTProxy(request) error {
	c := nftable("tproxy")
	return nlmsg.NFTables(c.NewTable(), c.Hook("filter", unix.NF_INET_PRE_ROUTING, 0),
		c.Rule(nlmsg.TProxy(unix.NFPROTO_IPV4, []byte{127, 0, 0, 1}, 8080))).Send()
}

// tryRedirect makes a rule that rewrites destinations.
func tryRedirect(request) error {
	c := nftable("redirect")
	return nlmsg.NFTables(c.NewTable(), c.Hook("nat", unix.NF_INET_LOCAL_OUT, 0),
		c.Rule(nlmsg.Redirect(8080))).Send()
}

// tryQueue makes a queue that holds packets, and rules that fill it and that answer what
// was in it.
func tryQueue(request) error {
	if err := nlmsg.Netfilter(nlmsg.BindQueue(1)).Send(); err != nil {
		return fmt.Errorf("nfnetlink_queue: %w", err)
	}
	c := nftable("queue")
	rules := func(queue []byte) error {
		return nlmsg.NFTables(c.NewTable(), c.Hook("filter", unix.NF_INET_LOCAL_IN, 0),
			c.Rule(queue), c.Rule(nlmsg.Protocol(unix.IPPROTO_TCP), nlmsg.Reset()), c.Rule(nlmsg.Unreachable(1))).Send()
	}
	err := rules(nlmsg.Queue())
	if err != nil && rules(nlmsg.QueueTarget()) == nil {
		return nil
	}
	return err
}

func failsNFTables(_ host, _ request, a attempt) (detail, remedy string) {
	return withoutNFTables(a,
		"of network policies, mode open is not possible, and others take the ports that they name", "nf_tables")
}

func failsTProxy(_ host, _ request, a attempt) (detail, remedy string) {
	return withoutNFTables(a,
		"connections of sandboxes with a network come to the proxy in the next best way: see nf tables redirect",
		"nft_tproxy")
}

func failsQueue(_ host, _ request, a attempt) (detail, remedy string) {
	return withoutNFTables(a,
		"connections to raw ports are accepted before their server has answered: one that refuses them resets them",
		"nfnetlink_queue nft_queue nft_reject_ipv4 nft_reject_ipv6")
}

func failsRedirect(_ host, _ request, a attempt) (detail, remedy string) {
	return withoutNFTables(a,
		"where tproxy does not work either, sandboxes with a network get a listener for each port (no mode open)",
		"nft_redir")
}

func withoutNFTables(a attempt, means, module string) (detail, remedy string) {
	detail = a.String() + ": " + means
	switch a.Errno {
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ENOENT, unix.EINVAL: // EINVAL: no nfnetlink_queue
		return detail, "sudo modprobe -a nf_tables " + module
	}
	return detail, ""
}
