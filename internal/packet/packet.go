// Package packet carries JSON messages and file descriptors over a connected
// SOCK_SEQPACKET Unix socket, between hutch's own processes.
//
// One message is one packet, so there is no framing to get wrong and the fds of
// a message cannot be mistaken for another's. A message over maxInline bytes
// travels in a sealed memfd which is the packet's last fd.
package packet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Taker hands over the fds that came with a request.
type Taker interface {
	// Take returns a file of the fd at index, which the caller owns.
	Take(index int) (*os.File, error)
}

const (
	// maxInline keeps a packet below net.core.wmem_max's default of 212992.
	maxInline = 96 << 10
	// maxLarge bounds a message that travels in a memfd, in bytes.
	maxLarge = 16 << 20
	// maxFDs bounds the fds of one message; the kernel's own limit is 253.
	maxFDs = 32
)

const (
	kindInline = 'i'
	kindLarge  = 'l'
)

// Conn is one end. Send may be called from several goroutines; Recv from one.
type Conn struct {
	f      *os.File
	closed atomic.Bool

	sendMu sync.Mutex
	buf    []byte
}

// Pair makes two connected ends, close-on-exec.
func Pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "packet"), os.NewFile(uintptr(fds[1]), "packet"), nil
}

// New takes ownership of f, a connected SOCK_SEQPACKET socket, also when it
// fails.
func New(f *os.File) (*Conn, error) {
	defer f.Close()
	dup, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	// A description that came from another process may be blocking; NewFile gives
	// only a non-blocking one to the poller, without which Close would not wake
	// Recv.
	if err := unix.SetNonblock(dup, true); err != nil {
		_ = unix.Close(dup)
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return &Conn{f: os.NewFile(uintptr(dup), "packet"), buf: make([]byte, maxInline+1)}, nil
}

// Close closes the socket; a blocked Recv returns.
func (c *Conn) Close() error {
	c.closed.Store(true)
	return c.f.Close()
}

// CloseRead ends Recv when it has returned what has been sent so far; later Sends of the
// other end fail.
func (c *Conn) CloseRead() error {
	rc, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = unix.Shutdown(int(fd), unix.SHUT_RD) }); err != nil {
		return err
	}
	return serr
}

// SetWriteDeadline bounds later Sends, for peers that may stop reading.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.f.SetWriteDeadline(t) }

