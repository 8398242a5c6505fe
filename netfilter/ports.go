package netfilter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/listen"
	"github.com/hutch-sh/hutch/netfilter/netns"
	"github.com/hutch-sh/hutch/netfilter/proxy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Ports are the ports of one sandbox that the host reaches: listeners in the host's namespace, which hutch-launch holds
// as well, under port/SANDBOX/INODE/ADDRESS, and connections that begin in the sandbox's. Calls come one at a time.
type Ports struct {
	e      *Engine
	id     string
	dialer *netns.Dialer
	open   map[string]*exposed // by address
}

// exposed is one port at one address.
type exposed struct {
	port api.Port
	in   *proxy.Inbound
	key  string
	file uint64 // inode of a Unix socket; 0 where it is not known
}

// portPrefix begins the keys of listeners that are kept.
const portPrefix = "port/"

// Ports makes those of a sandbox, of which there are none yet. ns is its network namespace, the caller's.
func (e *Engine) Ports(id string, ns *os.File) (*Ports, error) {
	d, err := netns.NewDialer(ns)
	if err != nil {
		return nil, err
	}
	return &Ports{e: e, id: id, dialer: d, open: map[string]*exposed{}}, nil
}

// Expose makes a port be reached at p's address, or where listener says, which is taken over and may be nil.
func (s *Ports) Expose(p api.PortExposeParams, listener *os.File) (_ api.Port, err error) {
	own := listener == nil
	defer func() {
		if listener != nil {
			_ = listener.Close() // what serves has a duplicate, as has hutch-launch
		}
	}()
	at, err := api.ParsePortAddress(p.Address)
	if err != nil {
		return api.Port{}, err
	}
	if own {
		if listener, err = listen.On(at); err != nil {
			return api.Port{}, err
		}
	}
	bound, err := listen.Address(listener)
	if err == nil && (bound.Path != "") != (at.Path != "") {
		err = errors.New("whether it is a Unix socket is not what address says, which is the path of one")
	}
	if err != nil {
		return api.Port{}, api.Errorf(api.InvalidArgument, "the listener that was handed over: %w", err).
			WithField("listener").
			WithHint("hand over a socket of TCP, or of the Unix domain with its path in address, that listens")
	}
	if at.Path == "" {
		at = bound
	}
	x := &exposed{port: api.Port{Sandbox: s.id, Port: p.Port, Address: at.String(), Tool: p.Tool}}
	if p.Token {
		x.port.Token = rand.Text()
	}
	x.port.URL = portURL(at, x.port.Token)
	if at.Path != "" {
		x.file = inodeOf(at.Path)
	}
	x.key = portPrefix + s.id + "/" + strconv.FormatUint(x.file, 10) + "/" + x.port.Address
	defer func() {
		if err != nil && own {
			x.unlink()
		}
	}()
	if err := s.e.cfg.Keep(x.key, listener); err != nil {
		return api.Port{}, fmt.Errorf("keep the listener of a port: %w", err)
	}
	if err := s.serve(x, listener); err != nil {
		_ = s.e.cfg.Unkeep(x.key) // with hutch-launch gone nothing is kept
		return api.Port{}, err
	}
	return x.port, nil
}

// serve begins to accept. f stays the caller's.
func (s *Ports) serve(x *exposed, f *os.File) error {
	if old := s.open[x.port.Address]; old != nil {
		return api.Errorf(api.AlreadyExists, "port %d is reached at %s already", old.port.Port, x.port.Address).
			WithField("address")
	}
	port := uint16(x.port.Port)
	in, err := proxy.NewInbound(f, x.port.Token, func() (int, proxy.Later, error) { return s.dial(port) })
	if err != nil {
		return fmt.Errorf("listen on %s: %w", x.port.Address, err)
	}
	x.in = in
	s.open[x.port.Address] = x
	s.e.listen(x.port.Address, 1)
	return nil
}

