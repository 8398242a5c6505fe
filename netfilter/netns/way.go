package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Way is how connections come from a namespace to its sockets.
type Way string

// The ways, best first.
const (
	// Hold is TProxy where connections wait before they are accepted, so that they can fail
	// as those to their servers do (Namespace.SYNs).
	Hold Way = "tproxy-hold"
	// TProxy hands packets to a transparent socket, without conntrack.
	TProxy Way = "tproxy"
	// Redirect rewrites destinations (NAT), for kernels without nft_tproxy: connections
	// take longer, ports of udp:// are taken inside, there are no literals of IPv6.
	Redirect Way = "redirect"
	// PerPort needs no nf_tables: a listener for each port that the policy names. These
	// ports are then taken inside as well, and mode open is not possible.
	PerPort Way = "per-port"
)

var ways = []Way{Hold, TProxy, Redirect, PerPort}

// Unsupported is a policy that the way in force cannot carry out.
type Unsupported struct{ Way, What string }

func (e *Unsupported) Error() string {
	return fmt.Sprintf("%s: not possible in the way %q, which is what this kernel allows", e.What, e.Way)
}

// transparent says that packets come as they are to sockets that nothing inside can see.
func (w Way) transparent() bool { return w == Hold || w == TProxy }

func (w Way) supports(c *Config) error {
	switch {
	case len(c.UDPPorts) > maxPorts:
		return &Unsupported{string(w), fmt.Sprintf("datagrams to %d ports, more than %d", len(c.UDPPorts), maxPorts)}
	case w.transparent():
	case w == PerPort && c.Open:
		return &Unsupported{string(w), "mode open"}
	case w == PerPort && len(c.TCPPorts) > maxPorts:
		return &Unsupported{string(w), fmt.Sprintf("%d ports, more than %d", len(c.TCPPorts), maxPorts)}
	case slices.ContainsFunc(c.CIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }):
		return &Unsupported{string(w), "ranges of IPv6 addresses"}
	}
	return nil
}

// maxPorts bounds the sockets of one namespace that are for a port each.
const maxPorts = 64

// Best makes a namespace in the best way that this kernel allows, and says why the
// better ones are not possible.
func Best() (n *Namespace, reason string, err error) { return best(New) }

func best(try func(Way) (*Namespace, error)) (n *Namespace, reason string, err error) {
	var failures []error
	for _, w := range ways {
		n, err := try(w)
		if err == nil {
			return n, oneLine(errors.Join(failures...)), nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", w, err))
		if !missing(err) {
			break // of fds, of memory: the next way would work by luck
		}
	}
	return nil, "", errors.Join(failures...)
}

func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// missing says that the kernel lacks something, or refuses it.
func missing(err error) bool {
	for _, errno := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EINVAL, unix.EPERM,
		unix.EACCES, unix.ENOPROTOOPT} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