// Send marshals msg and sends it with fds, which stay the caller's.
func (c *Conn) Send(msg any, fds ...*os.File) error {
	data, err := json.Marshal(msg)
	if err != nil {
		return fmt.Errorf("encode packet: %w", err)
	}
	packet := append(make([]byte, 0, 1+len(data)), kindInline)
	if len(data) > maxInline {
		mem, err := large(data)
		if err != nil {
			return err
		}
		defer mem.Close()
		packet[0], data = kindLarge, nil
		fds = append(fds[:len(fds):len(fds)], mem)
	}
	packet = append(packet, data...)
	oob, err := rights(fds)
	if err != nil {
		return err
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	err = sys.SendFDs(func() error { return c.send(packet, oob) })
	runtime.KeepAlive(fds)
	if err != nil {
		return fmt.Errorf("send packet: %w", err)
	}
	return nil
}

// send makes the one system call.
func (c *Conn) send(packet, oob []byte) error {
	rc, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = rc.Write(func(fd uintptr) bool {
		for {
			serr = unix.Sendmsg(int(fd), packet, oob, nil, unix.MSG_NOSIGNAL)
			if serr != unix.EINTR {
				return serr != unix.EAGAIN
			}
		}
	})
	if err != nil && c.closed.Load() {
		return os.ErrClosed // internal/poll's own error is another
	}
	return errors.Join(err, serr)
}

// rights encodes fds as SCM_RIGHTS. It does not use File.Fd, which would switch
// the shared description of a non-blocking file to blocking.
func rights(fds []*os.File) ([]byte, error) {
	if len(fds) == 0 {
		return nil, nil
	}
	if len(fds) > maxFDs {
		return nil, fmt.Errorf("send packet: %d fds, at most %d", len(fds), maxFDs)
	}
	raw := make([]int, 0, len(fds))
	for _, f := range fds {
		rc, err := f.SyscallConn()
		if err == nil {
			err = rc.Control(func(fd uintptr) { raw = append(raw, int(fd)) })
		}
		if err != nil {
			return nil, fmt.Errorf("send packet: fd %d of %d: %w", len(raw), len(fds), err)
		}
	}
	return unix.UnixRights(raw...), nil
}

// ErrFDsLost is Recv's answer to a message whose fds this process could not take,
// because too many are open (EMFILE). The message is there unless it travelled in
// an fd itself, none of its fds is, and the connection is as good as before.
var ErrFDsLost = errors.New("receive packet: its fds are lost, too many files are open")

// Recv reads the next message into msg and returns its fds, which the caller
// owns. It returns io.EOF when either end is closed.
func (c *Conn) Recv(msg any) ([]*os.File, error) {
	n, files, err := c.recv()
	if errors.Is(err, ErrFDsLost) {
		if c.buf[0] == kindInline {
			_ = json.Unmarshal(c.buf[1:n], msg)
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	data := c.buf[1:n]
	switch c.buf[0] {
	case kindInline:
	case kindLarge:
		if len(files) == 0 {
			return nil, errors.New("receive packet: large message without its memfd")
		}
		mem := files[len(files)-1]
		files = files[:len(files)-1]
		data, err = readLarge(mem)
		if err != nil {
			CloseAll(files)
			return nil, err
		}
	default:
		CloseAll(files)
		return nil, fmt.Errorf("receive packet: unknown kind %#x", c.buf[0])
	}
	if err := json.Unmarshal(data, msg); err != nil {
		CloseAll(files)
		return nil, fmt.Errorf("decode packet: %w", err)
	}
	return files, nil
}

func (c *Conn) recv() (int, []*os.File, error) {
	rc, err := c.f.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	var n, oobn, flags int
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, rerr = unix.Recvmsg(int(fd), c.buf, oob, unix.MSG_CMSG_CLOEXEC)
			if rerr != unix.EINTR {
				return rerr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = rerr
	}
	if err != nil {
		// A read that Close interrupts fails with internal/poll's own error, which
		// is not os.ErrClosed.
		if errors.Is(err, unix.ECONNRESET) || c.closed.Load() {
			return 0, nil, io.EOF
		}
		return 0, nil, fmt.Errorf("receive packet: %w", err)
	}
	files, err := filesOf(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}
	switch {
	case n == 0:
		CloseAll(files)
		return 0, nil, io.EOF
	case flags&unix.MSG_TRUNC != 0:
		CloseAll(files)
		return 0, nil, errors.New("receive packet: message truncated")
	case flags&unix.MSG_CTRUNC != 0:
		CloseAll(files)
		return n, nil, ErrFDsLost
	}
	return n, files, nil
}

func filesOf(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("receive packet: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // not SCM_RIGHTS
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func large(data []byte) (*os.File, error) {
	if len(data) > maxLarge {
		return nil, fmt.Errorf("send packet: %d bytes, at most %d", len(data), maxLarge)
	}
	mem, err := sys.SealedMemfd("packet", bytes.NewReader(data), sys.MemfdData)
	if err != nil {
		return nil, fmt.Errorf("send packet: %w", err)
	}
	return mem, nil
}

func readLarge(mem *os.File) ([]byte, error) {
	defer mem.Close()
	st, err := mem.Stat()
	if err != nil {
		return nil, fmt.Errorf("large packet: %w", err)
	}
	if st.Size() > maxLarge {
		return nil, fmt.Errorf("large packet: %d bytes, at most %d", st.Size(), maxLarge)
	}
	data := make([]byte, st.Size())
	if _, err := mem.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("large packet: %w", err)
	}
	return data, nil
}

// CloseAll closes files, for receivers that refuse a message.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
