package nlmsg

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Attributes and numbers of nf_tables (linux/netfilter/nf_tables.h); x/sys has only its
// messages.
const (
	tableName    = 1 // NFTA_TABLE_NAME
	chainTable   = 1 // NFTA_CHAIN_TABLE
	chainName    = 3 // NFTA_CHAIN_NAME
	chainHook    = 4 // NFTA_CHAIN_HOOK
	chainType    = 7 // NFTA_CHAIN_TYPE
	hookNumber   = 1 // NFTA_HOOK_HOOKNUM
	hookPriority = 2 // NFTA_HOOK_PRIORITY
	ruleTable    = 1 // NFTA_RULE_TABLE
	ruleChain    = 2 // NFTA_RULE_CHAIN
	ruleExprs    = 4 // NFTA_RULE_EXPRESSIONS
	listElement  = 1 // NFTA_LIST_ELEM
	exprName     = 1 // NFTA_EXPR_NAME
	exprData     = 2 // NFTA_EXPR_DATA

	immediateReg  = 1  // NFTA_IMMEDIATE_DREG
	immediateData = 2  // NFTA_IMMEDIATE_DATA
	dataValue     = 1  // NFTA_DATA_VALUE
	dataVerdict   = 2  // NFTA_DATA_VERDICT
	verdictCode   = 1  // NFTA_VERDICT_CODE
	verdictChain  = 2  // NFTA_VERDICT_CHAIN
	payloadReg    = 1  // NFTA_PAYLOAD_DREG
	payloadBase   = 2  // NFTA_PAYLOAD_BASE
	payloadOffset = 3  // NFTA_PAYLOAD_OFFSET
	payloadLen    = 4  // NFTA_PAYLOAD_LEN
	compareReg    = 1  // NFTA_CMP_SREG
	compareOp     = 2  // NFTA_CMP_OP
	compareData   = 3  // NFTA_CMP_DATA
	compareEqual  = 0  // NFT_CMP_EQ
	metaReg       = 1  // NFTA_META_DREG
	metaKey       = 2  // NFTA_META_KEY
	metaMark      = 3  // NFT_META_MARK
	metaL4Proto   = 16 // NFT_META_L4PROTO
	bitwiseSource = 1  // NFTA_BITWISE_SREG
	bitwiseTo     = 2  // NFTA_BITWISE_DREG
	bitwiseLen    = 3  // NFTA_BITWISE_LEN
	bitwiseMask   = 4  // NFTA_BITWISE_MASK
	bitwiseXor    = 5  // NFTA_BITWISE_XOR
	queueNumber   = 1  // NFTA_QUEUE_NUM
	targetName    = 1  // NFTA_TARGET_NAME
	targetRev     = 2  // NFTA_TARGET_REV
	targetInfo    = 3  // NFTA_TARGET_INFO
	rejectType    = 1  // NFTA_REJECT_TYPE
	rejectCode    = 2  // NFTA_REJECT_ICMP_CODE
	rejectUnreach = 0  // NFT_REJECT_ICMP_UNREACH
	rejectReset   = 1  // NFT_REJECT_TCP_RST
	tproxyFamily  = 1  // NFTA_TPROXY_FAMILY
	tproxyAddr    = 2  // NFTA_TPROXY_REG_ADDR
	tproxyPort    = 3  // NFTA_TPROXY_REG_PORT
	redirPort     = 1  // NFTA_REDIR_REG_PROTO_MIN

	regVerdict = 0 // NFT_REG_VERDICT
	register1  = 1 // NFT_REG_1
	register2  = 2 // NFT_REG_2

	acceptPacket = 1  // NF_ACCEPT
	gotoChain    = -4 // NFT_GOTO
)

// Where Payload finds bytes.
const (
	NetworkHeader   = 1 // NFT_PAYLOAD_NETWORK_HEADER
	TransportHeader = 2 // NFT_PAYLOAD_TRANSPORT_HEADER
)

// Chain is a chain of a table of one family, which both have the names that they get here.
type Chain struct {
	Family uint8 // NFPROTO_IPV4, NFPROTO_IPV6
	Table  string
	Name   string
}

func (c Chain) message(kind uint16, attrs ...[]byte) Message {
	return Message{
		Kind: unix.NFNL_SUBSYS_NFTABLES<<8 | kind, Flags: unix.NLM_F_CREATE,
		Body: append(Header(c.Family, 0), Join(attrs...)...),
	}
}

