// Package stdio is what the commands of sandboxes have as stdin, stdout and stderr: pipes, terminals and files of the
// caller's, which hutch-launch serves, and the spools that it writes what is kept of their output to.
//
// An IO begins with New, which decides how each of the three crosses into the sandbox. Hold hands what has to outlive
// hutchd to hutch-launch; Held takes what that answers, and Started closes what the command has. Release closes the
// rest when the command has ended, but for what it has written, which Forget gives up. One of a hutchd before begins
// with Adopt, and that of a command of a stopped sandbox, which was saved, with Recall.
//
// IO.reading is held by who reads what a command has written while it may be forgotten, Stream.mu guards how much there
// is of one stream. Nothing that is not of this package is called with either held, but for the func that counts what
// is added to a Stream: it must not wait.
package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// SpoolSize is how many bytes are kept of each output stream.
const SpoolSize = 64 << 20

// IO is what a command gets as fds 0 to 2, and the other ends of the pipes among them, which hutch-launch serves. Its
// methods may be called from any goroutine once the command runs.
type IO struct {
	// Streams are stdout and stderr where hutch-launch spools them; else there are none. They stay as they are once the
	// command runs.
	Streams []*Stream

	give    []*os.File                         // stdin, stdout, stderr; or one pty slave. Closed after the start
	roles   []launchapi.Role                   // of lend
	lend    []*os.File                         // on their way to hutch-launch. Closed when it has them
	flows   bool                               // hutch-launch has bytes to move, see launchapi.Exec.Flows
	await   func() ([]launchapi.Stream, error) // see Held
	input   *os.File                           // stdin's other end, open for Write
	master  *os.File                           // of the pty
	channel *os.File                           // of a shell, which closes it
	writing gate                               // serialises Write
	once    sync.Once                          // of Release

	// reading is held by who is going to read streams once the command has ended: a removal comes at that very moment.
	// Forget waits.
	reading   sync.RWMutex
	forgotten bool
}

// Request says what a command is to have.
type Request struct {
	Params *api.ExecParams
	Open   bool         // stdin stays open for Write
	FDs    packet.Taker // of the caller
	User   string       // that the command runs as
	// Channel is the stdin of a worker that keeps a shell, and is closed with what the command gets; Kept is the other
	// end of it, which stays the caller's. Both are nil of others.
	Channel, Kept *os.File
	// Pts opens the folder of the sandbox's own terminals.
	Pts func() (*os.File, error)
}

// hand adds a file for hutch-launch, which is closed here.
func (io *IO) hand(role launchapi.Role, f *os.File) {
	io.roles, io.lend = append(io.roles, role), append(io.lend, f)
}

// New decides how each of the three streams of a command crosses into the sandbox. Hold, and in the end Started and
// Release, or Abort, must follow.
func New(req Request) (_ *IO, err error) {
	io := &IO{}
	defer func() {
		if err != nil {
			io.Abort()
		}
	}()
	switch p := req.Params; {
	case p.Pty != nil:
		err = io.pty(&req)
	case p.Stdio != nil:
		err = io.passed(&req)
	case req.Channel != nil:
		io.give, io.channel = append(io.give, req.Channel), req.Kept
		err = io.capture(2)
	default:
		if err = io.feed(p, req.Open); err == nil {
			err = io.capture(2)
		}
	}
	return io, err
}

// capture makes pipes whose other ends hutch-launch is to read into spools.
func (io *IO) capture(n int) error {
	for range n {
		read, write, err := pipe()
		if err != nil {
			return err
		}
		io.hand(launchapi.RoleSpool, read)
		io.give = append(io.give, write)
	}
	return nil
}

// pipe makes a pipe whose reader never blocks and whose writer, which is for a
// command, does.
func pipe() (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, pipeError(err)
	}
	read, write = os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		packet.CloseAll([]*os.File{read, write})
		return nil, nil, pipeError(err)
	}
	return read, write, nil
}

// feed gives the stdin of the request, an open one for exec.write, or /dev/null.
func (io *IO) feed(p *api.ExecParams, open bool) error {
	if p.Stdin == "" && !open {
		return io.null(os.O_RDONLY)
	}
	data, err := excerpt.Decode("stdin", p.Stdin, p.Encoding)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return pipeError(err)
	}
	io.give = append(io.give, r)
	if open {
		io.input = w
		return nil
	}
	return io.write(w, data)
}

// write feeds data to a command, which need not read it: what the pipe takes at once is
// in it, and hutch-launch passes the rest on, so that it comes whatever becomes of hutchd.
func (io *IO) write(w *os.File, data []byte) error {
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		w.Close()
		return pipeError(err)
	}
	n, err := unix.Write(fd, data)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		w.Close()
		return pipeError(err)
	}
	if n == len(data) {
		return w.Close()
	}
	rest, err := sys.SealedMemfd("stdin", bytes.NewReader(data[max(n, 0):]), sys.MemfdData)
	if err != nil {
		w.Close()
		return pipeError(err)
	}
	io.hand(launchapi.RoleFrom, rest)
	io.hand(launchapi.RoleTo, w)
	return nil
}

