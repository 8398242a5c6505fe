package program

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The worker's network: everything in these ranges is the worker itself, as in a sandbox's
// namespace, and it listens on one port.
const (
	range4 = "198.18.0.0/15"
	range6 = "fd00:1::/64"
	open   = 7000
)

// work does what stdin says, a line at a time.
func work() {
	if err := network(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	kept := map[string]int{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		f := strings.Fields(lines.Text())
		fmt.Println(name(act(f[0], f[1:], kept)))
	}
}

func network() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, s := range []string{range4, range6} {
		_, dst, err := net.ParseCIDR(s)
		if err != nil {
			return err
		}
		r := netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL,
			Scope: unix.RT_SCOPE_HOST}
		if err := netlink.RouteAdd(&r); err != nil {
			return fmt.Errorf("route %s: %w", s, err)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0)
}

// name is an errno's.
func name(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// act makes the system calls of one line. Sockets that must not go are kept by name.
func act(verb string, args []string, kept map[string]int) error {
	switch verb {
	case "listen": // tcp4 and tcp6, on the open port
		s, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(s, &unix.SockaddrInet6{Port: open}), unix.Listen(s, 100))
	case "socket": // family type protocol
		s, err := unix.Socket(number(args[0]), number(args[1]), number(args[2]))
		if err != nil {
			return err
		}
		return unix.Close(s)
	case "connect", "sendto", "fastopen", "fastopen-later": // family type protocol address:port
		s, err := unix.Socket(number(args[0]), number(args[1]), number(args[2]))
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return reach(verb, s, number(args[0]), args[3])
	case "keep": // name family type protocol
		s, err := unix.Socket(number(args[1]), number(args[2]), number(args[3]))
		kept[args[0]] = s
		return err
	case "connect-kept": // name address:port
		return reach("connect", kept[args[0]], unix.AF_INET, args[1])
	case "write": // name
		_, err := unix.Write(kept[args[0]], []byte("x"))
		return err
	case "flood": // times address:port
		for range number(args[0]) {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			err = reach("connect", s, unix.AF_INET, args[1])
			_ = unix.Close(s)
			if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("not denied: %w", err)
			}
		}
		return nil
	case "time": // times type address:port; the answer is how long connect(2) took, ns each
		return timed(number(args[0]), number(args[1]), args[2])
	case "python": // script address:port
		to := netip.MustParseAddrPort(args[1])
		out, err := exec.Command("python3", args[0], to.Addr().String(), fmt.Sprint(to.Port())).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w %q", err, out)
		}
		if s := strings.TrimSpace(string(out)); s != "0" {
			return unix.Errno(-number(s))
		}
		return nil
	}
	return fmt.Errorf("no verb %q", verb)
}

func reach(verb string, s, family int, to string) error {
	a := netip.MustParseAddrPort(to)
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	if family == unix.AF_INET {
		sa = &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	switch verb {
	case "connect":
		return unix.Connect(s, sa)
	case "fastopen-later": // its SYN would leave with the first write
		if err := unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1); err != nil {
			return err
		}
		return unix.Connect(s, sa)
	case "fastopen":
		return unix.Sendto(s, []byte("x"), unix.MSG_FASTOPEN, sa)
	}
	return unix.Sendto(s, []byte("x"), 0, sa)
}
