package api

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// NetTarget is what a sandbox wanted to reach: a name, the address behind it or one without
// a name, and a port. A lookup has a name only.
type NetTarget struct {
	Proto   NetProto `json:"proto,omitempty"` // "" is a lookup, or unknown without a name
	Name    string   `json:"name,omitempty"`
	Address string   `json:"address,omitempty"` // IP address
	Port    uint16   `json:"port,omitempty"`    // of TCP or UDP
}

// Where is the target in one word, as in "udp://ntp.test:123": the address where there is no name, "tcp://" left out.
func (t NetTarget) Where() string {
	s := t.Name
	switch {
	case s == "" && t.Address == "": // as far as is known
		return "an address"
	case s == "":
		s = t.Address
		if t.Port != 0 && strings.Contains(s, ":") {
			s = "[" + s + "]"
		}
	}
	if t.Port != 0 {
		s = fmt.Sprintf("%s:%d", s, t.Port)
	}
	if t.Proto == UDP {
		s = "udp://" + s
	}
	return s
}

// Denial is an operation that the sandbox refused.
type Denial struct {
	Kind       string `json:"kind"` // net, file, syscall, fs, limit
	Target     string `json:"target"`
	Rule       string `json:"rule"`
	Why        string `json:"why"`
	HowToAllow string `json:"how_to_allow"`

	// Of a Kind net. An address is what a name resolved to, or what there was no name for.
	NetTarget
	// Exec is the one that was refused, which eBPF knows; else the only exec that ran at that
	// time, from which processes that an earlier exec left behind are not told apart. Without
	// one, several ran or none did.
	Exec string `json:"exec,omitempty"`
	Refusal
	// Count is how often the very same happened, Time when last.
	Count int64     `json:"count,omitempty"`
	Time  time.Time `json:"time,omitzero"`
	// Probe says that programs try this by themselves and do as well without it: people are shown it on request.
	Probe bool `json:"probe,omitempty"`
}

// Refusal says who refused what, and to which process.
type Refusal struct {
	// By is "ebpf", "proxy", "names", "route", "seccomp", "mount", "guard" or "mode"; Errno is what the program saw of
	// it: EACCES, or what its protocol has, as "HTTP 403" or "NXDOMAIN".
	By    string `json:"by,omitempty"`
	Errno string `json:"errno,omitempty"`
	// Process is the last that was refused this; eBPF alone knows it.
	Process *NetProcess `json:"process,omitempty"`
}

// Failure is a connection or lookup that the policy allows and that could not be made outside of the sandbox.
type Failure struct {
	Target string `json:"target"`
	Why    string `json:"why"`
	// Hint is what to do about it, "" where that is for whoever runs the server.
	Hint string `json:"hint,omitempty"`

	// An address is what a name led to, and did not answer.
	NetTarget
	Exec  string `json:"exec,omitempty"`  // as of a Denial
	Errno string `json:"errno,omitempty"` // what the program saw: ECONNRESET where it was connected to hutch already
	// Count is how often the very same happened, Time when last.
	Count int64     `json:"count,omitempty"`
	Time  time.Time `json:"time,omitzero"`
}

// Text is a sentence about it, for people and models.
func (f *Failure) Text() string {
	text := f.Target + " failed: " + f.Why
	if f.Hint != "" {
		text += " (" + f.Hint + ")"
	}
	return text
}

// FailedEvent is the data of network.failed. What fails again and again is reported less often, as in DeniedEvent.
type FailedEvent struct {
	NetTarget
	Why    string `json:"why"`
	Hint   string `json:"hint,omitempty"`
	Errno  string `json:"errno,omitempty"`
	Count  int64  `json:"count"`
	Untold int64  `json:"untold,omitempty"`
}

// NetProcess is a process of a sandbox as the kernel has it. What it says of itself, its
// command, is what it wants to say.
type NetProcess struct {
	PID     int `json:"pid,omitempty"` // as the sandbox counts; 0 when it was gone
	HostPID int `json:"host_pid"`      // as the host counts
	HostUID int `json:"host_uid"`      // its user, as the host counts
	// Command are its arguments, without control characters and cut after 1 KiB; none when
	// it was gone.
	Command []string `json:"command,omitempty"`
}

// NetEnforcement says how a network policy is enforced.
type NetEnforcement struct {
	// EBPF is "on" where the kernel itself refuses what the policy does not name, else "off",
	// for a Reason.
	EBPF   string `json:"ebpf"`
	Reason string `json:"reason,omitempty"`
	// Proxy is how connections come to the proxy, which enforces the policy in any case:
	// "tproxy-hold", "tproxy", "redirect" or "per-port"; "" in mode none, which has no way out.
	Proxy string `json:"proxy,omitempty"`
	// Errno is what connect(2) to an address that the policy does not name fails with.
	Errno string `json:"errno"`
}

