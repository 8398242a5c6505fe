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
	metaL4Proto   = 16 // NFT_META_L4PROTO
	tproxyFamily  = 1  // NFTA_TPROXY_FAMILY
	tproxyAddr    = 2  // NFTA_TPROXY_REG_ADDR
	tproxyPort    = 3  // NFTA_TPROXY_REG_PORT
	redirPort     = 1  // NFTA_REDIR_REG_PROTO_MIN

	regVerdict = 0 // NFT_REG_VERDICT
	register1  = 1 // NFT_REG_1
	register2  = 2 // NFT_REG_2

	acceptPacket = 1 // NF_ACCEPT
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
		Body: append(nftHeader(c.Family, 0), Join(attrs...)...),
	}
}

// nftHeader is struct nfgenmsg (linux/netfilter/nfnetlink.h).
func nftHeader(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

// NewTable makes the table; one that is there already stays.
func (c Chain) NewTable() Message {
	return c.message(unix.NFT_MSG_NEWTABLE, Attr(tableName, text(c.Table)))
}

// DelTable removes the table with all that is in it.
func (c Chain) DelTable() Message {
	m := c.message(unix.NFT_MSG_DELTABLE, Attr(tableName, text(c.Table)))
	m.Flags = 0
	return m
}

// Hook makes the chain: a kind ("filter", "nat") at a hook, in an order among others.
func (c Chain) Hook(kind string, hook uint32, priority int32) Message {
	return c.message(unix.NFT_MSG_NEWCHAIN, Attr(chainTable, text(c.Table)), Attr(chainName, text(c.Name)),
		Nested(chainHook, Attr(hookNumber, be32(hook)), Attr(hookPriority, be32(uint32(priority)))),
		Attr(chainType, text(kind)))
}

// Rule appends a rule, of the expressions that functions of this package return.
func (c Chain) Rule(expressions ...[]byte) Message {
	m := c.message(unix.NFT_MSG_NEWRULE, Attr(ruleTable, text(c.Table)), Attr(ruleChain, text(c.Name)),
		Nested(ruleExprs, expressions...))
	m.Flags |= unix.NLM_F_APPEND
	return m
}

func expression(name string, data ...[]byte) []byte {
	return Nested(listElement, Attr(exprName, text(name)), Nested(exprData, data...))
}

// Payload ends the rule for packets that have not these bytes at an offset of a header.
func Payload(header, offset uint32, want []byte) []byte {
	return Join(expression("payload", Attr(payloadReg, be32(register1)), Attr(payloadBase, be32(header)),
		Attr(payloadOffset, be32(offset)), Attr(payloadLen, be32(uint32(len(want))))), equal(want))
}

// Protocol ends the rule for packets of other transport protocols.
func Protocol(number uint8) []byte {
	return Join(expression("meta", Attr(metaReg, be32(register1)), Attr(metaKey, be32(metaL4Proto))), equal([]byte{number}))
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

// SamePort is the port that a packet is for.
const SamePort = 0

// TProxy gives packets to the transparent socket that is bound to an address and a port;
// where there is none, the rule ends.
func TProxy(family uint8, addr []byte, port uint16) []byte {
	what := [][]byte{Attr(tproxyFamily, be32(uint32(family))), Attr(tproxyAddr, be32(register1))}
	if port == SamePort {
		return Join(load(register1, addr), expression("tproxy", what...))
	}
	return Join(load(register1, addr), load(register2, be16(port)), expression("tproxy", append(what, Attr(tproxyPort, be32(register2)))...))
}

// Redirect makes a port of this host itself the destination (NAT).
func Redirect(port uint16) []byte {
	return Join(load(register1, be16(port)), expression("redir", Attr(redirPort, be32(register1))))
}

func text(s string) []byte { return append([]byte(s), 0) }
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