// Header is struct nfgenmsg (linux/netfilter/nfnetlink.h), which messages of netfilter
// begin with.
func Header(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

// NewTable makes the table; one that is there already stays.
func (c Chain) NewTable() Message {
	return c.message(unix.NFT_MSG_NEWTABLE, Attr(tableName, text(c.Table)))
}

// New makes the chain, which rules of others go to.
func (c Chain) New() Message {
	return c.message(unix.NFT_MSG_NEWCHAIN, Attr(chainTable, text(c.Table)), Attr(chainName, text(c.Name)))
}

// Hook makes the chain: a kind ("filter", "nat") at a hook, in an order among others.
func (c Chain) Hook(kind string, hook uint32, priority int32) Message {
	return c.message(unix.NFT_MSG_NEWCHAIN, Attr(chainTable, text(c.Table)), Attr(chainName, text(c.Name)),
		Nested(chainHook, Attr(hookNumber, be32(hook)), Attr(hookPriority, be32(uint32(priority)))),
		Attr(chainType, text(kind)))
}

// Rule appends a rule, of the expressions that functions of this package return.
func (c Chain) Rule(expressions ...[]byte) Message {
	m := c.FirstRule(expressions...)
	m.Flags |= unix.NLM_F_APPEND
	return m
}

// FirstRule does the same in front of all others.
func (c Chain) FirstRule(expressions ...[]byte) Message {
	return c.message(unix.NFT_MSG_NEWRULE, Attr(ruleTable, text(c.Table)), Attr(ruleChain, text(c.Name)),
		Nested(ruleExprs, expressions...))
}

func expression(name string, data ...[]byte) []byte {
	return Nested(listElement, Attr(exprName, text(name)), Nested(exprData, data...))
}

// Payload ends the rule for packets that have not these bytes at an offset of a header.
func Payload(header, offset uint32, want []byte) []byte {
	return Join(payload(header, offset, len(want)), equal(want))
}

// Bits ends the rule for packets of which the byte at an offset of a header has not these
// values of the bits in mask.
func Bits(header, offset uint32, mask, want byte) []byte {
	return Join(payload(header, offset, 1),
		expression("bitwise", Attr(bitwiseSource, be32(register1)), Attr(bitwiseTo, be32(register1)),
			Attr(bitwiseLen, be32(1)),
			Nested(bitwiseMask, Attr(dataValue, []byte{mask})), Nested(bitwiseXor, Attr(dataValue, []byte{0}))),
		equal([]byte{want}))
}

func payload(header, offset uint32, length int) []byte {
	return expression("payload", Attr(payloadReg, be32(register1)), Attr(payloadBase, be32(header)),
		Attr(payloadOffset, be32(offset)), Attr(payloadLen, be32(uint32(length))))
}

// Protocol ends the rule for packets of other transport protocols.
func Protocol(number uint8) []byte {
	return Join(expression("meta", Attr(metaReg, be32(register1)), Attr(metaKey, be32(metaL4Proto))),
		equal([]byte{number}))
}

// Mark ends the rule for packets that are marked otherwise.
func Mark(mark uint32) []byte {
	return Join(expression("meta", Attr(metaReg, be32(register1)), Attr(metaKey, be32(metaMark))), equal(U32(mark)))
}

// equal ends the rule unless register 1 holds these bytes.
func equal(want []byte) []byte {
	return expression("cmp", Attr(compareReg, be32(register1)), Attr(compareOp, be32(compareEqual)),
		Nested(compareData, Attr(dataValue, want)))
}

func load(register uint32, value []byte) []byte {
	return expression("immediate", Attr(immediateReg, be32(register)), Nested(immediateData, Attr(dataValue, value)))
}

// Accept ends the chain.
func Accept() []byte {
	return expression("immediate", Attr(immediateReg, be32(regVerdict)),
		Nested(immediateData, Nested(dataVerdict, Attr(verdictCode, be32(acceptPacket)))))
}

// Queue gives packets to who listens at queue 0 of the namespace (nfnetlink_queue), and
// drops them where nobody does.
func Queue() []byte { return expression("queue", Attr(queueNumber, be16(0))) }

// QueueTarget does the same by the target of iptables, for kernels with nft_compat and
// without nft_queue. A verdict by itself does not do: kernels refuse it since 2026.
func QueueTarget() []byte {
	info := make([]byte, 8) // struct xt_NFQ_info (linux/netfilter/xt_NFQUEUE.h), padded: queue 0
	return expression("target", Attr(targetName, text("NFQUEUE")), Attr(targetRev, be32(0)), Attr(targetInfo, info))
}

// Reset drops a packet of TCP and answers it with a reset.
func Reset() []byte { return expression("reject", Attr(rejectType, be32(rejectReset))) }

// Unreachable drops a packet and answers it with "destination unreachable", with a code
// of the table's family (ICMP, ICMPv6).
func Unreachable(code uint8) []byte {
	return expression("reject", Attr(rejectType, be32(rejectUnreach)), Attr(rejectCode, []byte{code}))
}

// Goto goes on in another chain of the table, and does not come back.
func Goto(chain string) []byte {
	code := int32(gotoChain)
	return expression("immediate", Attr(immediateReg, be32(regVerdict)),
		Nested(immediateData, Nested(dataVerdict, Attr(verdictCode, be32(uint32(code))),
			Attr(verdictChain, text(chain)))))
}

// SamePort is the port that a packet is for.
const SamePort = 0

// TProxy gives packets to the transparent socket that is bound to an address and a port;
// where there is none, the rule ends.
func TProxy(family uint8, addr []byte, port uint16) []byte {
	what := [][]byte{Attr(tproxyFamily, be32(uint32(family))), Attr(tproxyAddr, be32(register1))}
	if port == SamePort {
		return Join(load(register1, addr), expression("tproxy", what...))
	}
	return Join(load(register1, addr), load(register2, be16(port)),
		expression("tproxy", append(what, Attr(tproxyPort, be32(register2)))...))
}

// Redirect makes a port of this host itself the destination (NAT).
func Redirect(port uint16) []byte {
	return Join(load(register1, be16(port)), expression("redir", Attr(redirPort, be32(register1))))
}

func text(s string) []byte { return append([]byte(s), 0) }
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