func (io *IO) null(mode int) error {
	f, err := os.OpenFile(os.DevNull, mode, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	io.give = append(io.give, f)
	return nil
}

// passed hands the caller's own fds on where that is safe and works inside.
func (io *IO) passed(req *Request) error {
	p := req.Params
	crossed := map[int]*os.File{} // by index in the request
	for i, index := range []*int{p.Stdio.Stdin, p.Stdio.Stdout, p.Stdio.Stderr} {
		mode := os.O_WRONLY
		if i == 0 {
			mode = os.O_RDONLY
		}
		if index == nil {
			if err := io.null(mode); err != nil {
				return err
			}
			continue
		}
		if same, ok := crossed[*index]; ok && i == 2 {
			// 2>&1: one pipe keeps the order of what goes through it.
			if err := io.again(same); err != nil {
				return err
			}
			continue
		}
		f, err := req.FDs.Take(*index)
		if err != nil {
			return err
		}
		relay, err := mustRelay(f, [...]string{"stdin", "stdout", "stderr"}[i], req.User)
		if err != nil {
			f.Close()
			return err
		}
		if !relay {
			io.give = append(io.give, f)
		} else if err := io.relay(i, f); err != nil {
			return err
		}
		crossed[*index] = io.give[i]
	}
	return nil
}

// again gives a file a second time.
func (io *IO) again(f *os.File) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	io.give = append(io.give, os.NewFile(uintptr(fd), f.Name()))
	return nil
}

// relay puts a pipe between the caller's file and the command, which hutch-launch
// serves.
func (io *IO) relay(i int, file *os.File) error {
	if i == 0 {
		r, w, err := os.Pipe()
		if err != nil {
			file.Close()
			return pipeError(err)
		}
		io.give = append(io.give, r)
		io.hand(launchapi.RoleFrom, file)
		io.hand(launchapi.RoleTo, w)
		return nil
	}
	r, w, err := pipe()
	if err != nil {
		file.Close()
		return err
	}
	io.give = append(io.give, w)
	io.hand(launchapi.RoleOut, r)
	io.hand(launchapi.RoleInto, file)
	return nil
}

// mustRelay decides about one fd. Sandbox root could reopen a regular file or a
// folder through /proc/self/fd with the caller's rights, so only pipes and a few
// harmless devices cross at all.
func mustRelay(f *os.File, name, user string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	refuse := func(kind string) error {
		return api.Errorf(api.InvalidArgument, "%s is %s, which may not cross into a sandbox", name, kind).
			WithField("stdio." + name).
			WithHint("pass a pipe and copy; the hutch command line does so by itself")
	}
	if flags&unix.O_PATH != 0 {
		return false, refuse("an O_PATH fd")
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		// A pipe of an unmapped owner (the caller is root, the sandbox is not), or
		// of root while the command is somebody else: `echo >/dev/stderr` opens it
		// anew and would get EACCES.
		return st.Uid == overflowID || !isRoot(user), nil
	case unix.S_IFCHR:
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return false, refuse("a terminal")
		}
		if unix.Major(st.Rdev) != memMajor || !slices.Contains(harmless, unix.Minor(st.Rdev)) {
			return false, refuse("a device other than null, zero, full and random")
		}
		return false, nil
	case unix.S_IFREG:
		return false, refuse("a regular file")
	case unix.S_IFDIR:
		return false, refuse("a directory")
	case unix.S_IFBLK:
		return false, refuse("a block device")
	case unix.S_IFSOCK:
		return false, refuse("a socket")
	}
	return false, refuse("of an unknown kind")
}

// overflowID is what the kernel shows for ids without a mapping (the default of
// kernel.overflowuid).
const overflowID = 65534

// The character devices that cross: null, zero, full, random, urandom
// (Documentation/admin-guide/devices.txt). Sandbox root can open any other anew
// with all the rights that the caller has to it.
const memMajor = 1

var harmless = []uint32{3, 5, 7, 8, 9}

// isRoot reports whether user is uid 0 for certain: who "root" is says a file of
// the image, and PID 1 gives the pipes of an exec to any other user.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "" || name == "0"
}

// Give are the files that the command gets. They stay the IO's.
func (io *IO) Give() []*os.File { return io.give }

// Started releases the command's ends in this process.
func (io *IO) Started() {
	packet.CloseAll(io.give)
	packet.CloseAll(io.lend)
	io.give, io.lend = nil, nil
}

// Abort releases everything of a command that never ran.
func (io *IO) Abort() {
	io.Started()
	io.Release()
	io.Forget()
}

// Release closes what is left but the kept output.
func (io *IO) Release() {
	io.once.Do(func() {
		for _, f := range []*os.File{io.input, io.master} {
			if f != nil {
				_ = f.Close()
			}
		}
	})
}

// Forget releases the kept output, when nobody reads it any more (KeepOutput).
func (io *IO) Forget() {
	io.reading.Lock()
	defer io.reading.Unlock()
	io.forgotten = true
	for _, st := range io.Streams {
		st.Close()
	}
}

func pipeError(err error) error {
	return api.Errorf(api.ResourceExhausted, "make a pipe: %w", err).WithHint("too many files are open; end some execs")
}

// KeepOutput keeps what the command has written readable until done is called, which must be soon after its end; ok is
// false when it was forgotten.
func (io *IO) KeepOutput() (done func(), ok bool) {
	io.reading.RLock()
	if io.forgotten {
		io.reading.RUnlock()
		return nil, false
	}
	return io.reading.RUnlock, true
}
