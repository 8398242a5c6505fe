package api

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
)

// MaxPorts is how many ports of one sandbox can be reached from the host at the same time.
const MaxPorts = 64

// PortExposeParams are port.expose's params: let programs of the host connect to a TCP port in a sandbox, to servers
// that listen on 127.0.0.1 or ::1 there too.
type PortExposeParams struct {
	Sandbox string `json:"sandbox"`
	Port    int    `json:"port"`
	// Address is where hutchd listens: "IP:PORT", "PORT" or the absolute path of a Unix socket; PORT 0 is a free one.
	// By default, and where there is no IP, that is 127.0.0.1: other machines reach it only where an address such as
	// "0.0.0.0:8080" says so.
	Address string `json:"address,omitempty"`
	// Listener is the index, in the request's fds, of a socket that listens already, with the rights of the caller: on
	// a port or a path that hutchd may not use. Address then is missing, or of a Unix socket its path, which the socket
	// itself does not know.
	Listener *int `json:"listener,omitempty"`
	FDs      int  `json:"fds,omitempty"`
	// Token asks for one: only HTTP requests that have it pass.
	Token bool `json:"token,omitempty"`
	// Tool says that sandbox_expose_port asks for it.
	Tool bool `json:"-"`
}

// Port is a TCP port of a sandbox that can be reached from the host.
type Port struct {
	Sandbox string `json:"sandbox"`
	Port    int    `json:"port"`
	Address string `json:"address"` // "IP:PORT", or the path of a Unix socket
	// Token is what HTTP requests must have: "Authorization: Bearer TOKEN", or once "?token=TOKEN", which sets a
	// cookie.
	Token string `json:"token,omitempty"`
	URL   string `json:"url,omitempty"` // for browsers, with the token; "" of a Unix socket
	// Connections are open, Accepted have been made since hutchd started.
	Connections int   `json:"connections"`
	Accepted    int64 `json:"accepted"`
	// Tool says that sandbox_expose_port has exposed it, so that sandbox_close_port may close it.
	Tool bool `json:"tool,omitempty"`
}

// PortListParams ask for the ports of one sandbox, or of all.
type PortListParams struct {
	Sandbox string `json:"sandbox,omitempty"`
}

// Ports is a list of ports, by sandbox, port and address.
type Ports struct {
	Ports []Port `json:"ports"`
}

// PortCloseParams name what is not to be reached any more: a port, at one address or at all that it has.
type PortCloseParams struct {
	Sandbox string `json:"sandbox"`
	Port    int    `json:"port"`
	Address string `json:"address,omitempty"` // only this one; default: all of the port
}

// Validate refuses what can never be listened on.
func (p *PortExposeParams) Validate() error {
	if err := checkPort(p.Port); err != nil {
		return err
	}
	if p.Listener != nil {
		switch {
		case p.Address != "" && !strings.HasPrefix(p.Address, "/"):
			return invalid("address", "given together with listener").
				WithHint("a socket that listens has an address already; only the path of a Unix socket is told")
		case *p.Listener < 0 || *p.Listener >= p.FDs:
			return invalid("listener", "%d is no index of %d fds", *p.Listener, p.FDs).
				WithHint("send the listening socket with the request, and say fds: 1")
		}
	}
	_, err := ParsePortAddress(p.Address)
	return err
}

// Validate refuses what cannot have been exposed.
func (p *PortCloseParams) Validate() error {
	if err := checkPort(p.Port); err != nil || p.Address == "" {
		return err
	}
	_, err := ParsePortAddress(p.Address)
	return err
}

func checkPort(port int) error {
	if port < 1 || port > 65535 {
		return invalid("port", "%d is no TCP port", port).
			WithHint("it is the one that the server in the sandbox listens on: 1 to 65535")
	}
	return nil
}

// maxSocketPath is the longest path of a Unix socket (sun_path, unix(7)), without its end.
const maxSocketPath = 107

// PortAddress is where a port is reached: a path, or else an address and a port.
type PortAddress struct {
	Path string
	netip.AddrPort
}

func (a PortAddress) String() string {
	if a.Path != "" {
		return a.Path
	}
	return a.AddrPort.String()
}

// ParsePortAddress reads PortExposeParams.Address.
func ParsePortAddress(s string) (a PortAddress, err error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	bad := func(why string) error {
		return invalid("address", "%q is no address to listen on: %s", s, why).
			WithHint("write IP:PORT such as 127.0.0.1:8080, PORT alone for this host's programs, 0 for a free one, or the absolute path of a Unix socket")
	}
	switch {
	case s == "":
		return PortAddress{AddrPort: netip.AddrPortFrom(loopback, 0)}, nil
	case strings.HasPrefix(s, "/"):
		if len(s) > maxSocketPath || strings.ContainsRune(s, 0) || path.Clean(s) != s || s == "/" {
			return a, bad(fmt.Sprintf("a path of a socket has at most %d bytes, and neither . nor .. nor // in it",
				maxSocketPath))
		}
		return PortAddress{Path: s}, nil
	case strings.HasPrefix(s, ":"):
		return a, bad("it does not say which of this host's addresses; 0.0.0.0 or [::] in front of the colon are all")
	}
	host, port := "127.0.0.1", s
	if at := strings.LastIndexByte(s, ':'); at >= 0 {
		host, port = s[:at], s[at+1:]
	}
	number := 0
	for _, c := range []byte(port) {
		if c < '0' || c > '9' || number > 65535 {
			return a, bad("the port is no number")
		}
		number = number*10 + int(c-'0')
	}
	if port == "" || number > 65535 {
		return a, bad("the port is no number from 0 to 65535")
	}
	switch {
	case host == "localhost":
		host = "127.0.0.1"
	case strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]"):
		host = host[1 : len(host)-1]
	case strings.Contains(host, ":"):
		return a, bad("an address of IPv6 is written in [brackets]")
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return a, bad(fmt.Sprintf("%q is no IP address", host))
	}
	return PortAddress{AddrPort: netip.AddrPortFrom(addr, uint16(number))}, nil
}

// PortPublish is what -p of the command line says: [[IP:]HOSTPORT:]PORT, or PATH:PORT.
type PortPublish struct {
	Address string // "" is a free port of 127.0.0.1
	Port    int
}

// ParsePublish reads -p as users of other runtimes know it, but that no IP is 127.0.0.1.
func ParsePublish(s string) (p PortPublish, err error) {
	inside := strings.TrimSuffix(s, "/tcp")
	if at := strings.LastIndexByte(inside, ':'); at >= 0 {
		p.Address, inside = inside[:at], inside[at+1:]
		if p.Address == "" { // :PORT, a free one
			p.Address = "0"
		}
		if strings.HasSuffix(p.Address, ":") { // IP::PORT
			p.Address += "0"
		}
	}
	a, err := ParsePortAddress(inside)
	if err != nil || a.Path != "" || a.Port() == 0 || strings.ContainsAny(inside, "[.") {
		return p, invalid("port", "%q does not end with the port in the sandbox", s).
			WithHint("-p PORT, -p HOSTPORT:PORT, -p IP:HOSTPORT:PORT or -p /path/of/socket:PORT; TCP only")
	}
	p.Port = int(a.Port())
	_, err = ParsePortAddress(p.Address)
	return p, err
}

// PortEvent is the data of port.opened: a server in the sandbox listens, which port.expose could make reached.
type PortEvent struct {
	Port   int    `json:"port"`
	Listen string `json:"listen"` // its address inside: of the loopback, or 0.0.0.0 or ::
	// Addresses are where the host reaches it; none while it is not exposed.
	Addresses []string `json:"addresses,omitempty"`
}
