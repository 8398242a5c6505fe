package probe

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attributes and messages of nf_tables (linux/netfilter/nf_tables.h).
const (
	nftTableName    = 1 // NFTA_TABLE_NAME
	nftChainTable   = 1 // NFTA_CHAIN_TABLE
	nftChainName    = 3 // NFTA_CHAIN_NAME
	nftChainHook    = 4 // NFTA_CHAIN_HOOK
	nftChainType    = 7 // NFTA_CHAIN_TYPE
	nftHookNum      = 1 // NFTA_HOOK_HOOKNUM
	nftHookPriority = 2 // NFTA_HOOK_PRIORITY
	nftRuleTable    = 1 // NFTA_RULE_TABLE
	nftRuleChain    = 2 // NFTA_RULE_CHAIN
	nftRuleExprs    = 4 // NFTA_RULE_EXPRESSIONS
	nftListElem     = 1 // NFTA_LIST_ELEM
	nftExprName     = 1 // NFTA_EXPR_NAME
	nftExprData     = 2 // NFTA_EXPR_DATA
	nftImmDreg      = 1 // NFTA_IMMEDIATE_DREG
	nftImmData      = 2 // NFTA_IMMEDIATE_DATA
	nftDataValue    = 1 // NFTA_DATA_VALUE
	nftTproxyFamily = 1 // NFTA_TPROXY_FAMILY
	nftTproxyPort   = 3 // NFTA_TPROXY_REG_PORT

	nftRegister1 = 1 // NFT_REG_1
	nftNested    = unix.NLA_F_NESTED
)

// tryNFTables makes a table and, with tproxy, a prerouting chain with a tproxy
// rule, in the child's own network namespace: one batch, as nf_tables wants it.
func tryNFTables(tproxy bool) error {
	const name = "hutch_probe"
	create := []nlMessage{
		{unix.NFT_MSG_NEWTABLE, attr(nftTableName, text(name))},
	}
	if tproxy {
		hook := join(attr(nftHookNum, be32(unix.NF_INET_PRE_ROUTING)), attr(nftHookPriority, be32(0)))
		port := join(attr(nftImmDreg, be32(nftRegister1)),
			attr(nftImmData|nftNested, attr(nftDataValue, []byte{0x1f, 0x90}))) // 8080
		deliver := join(attr(nftTproxyFamily, be32(unix.NFPROTO_IPV4)), attr(nftTproxyPort, be32(nftRegister1)))
		create = append(create,
			nlMessage{unix.NFT_MSG_NEWCHAIN, join(attr(nftChainTable, text(name)), attr(nftChainName, text("in")),
				attr(nftChainHook|nftNested, hook), attr(nftChainType, text("filter")))},
			nlMessage{unix.NFT_MSG_NEWRULE, join(attr(nftRuleTable, text(name)), attr(nftRuleChain, text("in")),
				attr(nftRuleExprs|nftNested, join(expression("immediate", port), expression("tproxy", deliver))))})
	}
	return nftBatch(create)
}

// nlMessage is one message of a batch: its type within nf_tables and attributes.
type nlMessage struct {
	kind  uint16
	attrs []byte
}

// nftBatch sends messages as one transaction and waits for the kernel's verdict.
func nftBatch(messages []nlMessage) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("socket(NETLINK_NETFILTER): %w", err)
	}
	defer unix.Close(fd)
	// The answer comes with sendto's return; the limit is for a kernel that gives
	// none.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return fmt.Errorf("setsockopt(SO_RCVTIMEO): %w", err)
	}
	batch := encode(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	seq := uint32(0)
	for _, m := range messages {
		seq++
		flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_ACK)
		batch = append(batch, encode(unix.NFNL_SUBSYS_NFTABLES<<8|m.kind, flags, seq, unix.NFPROTO_IPV4, 0, m.attrs)...)
	}
	batch = append(batch, encode(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, seq+1, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)...)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send nf_tables batch: %w", err)
	}
	return verdict(fd, seq)
}

// verdict reads acknowledgements until that of last, or the first error.
func verdict(fd int, last uint32) error {
	buf := make([]byte, 1<<14)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR { //nolint:errorlint // straight from the system call
			continue
		} else if err != nil {
			return fmt.Errorf("read nf_tables acknowledgement: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return fmt.Errorf("parse nf_tables acknowledgement: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
				continue
			}
			if errno := -int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
				return fmt.Errorf("nf_tables message %d of %d: %w", m.Header.Seq, last, syscall.Errno(errno))
			}
			if m.Header.Seq == last {
				return nil
			}
		}
	}
}

// encode is struct nlmsghdr, struct nfgenmsg and the attributes.
func encode(kind, flags uint16, seq uint32, family uint8, resource uint16, attrs []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+4+len(attrs)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags)
	m = binary.NativeEndian.AppendUint32(m, seq)
	m = binary.NativeEndian.AppendUint32(m, 0) // port: the kernel fills it in
	m = append(m, family, unix.NFNETLINK_V0)
	m = binary.BigEndian.AppendUint16(m, resource)
	return append(m, attrs...)
}

// attr is struct nlattr with its value, padded to four bytes.
func attr(kind uint16, value []byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(value)))
	a = binary.NativeEndian.AppendUint16(a, kind)
	a = append(a, value...)
	return append(a, make([]byte, -len(a)&3)...)
}

func expression(name string, data []byte) []byte {
	return attr(nftListElem|nftNested, join(attr(nftExprName, text(name)), attr(nftExprData|nftNested, data)))
}

func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func text(s string) []byte     { return append([]byte(s), 0) }
func be32(value uint32) []byte { return binary.BigEndian.AppendUint32(nil, value) }

func failsNFTables(_ host, _ request, a attempt) (detail, remedy string) {
	detail = a.String() + ": network policies other than none are not enforced by nf_tables"
	switch a.Errno {
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ENOENT:
		return detail, "sudo modprobe -a nf_tables nft_tproxy"
	}
	return detail, ""
}
