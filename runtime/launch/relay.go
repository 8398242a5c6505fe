package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
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
	want := map[launchapi.Role]launchapi.Role{launchapi.RoleFrom: launchapi.RoleTo,
		launchapi.RoleOut: launchapi.RoleInto}[role]
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
	var terminal *input // there is one at most
	for i, p := range r.pairs {
		if p.role == launchapi.RoleOut {
			continue
		}
		to := &input{f: p.dst, lineStart: true}
		if to.terminal = p.to == launchapi.RoleTo && isTerminal(p.dst); to.terminal {
			terminal = to
		}
		r.in, r.into = append(r.in, startPump(callers[i], to, to.end)), append(r.into, to)
	}
	for i, p := range r.pairs {
		if p.role != launchapi.RoleOut {
			continue
		}
		c := callers[i]
		var to io.Writer = c
		if terminal != nil {
			to = shown{c, terminal}
		}
		r.out, r.callers = append(r.out, startPump(p.src, to, nil)), append(r.callers, c)
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

	mu      sync.Mutex
	ended   bool // the caller's input has
	pressed int  // how often the key for that was, for programs that read keys
	raw     bool // since it was last pressed
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
	if !k.terminal {
		_ = k.f.Close()
		return
	}
	keys := "\x04\x04"
	if k.lineStart {
		keys = "\x04"
	}
	k.mu.Lock()
	k.ended, k.raw = true, readsKeys(k.f)
	k.mu.Unlock()
	_, _ = k.f.WriteString(keys) // the command may have ended; waits where it does not read
}

// maxPressed bounds how often the key is pressed for a program that begins to read keys again and again.
const maxPressed = 64

// again presses the key for who has begun to read keys since: a shell or an interpreter that edits lines does that
// before it shows its prompt, and what was pressed before means nothing to it (n_tty(4): an end of file becomes a NUL).
func (k *input) again() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended || k.pressed >= maxPressed {
		return
	}
	was := k.raw
	if k.raw = readsKeys(k.f); k.raw && !was {
		k.pressed++
		press(k.f)
	}
}

// press presses Ctrl-D, unless what was typed before has not been read: its output must not wait for a program that
// does not read.
func press(f *os.File) {
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		if now, err := sys.Ready(int(fd), unix.POLLOUT); err == nil && now&unix.POLLOUT != 0 {
			_, _ = unix.Write(int(fd), []byte{4})
		}
	})
}

// shown is the output of a terminal, after each part of which somebody may wait for keys.
type shown struct {
	to       io.Writer
	terminal *input
}

func (s shown) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.terminal.again()
	return n, err
}

// readsKeys reports whether who reads from a terminal gets each key, and not lines.
func readsKeys(f *os.File) (keys bool) {
	rc, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = rc.Control(func(fd uintptr) {
		t, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		keys = err == nil && t.Lflag&unix.ICANON == 0
	})
	return keys
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
