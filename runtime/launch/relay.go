package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// relays pass bytes between files of a caller, which may not cross into the sandbox or
// do not work there, and an exec's pipes or terminal. They are here and not in hutchd so
// that a command does not lose its terminal, or get a broken pipe, with hutchd.
type relays struct {
	pairs []pair
	in    []*pump  // from the caller
	into  []*input // their destinations
	out   []*pump  // to the caller
	// callers are the destinations of out.
	callers   []io.Closer
	once      sync.Once
	finishing sync.Mutex
}

// pair is a relay that was not started yet.
type pair struct {
	role, to launchapi.Role
	src, dst *os.File
}

// add owns both files.
func (r *relays) add(role, to launchapi.Role, src, dst *os.File) error {
	r.pairs = append(r.pairs, pair{role, to, src, dst})
	want := map[launchapi.Role]launchapi.Role{launchapi.RoleFrom: launchapi.RoleTo, launchapi.RoleOut: launchapi.RoleInto}[role]
	if to != want && (role != launchapi.RoleFrom || to != launchapi.RoleKeys) {
		return api.Errorf(api.Internal, "role %q behind %q", to, role)
	}
	return nil
}

// open makes the caller's files of all relays interruptible, before any is read: one
// file may be both, a socket say.
func (r *relays) open() (callers []io.ReadWriteCloser, err error) {
	for i := range r.pairs {
		p := &r.pairs[i]
		file := &p.src
		if p.role == launchapi.RoleOut {
			file = &p.dst
		}
		c, err := interruptible(*file)
		*file = nil
		if err != nil {
			for _, c := range callers {
				_ = c.Close()
			}
			return nil, fmt.Errorf("relay: %w", err)
		}
		callers = append(callers, c)
	}
	return callers, nil
}

// start begins to pass bytes on.
func (r *relays) start() error {
	callers, err := r.open()
	if err != nil {
		return err
	}
	for i, p := range r.pairs {
		c := callers[i]
		if p.role == launchapi.RoleOut {
			r.out, r.callers = append(r.out, startPump(p.src, c, nil)), append(r.callers, c)
			continue
		}
		to := &input{f: p.dst, lineStart: true}
		to.terminal = p.to == launchapi.RoleTo && isTerminal(p.dst)
		r.in, r.into = append(r.in, startPump(c, to, to.end)), append(r.into, to)
	}
	r.pairs = nil
	return nil
}

// finish passes on what the command has written, and ends what it would still read. A
// second one waits for the first: so no two read from one pipe.
func (r *relays) finish() error {
	r.finishing.Lock()
	defer r.finishing.Unlock()
	var errs []error
	for _, p := range r.out {
		// A caller that has closed its end wants no more.
		if err := p.finish(); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			errs = append(errs, fmt.Errorf("relay output: %w", err))
		}
	}
	r.endInput()
	for _, c := range r.callers {
		_ = c.Close() // twice is no harm
	}
	return errors.Join(errs...)
}

// endInput ends the relays to the command, also one that waits for it to read.
func (r *relays) endInput() {
	for i, p := range r.in {
		p.close()
		_ = r.into[i].f.Close()
	}
}

// close ends all relays, also those that wait for a caller.
func (r *relays) close() {
	r.once.Do(func() {
		for _, p := range r.pairs { // never started
			packet.CloseAll([]*os.File{p.src, p.dst})
		}
		r.endInput()
		for _, c := range r.callers {
			_ = c.Close() // ends a write that blocks
		}
		for _, p := range r.out {
			p.close()
		}
	})
}

// input is what a caller types into, or feeds.
type input struct {
	f         *os.File
	terminal  bool
	lineStart bool
}

func (k *input) Write(p []byte) (int, error) {
	if len(p) > 0 {
		k.lineStart = p[len(p)-1] == '\n' || p[len(p)-1] == '\r'
	}
	return k.f.Write(p)
}

// end closes a pipe. A terminal has no end of file: where the caller's input ends, the key
// for it is pressed, Ctrl-D, twice behind a part of a line: the first then only hands that
// over (termios(3), VEOF).
func (k *input) end() {
	if k.terminal {
		keys := "\x04\x04"
		if k.lineStart {
			keys = "\x04"
		}
		_, _ = k.f.WriteString(keys) // the command may have ended
	}
	_ = k.f.Close()
}

func isTerminal(f *os.File) bool {
	rc, err := f.SyscallConn()
	if err != nil {
		return false
	}
	terminal := false
	_ = rc.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		terminal = err == nil
	})
	return terminal
}