// The kinds of denials that are watched for: of the network policy, of PID 1's seccomp filter, and in debug mode of
// the permissions of files.
const (
	KindNet     = "net"
	KindSyscall = "syscall"
	KindFile    = "file"
)

// Watched says that events tell of d as it happens; others are found out when a command has ended.
func (d *Denial) Watched() bool {
	return d.Kind == KindNet || d.Kind == KindSyscall || d.Kind == KindFile
}

// FileEvent is the data of file.denied: a process is refused a file by mounts or permissions. It is told in sandboxes
// that were created with debug, just before it happens: the kernel was asked on behalf of the process.
type FileEvent struct {
	Op         string `json:"op"`   // read, write, create, remove, rename, change the mode of, change the owner of
	Path       string `json:"path"` // without symlinks, as the process sees it
	Rule       string `json:"rule"`
	Why        string `json:"why"`
	HowToAllow string `json:"how_to_allow,omitempty"`
	Count      int64  `json:"count"`
	Untold     int64  `json:"untold,omitempty"`
	Refusal
}

// SyscallEvent is the data of syscall.denied: the filter of the sandbox refused a system
// call. What many processes are refused again and again is reported less often, as in DeniedEvent.
type SyscallEvent struct {
	Syscall    string   `json:"syscall"`
	Args       []string `json:"args"` // hexadecimal, as the kernel got them
	Rule       string   `json:"rule"`
	Why        string   `json:"why"`
	HowToAllow string   `json:"how_to_allow,omitempty"` // "" where no profile allows it
	Count      int64    `json:"count"`
	Untold     int64    `json:"untold,omitempty"`
	Probe      bool     `json:"probe,omitempty"` // as of a Denial
	Refusal
}

// DeniedEvent is the data of network.denied. A sandbox that is refused again and again is
// told about less often: Count says how many refusals of the same an event stands for, Untold
// how many of others there were before it that no event was for.
type DeniedEvent struct {
	NetTarget
	Rule       string `json:"rule"`
	Why        string `json:"why"`
	HowToAllow string `json:"how_to_allow"`
	Count      int64  `json:"count"`
	Untold     int64  `json:"untold,omitempty"`
	Probe      bool   `json:"probe,omitempty"` // as of a Denial
	Refusal
	// Cgroup is that of the process, 0 when it is not known.
	Cgroup uint64 `json:"-"`
}

// NetUse counts what a rule has let pass, and refused.
type NetUse struct {
	Rule          string `json:"rule"`
	Connections   int64  `json:"connections"`    // that were made
	SentBytes     int64  `json:"sent_bytes"`     // by the sandbox
	ReceivedBytes int64  `json:"received_bytes"` // by the sandbox
	Denials       int64  `json:"denials"`        // that the rule has refused
}

// Network is network.get's result: the policy in force, and what it has done.
type Network struct {
	Sandbox     string         `json:"sandbox"`
	Network     NetPolicy      `json:"network"`
	Enforcement NetEnforcement `json:"enforcement"`
	Rules       []NetUse       `json:"rules"`
	// Denials are what was refused, once each, the latest last; Untold counts what there
	// was no room for.
	Denials []Denial `json:"denials"`
	// Failures are what was allowed and failed, in the same way.
	Failures []Failure `json:"failures,omitempty"`
	Untold   int64     `json:"untold,omitempty"` // denials that Denials has no place for
	// Learned, of mode learn, is the smallest policy that would have allowed what the
	// sandbox has reached or wanted to reach so far.
	Learned *NetPolicy `json:"learned,omitempty"`
}

// NetUpdateParams are network.update's params: the whole policy, or changes of it.
// Connections that the new policy does not allow are closed.
type NetUpdateParams struct {
	Sandbox string     `json:"sandbox"`
	Network *NetPolicy `json:"network,omitempty"` // instead of the policy in force
	Add     *NetLists  `json:"add,omitempty"`     // to its lists
	Remove  *NetLists  `json:"remove,omitempty"`  // from its lists; each entry must be in them
}

// NetLists are entries of a policy's lists.
type NetLists struct {
	Allow      []string `json:"allow,omitempty"`       // names, with a port if it is another than 80 and 443
	Block      []string `json:"block,omitempty"`       // names that are refused
	AllowCIDRs []string `json:"allow_cidrs,omitempty"` // addresses
	BlockCIDRs []string `json:"block_cidrs,omitempty"` // addresses that are refused
}

