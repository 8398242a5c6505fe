// Package servers finds the TCP servers in a sandbox. PID 1 says that somebody calls listen(2); what listens then is
// read from the sandbox's own /proc/PID/net, which the kernel writes.
package servers

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Sandbox is one whose servers are looked for. Its methods may be called from any goroutine.
type Sandbox interface {
	// Proc is the folder of its PID 1 in /proc, "" when that has ended.
	Proc() string
	// Alone reports whether nobody but the sandbox's processes listens in its network.
	Alone() bool
	// Exited is closed when it has ended.
	Exited() <-chan struct{}
	// Opened tells of a server that was not there before.
	Opened(at netip.AddrPort)
}

// Watch is what is known of the servers in one sandbox. The zero value knows nothing.
type Watch struct {
	mu    sync.Mutex // guards what follows
	looks bool       // somebody does
	again bool       // when that is over
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

// Listens is called when PID 1 has seen a listen(2) in the sandbox, or says so. It does not wait: who looks does so by
// background, and ends with the sandbox.
func (w *Watch) Listens(s Sandbox, background func(func())) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again = true; !w.looks {
		w.looks = true
		background(func() { w.look(s) })
	}
}

// look tells of new servers until nobody has called Listens meanwhile.
func (w *Watch) look(s Sandbox) {
	for {
		w.mu.Lock()
		if !w.again {
			w.looks = false
			w.mu.Unlock()
			return
		}
		w.again = false
		w.mu.Unlock()
		for _, after := range lookAfter {
			if !lives(s, after) || w.tell(s) {
				break
			}
		}
		if !lives(s, lookPause) {
			return
		}
	}
}

// lives waits, and says whether the sandbox still runs.
func lives(s Sandbox, after time.Duration) bool {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-s.Exited():
		return false
	case <-timer.C:
		return true
	}
}

// tell tells of those that were not there the last time, if any.
func (w *Watch) tell(s Sandbox) (found bool) {
	all := list(s)
	w.mu.Lock()
	known := w.known
	w.mu.Unlock()
	told := 0
	for _, v := range all {
		if known[v.inode] {
			continue
		}
		found = true
		if told++; told <= maxOpened {
			s.Opened(v.at)
		}
	}
	w.know(all)
	return found
}

// Know takes the servers that there are for known: a hutchd before has reported them.
func (w *Watch) Know(s Sandbox) { w.know(list(s)) }

func (w *Watch) know(all []server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = map[uint64]bool{}
	for _, v := range all {
		w.known[v.inode] = true
	}
	if w.looked != nil {
		close(w.looked)
		w.looked = nil
	}
}

// Next is closed when somebody has looked what listens.
func (w *Watch) Next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looked == nil {
		w.looked = make(chan struct{})
	}
	return w.looked
}

// On reports whether a server of the sandbox listens on a port.
func On(s Sandbox, port int) bool {
	return slices.ContainsFunc(list(s), func(v server) bool { return int(v.at.Port()) == port })
}

// list is the servers on the sandbox's loopback, which could be exposed; hutchd's own in its network are not.
func list(s Sandbox) (all []server) {
	proc := s.Proc()
	if proc == "" {
		return nil
	}
	alone, byInode := s.Alone(), map[uint64]server{}
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(proc, "net", file))
		if err != nil {
			continue // no IPv6, or no sandbox any more
		}
		for _, v := range parseServers(f) {
			if a := v.at.Addr(); a.IsLoopback() && (alone || v.at.Port() != 1) || a.IsUnspecified() && alone {
				byInode[v.inode] = v
			}
		}
		_ = f.Close()
	}
	all = slices.Collect(maps.Values(byInode))
	slices.SortFunc(all, func(a, b server) int { return a.at.Compare(b.at) })
	return all
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