// dial connects to a port of the sandbox's loopback, as proxy.Dial says, when nothing has to be waited for first.
func (s *Ports) dial(port uint16) (int, proxy.Later, error) {
	wait := s.e.cfg.Wanted(s.id)
	if wait == nil {
		fd, later, err := s.dialer.Dial(port)
		return fd, proxy.Later(later), err
	}
	return -1, func(ctx context.Context) (*net.TCPConn, error) {
		if err := wait(); err != nil {
			return nil, err
		}
		return s.dialer.Connect(ctx, port)
	}, nil
}

// Adopt goes on with a port that a hutchd before has exposed.
func (s *Ports) Adopt(p api.Port) error {
	for key, f := range s.e.heldPorts(s.id) {
		inode, address, _ := strings.Cut(strings.TrimPrefix(key, portPrefix+s.id+"/"), "/")
		if address != p.Address {
			continue
		}
		s.e.takePort(key)
		defer f.Close()
		x := &exposed{port: p, key: key}
		x.file, _ = strconv.ParseUint(inode, 10, 64)
		return s.serve(x, f)
	}
	return fmt.Errorf("no listener is left of port %d at %s", p.Port, p.Address)
}

// List are the ports with what they have carried, in no order.
func (s *Ports) List() []api.Port {
	list := make([]api.Port, 0, len(s.open))
	for _, x := range s.open {
		p := x.port
		p.Connections, p.Accepted = x.in.Counts()
		list = append(list, p)
	}
	return list
}

// Unexpose ends what is exposed at an address, with its connections.
func (s *Ports) Unexpose(address string) error {
	x := s.open[address]
	if x == nil {
		return nil
	}
	delete(s.open, address)
	return x.close(s.e)
}

// Close ends all.
func (s *Ports) Close() error {
	var errs []error
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, x := range s.open {
		wg.Go(func() {
			err := x.close(s.e)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	clear(s.open)
	return errors.Join(append(errs, s.dialer.Close())...)
}

func (x *exposed) close(e *Engine) error {
	err := x.in.Close()
	e.listen(x.port.Address, -1)
	_ = e.cfg.Unkeep(x.key) // with hutch-launch gone nothing is kept
	x.unlink()
	return err
}

// unlink removes the Unix socket that is no one's any more, if it is still that one and hutchd may: in the folder of a
// stranger, as everybody is to root's daemon, whoever has made it does.
func (x *exposed) unlink() {
	if x.file == 0 {
		return
	}
	dir, err := listen.Folder(x.port.Address)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	name := filepath.Base(x.port.Address)
	if statInode(dir, name) == x.file {
		_ = unix.Unlinkat(dir, name, 0)
	}
}

// inodeOf is the inode of a socket; 0 where there is none, or it is not reached without symlinks.
func inodeOf(path string) uint64 {
	dir, err := listen.Folder(path)
	if err != nil {
		return 0
	}
	defer unix.Close(dir)
	return statInode(dir, filepath.Base(path))
}

func statInode(dir int, name string) uint64 {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil ||
		st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0
	}
	return st.Ino
}

// portURL is where a browser on this host finds a port.
func portURL(at api.PortAddress, token string) string {
	if at.Path != "" {
		return ""
	}
	host := at.Addr().String()
	switch {
	case at.Addr().IsUnspecified() && at.Addr().Is4():
		host = "127.0.0.1"
	case at.Addr().IsUnspecified():
		host = "::1"
	}
	url := "http://" + net.JoinHostPort(host, strconv.Itoa(int(at.Port()))) + "/"
	if token != "" {
		url += "?token=" + token
	}
	return url
}

// heldPorts are the listeners that are left of a sandbox's ports, by key.
func (e *Engine) heldPorts(id string) map[string]*os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	files := map[string]*os.File{}
	for key, f := range e.heldListeners {
		if strings.HasPrefix(key, portPrefix+id+"/") {
			files[key] = f
		}
	}
	return files
}

func (e *Engine) takePort(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.heldListeners, key)
}
