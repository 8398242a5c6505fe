// Package listen makes sockets that listen where a user has said. hutch does so with the rights of whoever calls it and
// hands the socket over; hutchd with its own, for clients that only name an address.
package listen

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// backlog is how many connections wait to be accepted; the kernel makes it net.core.somaxconn, where that is less.
const backlog = 4096

// On makes a socket that listens at a, and does not block. A Unix socket is its maker's alone (0600), and is not made
// in the place of a file that there is.
func On(a api.PortAddress) (*os.File, error) {
	fd, err := open(a)
	if err != nil {
		return nil, explain(a, err)
	}
	return os.NewFile(uintptr(fd), "listener"), nil
}

func open(a api.PortAddress) (fd int, err error) {
	domain := unix.AF_INET
	switch {
	case a.Path != "":
		domain = unix.AF_UNIX
	case a.Addr().Is6():
		domain = unix.AF_INET6
	}
	if fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if a.Path != "" {
		return fd, bindPath(fd, a.Path)
	}
	// As every server has it: connections of a listener before that are still ending do not take its port.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, err
	}
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().Unmap().As4()}
	if domain == unix.AF_INET6 {
		// [::] is IPv6 alone: 0.0.0.0 is to be asked for by its own name.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return -1, err
		}
		sa = &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return -1, fmt.Errorf("bind: %w", err)
	}
	return fd, unix.Listen(fd, backlog)
}

// bindPath gives a socket a path whose folders are no symlinks: in a workspace a sandbox could have made one. Until it
// listens, nobody can connect to a socket that has its mode not yet.
func bindPath(fd int, path string) error {
	dir, err := Folder(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	at := filepath.Join("/proc/self/fd", strconv.Itoa(dir), filepath.Base(path))
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: at}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	err = unix.Fchmodat(dir, filepath.Base(path), 0o600, 0)
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, filepath.Base(path), 0)
	}
	return err
}

// Folder opens the folder of a path, as O_PATH, without following symlinks. The caller owns the fd.
func Folder(path string) (int, error) {
	return sys.OpenPlain(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
}

// Address is where a socket listens that somebody else has made. It fails for all but stream sockets that listen, of
// TCP and of the Unix domain. Of the latter it says what bind(2) was told, which need not lead there any more.
func Address(f *os.File) (a api.PortAddress, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return a, err
	}
	var derr error
	if err := rc.Control(func(fd uintptr) { a, derr = address(int(fd)) }); err != nil {
		return a, err
	}
	return a, derr
}

func address(fd int) (a api.PortAddress, err error) {
	for _, want := range []struct {
		option, value int
		what          string
	}{{unix.SO_TYPE, unix.SOCK_STREAM, "no stream socket"}, {unix.SO_ACCEPTCONN, 1, "no socket that listens"}} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil || got != want.value {
			return a, errors.New("it is " + want.what)
		}
	}
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return a, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return a, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		a.AddrPort = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		a.AddrPort = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrUnix:
		if a.Path = sa.Name; a.Path == "" {
			return a, errors.New("it has no path")
		}
		return a, nil
	default:
		return a, errors.New("it is neither of TCP nor of the Unix domain")
	}
	if proto != unix.IPPROTO_TCP {
		return a, errors.New("its protocol is not TCP")
	}
	return a, nil
}

// explain is an error for whoever has named a.
func explain(a api.PortAddress, err error) error {
	code, hint := api.Internal, "hutch doctor shows what this machine allows"
	switch {
	case errors.Is(err, unix.EADDRINUSE) && a.Path != "":
		code, hint = api.AlreadyExists, "there is such a file: remove it, or choose another path"
	case errors.Is(err, unix.EADDRINUSE):
		code, hint = api.AlreadyExists, "choose another port, or 0 for a free one; ss -ltnp shows who has it"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		code, hint = api.InvalidArgument, "ip addr shows the addresses of this host"
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		code, hint = api.PermissionDenied, "choose a folder that you may write"
		if a.Path == "" {
			hint = fmt.Sprintf("ports below net.ipv4.ip_unprivileged_port_start take root's rights: choose one above, such as %d", 8000+int(a.Port()))
		}
	case errors.Is(err, unix.ELOOP):
		code, hint = api.InvalidArgument,
			"name the folder by its own path (realpath shows it): symlinks are not followed, because a sandbox could have made one"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		code, hint = api.InvalidArgument, "the folder of the socket must be there"
	case errors.Is(err, unix.EAFNOSUPPORT):
		code, hint = api.InvalidArgument, "this kernel has no IPv6: choose an address of IPv4"
	}
	return api.Errorf(code, "listen on %s: %w", a, err).WithField("address").WithHint("%s", hint)
}
