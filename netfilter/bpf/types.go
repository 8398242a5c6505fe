// Package bpf writes what the eBPF programs of hutch-netd decide by, and reads what they
// tell. It needs the maps' fds and no privilege: the programs themselves are
// netfilter/bpf/program's.
package bpf

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Verdict is what becomes of a connection.
type Verdict uint8

// The verdicts. The zero value allows nothing.
const (
	Allow Verdict = 1
	Deny  Verdict = 2
)

// Hook is where a connection met the programs.
type Hook uint8

// The hooks.
const (
	Connect Hook = 1 // connect(2), with its errno
	Sendmsg Hook = 2 // a datagram with an address
	Socket  Hook = 3 // socket(2): neither TCP nor UDP
	Egress  Hook = 4 // a packet that came past the others
)

// Proto is a transport in a rule.
type Proto uint8

// The transports that rules know; MPTCP is TCP, UDP-Lite is UDP.
const (
	TCP Proto = syscall.IPPROTO_TCP
	UDP Proto = syscall.IPPROTO_UDP
)

// Address is one address that a sandbox may reach, or may not though a range would let it.
type Address struct {
	Addr    netip.Addr // IPv4, or IPv6 without a zone
	Port    uint16     // 0 is any
	Proto   Proto
	Verdict Verdict
	Rule    uint32        // the caller's number for it, in events
	Expires time.Duration // CLOCK_MONOTONIC; 0 is never
}

// Range is a prefix. Of those that hold an address the longest decides, and Address comes
// before all: who means that a block wins must leave out what is allowed inside it.
type Range struct {
	Prefix   netip.Prefix
	TCP, UDP bool // which of them, when allowed
	Verdict  Verdict
	Rule     uint32
}

// Policy is all that one sandbox may reach, beside its own loopback.
type Policy struct {
	// Errno is what refused programs see, one of Errnos; 0 is EACCES, as of a route that
	// prohibits.
	Errno syscall.Errno
	// TellAllowed asks for events of what is allowed, too.
	TellAllowed bool
	Addresses   []Address
	Ranges      []Range
}

// Errnos are the errors that a refusal may have. The programs turn others into EACCES.
var Errnos = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENETUNREACH, syscall.ECONNREFUSED,
	syscall.EHOSTUNREACH}

// What follows has the layout of program/hutch.c.

type sandboxValue struct {
	Table uint64
	Flags uint32
	Error int32
}

const (
	tellAllowed = 1
	hasExecs    = 2
)

type addressKey struct {
	Table uint64
	IP    [16]byte
	Port  [2]byte // big-endian
	Proto uint8
	Zero  [5]byte
}

type addressValue struct {
	Expires uint64
	Verdict uint32
	Rule    uint32
}

type cidrKey struct {
	Prefix uint32 // bits, the table's 64 included
	Table  [2]uint32
	IP     [16]byte
}

type cidrValue struct {
	Verdict uint32
	Protos  uint32
	Rule    uint32
}

const (
	protoTCP = 1
	protoUDP = 2
)

// Counts are a sandbox's numbers since it was added.
type Counts struct {
	Allowed uint64
	Denied  uint64
	Lost    uint64 // events that nobody had read in time
}

type eventValue struct {
	Sandbox  uint64
	Cgroup   uint64
	Time     uint64
	IP       [16]byte
	PID      uint32
	UID      uint32
	Rule     uint32
	Error    int32
	Port     [2]byte
	Protocol uint16
	Hook     uint8
	Verdict  uint8
	Type     uint8
	Zero     uint8
}

// value is what the sandbox's entry says of a policy.
func (p Policy) value(table uint64) (sandboxValue, error) {
	v := sandboxValue{Table: table, Error: int32(p.Errno)}
	if p.Errno == 0 {
		v.Error = int32(syscall.EACCES)
	} else if !slices.Contains(Errnos, p.Errno) {
		return v, fmt.Errorf("refusals cannot have errno %d (%w): one of %v can", int(p.Errno), p.Errno, Errnos)
	}
	if p.TellAllowed {
		v.Flags |= tellAllowed
	}
	return v, nil
}

func (a Address) entry(table uint64) (addressKey, addressValue, error) {
	if !a.Addr.IsValid() || a.Addr.Zone() != "" || (a.Proto != TCP && a.Proto != UDP) ||
		(a.Verdict != Allow && a.Verdict != Deny) || a.Expires < 0 {
		return addressKey{}, addressValue{}, fmt.Errorf("no eBPF rule can be made of %+v", a)
	}
	k := addressKey{Table: table, IP: a.Addr.As16(), Port: [2]byte{byte(a.Port >> 8), byte(a.Port)},
		Proto: uint8(a.Proto)}
	return k, addressValue{Expires: uint64(a.Expires), Verdict: uint32(a.Verdict), Rule: a.Rule}, nil
}

func (r Range) entry(table uint64) (cidrKey, cidrValue, error) {
	if !r.Prefix.IsValid() || (r.Verdict != Allow && r.Verdict != Deny) {
		return cidrKey{}, cidrValue{}, fmt.Errorf("no eBPF rule can be made of %+v", r)
	}
	p := r.Prefix.Masked()
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	k := cidrKey{Prefix: uint32(64 + bits), Table: [2]uint32{uint32(table), uint32(table >> 32)}, IP: p.Addr().As16()}
	v := cidrValue{Verdict: uint32(r.Verdict), Rule: r.Rule}
	if r.TCP {
		v.Protos |= protoTCP
	}
	if r.UDP {
		v.Protos |= protoUDP
	}
	return k, v, nil
}
