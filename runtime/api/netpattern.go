package api

import (
	"net/netip"
	"strconv"
	"strings"
)

// NetProto is a transport protocol.
type NetProto string

// The protocols that a policy can allow.
const (
	TCP NetProto = "tcp"
	UDP NetProto = "udp"
)

// NetPattern is one entry of NetPolicy.Allow or Block, read.
type NetPattern struct {
	Name  string // lower case, without a trailing dot; "" with Below is every name
	Below bool   // the names below Name at any depth, and not Name itself
	// Proto is "" without a scheme: in Allow TCP whose TLS or HTTP names the host, in
	// Block everything.
	Proto NetProto
	Port  uint16 // 0 without one: in Allow 80 and 443, in Block all
}

// HostName stands for the loopback of the host that hutch runs on: `host:5432` in Allow lets a sandbox connect to what
// listens on port 5432 there, and to nothing else of the host's. HostAlias is the same, for programs that want a dot in
// a name.
const (
	HostName  = "host"
	HostAlias = "host.hutch.internal"
)

// ParseNetPattern reads a pattern:
//
//	[tcp://|udp://] [*.] NAME [:PORT]
//
//	example.com            this name, ports 80 and 443; the stream must name it (TLS SNI, HTTP Host)
//	*.example.com          names below it, at any depth, and not itself
//	example.com:8443       this port; the stream must name it
//	tcp://example.com:5432 this port, any stream
//	udp://example.com:53   this port, datagrams
//	host:5432              this port of the host's loopback, any stream
//
// In block, a name without a port is blocked on all ports and protocols.
func ParseNetPattern(s string) (NetPattern, error) {
	p, problem := parsePattern(s)
	if problem != nil {
		return p, problem.at("pattern", s)
	}
	return p, nil
}

// problem is why an entry of a policy is refused. Entries are checked by the ten
// thousand: the error is made of it only once there is one.
type problem struct{ why, hint string }

func (p *problem) at(field, entry string) *Error {
	return invalid(field, "%q %s", entry, p.why).WithHint("%s", p.hint)
}

func parsePattern(s string) (NetPattern, *problem) {
	var p NetPattern
	rest := s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		switch p.Proto = NetProto(strings.ToLower(scheme)); p.Proto {
		case TCP, UDP:
		default:
			return p, &problem{"has a scheme that is neither tcp:// nor udp://",
				"leave the scheme out for TLS and HTTP; tcp://NAME:PORT is for other streams, udp://NAME:PORT for datagrams"}
		}
		rest = after
	}
	name, port, hasPort := strings.Cut(rest, ":")
	// Policies are long, and of most names it is plain that they are no address.
	if strings.Contains(port, ":") || strings.HasPrefix(name, "[") ||
		isNumber(name[strings.LastIndexByte(name, '.')+1:]) {
		if a, err := netip.ParseAddrPort(rest); err == nil {
			return p, literal(a.Addr())
		}
		if a, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
			return p, literal(a)
		}
	}
	if hasPort {
		// ParseUint takes no sign; a leading zero is refused because other
		// readers of the same text may take it for octal.
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' {
			return p, &problem{"has no port from 1 to 65535 behind its colon",
				"write NAME:PORT, such as example.com:8443"}
		}
		p.Port = uint16(n)
	}
	if p.Proto != "" && p.Port == 0 {
		return p, &problem{"has a scheme and no port", "write " + string(p.Proto) + "://NAME:PORT"}
	}
	if name == "*" {
		p.Below = true
		return p, nil
	}
	name, p.Below = strings.CutPrefix(name, "*.")
	var problem *problem
	if p.Name, problem = cleanName(name); problem != nil || p.Below {
		return p, problem
	}
	return p, p.host()
}

// host makes p an entry for the host, where it is one.
func (p *NetPattern) host() *problem {
	if p.Name == HostAlias {
		p.Name = HostName
	}
	switch {
	case p.Name != HostName:
	case p.Proto == UDP:
		return &problem{"asks for datagrams of this host", "services of the host are reached by TCP: host:PORT"}
	case p.Port != 0:
		p.Proto = TCP // whatever it speaks
	}
	return nil
}

func literal(a netip.Addr) *problem {
	return &problem{"is an address and not a name", "put " + a.Unmap().
		String() + " into allow_cidrs or block_cidrs (--allow-cidr, --block-cidr)"}
}

// tooBroad says why nobody means this pattern in an allow list.
func (p *NetPattern) tooBroad() *problem {
	switch {
	case p.Below && p.Name == "":
		return &problem{"allows every name there is", "use mode open for that, with what you want to block in block"}
	case p.Below && !strings.Contains(p.Name, "."):
		return &problem{"allows every name under a top-level domain, which anybody can register",
			"name the domains below it, such as *.example." + p.Name}
	case p.Name == HostName && !p.Below && p.Port == 0:
		return &problem{"allows every service of this host",
			"name the port of the one that is meant, such as host:5432"}
	case p.Name == "localhost" || strings.HasSuffix(p.Name, ".localhost"):
		return &problem{"is the sandbox itself, in a sandbox", "a service of this host is host:PORT"}
	}
	return nil
}

// NetName is the form in which names are compared: lower case, without the trailing dot.
// It refuses what no policy can name: other bytes than letters, digits, hyphens and
// underscores in a label (a NUL is a byte like any other on the wire), labels over 63
// and names over 253 bytes, and numbers that a C library takes for an address
// (0177.1, 0x7f000001, 2130706433).
func NetName(s string) (string, error) {
	name, problem := cleanName(s)
	if problem != nil {
		return "", problem.at("name", s)
	}
	return name, nil
}

func cleanName(s string) (string, *problem) {
	const hint = "write a name such as example.com, or *.example.com for those below it"
	name := strings.TrimSuffix(s, ".")
	switch {
	case name == "":
		return "", &problem{"holds no name", hint}
	case len(name) > 253:
		return "", &problem{"is longer than a name can be, 253 bytes", hint}
	}
	rest := name
	for more := true; more; {
		var label string
		label, rest, more = strings.Cut(rest, ".")
		if why := badLabel(label); why != nil {
			return "", why
		}
		if !more && isNumber(label) {
			return "", &problem{"ends in a number, which makes it an address to many programs",
				"put addresses into allow_cidrs or block_cidrs (--allow-cidr, --block-cidr)"}
		}
	}
	return strings.ToLower(name), nil
}

func badLabel(label string) *problem {
	switch {
	case label == "":
		return &problem{"holds an empty label", "leave out the dot that is too much"}
	case len(label) > 63:
		return &problem{"holds a label of more than 63 bytes", "names like that cannot be looked up"}
	}
	for i := range len(label) {
		switch c := label[i]; {
		case c >= 0x80:
			return &problem{"holds letters outside ASCII",
				"write the name's ASCII form, whose labels begin with xn--: xn--bcher-kva.example is bücher.example"}
		case c == '*':
			return &problem{"holds a * that is not the whole of its first label",
				"*.example.com is the only place for one"}
		case c == '/':
			return &problem{"holds a path", "leave out all behind the name: a policy knows names and ports, no paths"}
		case c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		default:
			return &problem{"holds " + strconv.QuoteRuneToASCII(rune(c)) + ", which is in no name",
				"names hold letters, digits, hyphens and underscores"}
		}
	}
	return nil
}

// isNumber says that a last label makes inet_aton or a browser read the name as an
// IPv4 address: decimal, octal or hexadecimal.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, digits) == ""
}