// Validate refuses an update that could never be made.
func (p *NetUpdateParams) Validate() error {
	changes := p.Add != nil || p.Remove != nil
	switch {
	case p.Network == nil && !changes:
		return invalid("network", "nothing to change").
			WithHint(`give the whole policy in network, or entries in add and remove, as in {"add": {"allow": ["example.com"]}}`)
	case p.Network != nil && changes:
		return invalid("add", "given together with network").WithHint("give the whole policy, or changes of it")
	case p.Network != nil:
		return p.Network.Validate("network")
	}
	return nil
}

// Apply is the policy that an update of old leads to.
func (p *NetUpdateParams) Apply(old NetPolicy) (NetPolicy, error) {
	if p.Network != nil {
		return p.Network.Settled(), nil
	}
	next := old
	for _, l := range []struct {
		field string
		list  *[]string
		of    func(*NetLists) []string
	}{
		{"allow", &next.Allow, func(l *NetLists) []string { return l.Allow }},
		{"block", &next.Block, func(l *NetLists) []string { return l.Block }},
		{"allow_cidrs", &next.AllowCIDRs, func(l *NetLists) []string { return l.AllowCIDRs }},
		{"block_cidrs", &next.BlockCIDRs, func(l *NetLists) []string { return l.BlockCIDRs }},
	} {
		list := slices.Clone(*l.list) // old's are others' to read
		if p.Remove != nil {
			for i, entry := range l.of(p.Remove) {
				at := slices.Index(list, entry)
				if at < 0 {
					return old, invalid(fmt.Sprintf("remove.%s[%d]", l.field, i), "%q is not in the policy", entry).
						WithHint("network.get shows its entries")
				}
				list = slices.Delete(list, at, at+1)
			}
		}
		if p.Add != nil {
			for _, entry := range l.of(p.Add) {
				if !slices.Contains(list, entry) {
					list = append(list, entry)
				}
			}
		}
		*l.list = list
	}
	return next, next.Validate("network")
}

// Settled is p as records show it: with its mode, and without a tier.
func (p *NetPolicy) Settled() NetPolicy {
	s := *p
	s.Mode, s.Tier = p.Effective(), ""
	return s
}

// NetCheckParams are network.check's params: what would happen if a sandbox, or one with
// this policy, wanted to reach something. Nothing is looked up or sent.
type NetCheckParams struct {
	Sandbox string     `json:"sandbox,omitempty"` // exactly one of Sandbox and Network
	Network *NetPolicy `json:"network,omitempty"` // one that asks for nothing is the configuration's
	// A Name alone is a lookup, with a Port a connection; an Address alone is a connection
	// to it, with a Name the name's connection when it resolves to that.
	NetTarget
}

// Validate refuses a question without a subject.
func (p *NetCheckParams) Validate() error {
	switch {
	case p.Sandbox == "" && p.Network == nil:
		return invalid("sandbox", "missing").WithHint("name a sandbox, or give a policy in network")
	case p.Sandbox != "" && p.Network != nil:
		return invalid("network", "given together with a sandbox").WithHint("give exactly one of the two")
	case p.Name == "" && p.Address == "":
		return invalid("name", "missing").WithHint("give a name, an address, or both")
	case p.Proto != "" && p.Proto != TCP && p.Proto != UDP:
		return invalid("proto", "%q is no protocol", p.Proto).WithHint("use tcp or udp")
	}
	if p.Address != "" {
		if _, err := netip.ParseAddr(p.Address); err != nil {
			return invalid("address", "%q is no address", p.Address).
				WithHint("write one such as 192.0.2.1 or 2001:db8::1; names belong into name")
		}
	}
	if p.Network != nil {
		return p.Network.Validate("network")
	}
	return nil
}

// NetVerdict is network.check's result.
type NetVerdict struct {
	Allow bool `json:"allow"` // whether it is allowed
	// Step is where it was decided: "lookup", "connect" or "dial", which is when hutch
	// has the address of a name.
	Step       string `json:"step"`
	Rule       string `json:"rule"` // an entry of the policy after the name of its list, a mode, or a rule of hutch's
	Why        string `json:"why"`
	HowToAllow string `json:"how_to_allow,omitempty"`
	Ask        bool   `json:"ask,omitempty"` // it is refused unless somebody who is asked allows it
	// Check, of an allowed connection, is what its stream must show: "tls", "http",
	// "tls or http" (that the host's name is this name), "block" (that it is no blocked
	// one), or "none".
	Check string `json:"check,omitempty"`
}
