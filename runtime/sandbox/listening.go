package sandbox

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// listening is what is known of the servers in a sandbox.
type listening struct {
	mu    sync.Mutex
	looks bool // somebody does
	again bool // when that is over
	known map[uint64]bool
	// looked is closed when that is over, for who waits for a server; nil while nobody does.
	looked chan struct{}
}

// server is a TCP socket that listens on the loopback of a sandbox.
type server struct {
	at    netip.AddrPort
	inode uint64
}

const (
	// lookPause is the least time between two looks at what listens, maxOpened how many servers one of them tells of.
	lookPause = 250 * time.Millisecond
	maxOpened = 8
)

// lookAfter is when is looked: PID 1 tells of listen(2) just before the kernel does it.
var lookAfter = []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}

// listens is called when PID 1 has seen a listen(2) in the sandbox, or says so. It does not wait.
func (m *Manager) listens(s *Sandbox) {
	l := &s.listening
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again = true; !l.looks {
		l.looks = true
		m.watchers.Go(func() { m.look(s) })
	}
}

// look tells of new servers until nobody has called listens meanwhile.
func (m *Manager) look(s *Sandbox) {
	l := &s.listening
	for {
		l.mu.Lock()
		if !l.again {
			l.looks = false
			l.mu.Unlock()
			return
		}
		l.again = false
		l.mu.Unlock()
		for _, after := range lookAfter {
			if !s.lives(after) || m.tellServers(s) {
				break
			}
		}
		if !s.lives(lookPause) {
			return
		}
	}
}

// lives waits, and says whether the sandbox still runs.
func (s *Sandbox) lives(after time.Duration) bool {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-s.exited:
		return false
	case <-timer.C:
		return true
	}
}

// tellServers tells of those that were not there the last time, if any.
func (m *Manager) tellServers(s *Sandbox) (found bool) {
	known := s.listening.known
	servers := s.servers()
	told := 0
	for _, v := range servers {
		if known[v.inode] {
			continue
		}
		found = true
		if told++; told <= maxOpened {
			m.cfg.Events.Emit(api.EventPortOpened, s.id, "", api.PortEvent{Port: int(v.at.Port()), Listen: v.at.Addr().
				String(), Addresses: s.exposedAt(int(v.at.Port()))})
		}
	}
	s.knowServers(servers)
	return found
}

func (s *Sandbox) knowServers(servers []server) {
	s.listening.known = map[uint64]bool{}
	for _, v := range servers {
		s.listening.known[v.inode] = true
	}
	s.listening.tell()
}

// exposedAt is where the host reaches a port.
func (s *Sandbox) exposedAt(port int) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.exposed {
		if s.exposed[i].Port == port {
			list = append(list, s.exposed[i].Address)
		}
	}
	return list
}

// servers are those on the sandbox's loopback, which could be exposed; hutchd's own in its network are not.
func (s *Sandbox) servers() (list []server) {
	pid := s.Record().PID
	if pid == 0 {
		return nil
	}
	own := s.net == nil
	if s.net != nil {
		_, way, _ := s.net.State()
		own = strings.HasPrefix(way, "tproxy") // in other ways hutchd listens where programs do, too
	}
	byInode := map[uint64]server{}
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err != nil {
			continue // no IPv6, or no sandbox any more
		}
		for _, v := range parseServers(f) {
			if a := v.at.Addr(); a.IsLoopback() && (own || v.at.Port() != 1) || a.IsUnspecified() && own {
				byInode[v.inode] = v
			}
		}
		_ = f.Close()
	}
	list = slices.Collect(maps.Values(byInode))
	slices.SortFunc(list, func(a, b server) int { return a.at.Compare(b.at) })
	return list
}

// maxServers bounds what is read of a sandbox's sockets.
const maxServers = 4096

// parseServers reads /proc/PID/net/tcp, or tcp6 (proc_pid_net(5)): what listens comes before all other sockets.
func parseServers(r io.Reader) (list []server) {
	lines := bufio.NewScanner(r)
	lines.Scan() // the names of the columns
	for lines.Scan() && len(list) < maxServers {
		f := strings.Fields(lines.Text())
		const listen = "0A" // TCP_LISTEN
		if len(f) < 10 || f[3] != listen {
			return list
		}
		at, ok := parseProcAddress(f[1])
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if !ok || err != nil {
			return list
		}
		list = append(list, server{at, inode})
	}
	return list
}

// parseProcAddress reads an address as 0100007F:1F90: words of the machine's byte order.
func parseProcAddress(s string) (at netip.AddrPort, ok bool) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	n, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil || len(b) != 4 && len(b) != 16 {
		return at, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), ok
}
