// Package hold keeps the first packet of connections (SYN) in the kernel until somebody
// knows what becomes of them: NFQUEUE, at queue 0 of a network namespace. What connects
// sees then what the server's side said: that it is there, that it refuses, or that there
// is no way to it.
//
// Rules that put packets into the queue, and that answer those which a Verdict has marked,
// are the namespace's (netfilter/netns).
package hold

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
)

// SYN is one packet that waits.
type SYN struct {
	ID       uint32
	From, To netip.AddrPort // the zero value when the packet was not understood
}

// Verdict is what becomes of a SYN; but for Drop it is also the mark that it gets.
type Verdict uint32

// The verdicts.
const (
	Accept    Verdict = iota // it goes on
	Refuse                   // answered by a reset: ECONNREFUSED
	NoHost                   // answered by ICMP: EHOSTUNREACH
	NoNetwork                // the same: ENETUNREACH
	Drop                     // as if it was lost
)

// headers is how much of a packet is asked for, in bytes: the longest header of IPv4, and
// ports.
const headers = 64

// Most is how many packets the kernel holds for one queue; it drops more.
const Most = 2048

// Queue is queue 0 of one network namespace. One goroutine may call Next, any the others.
type Queue struct {
	file *os.File
	conn syscall.RawConn
	over atomic.Bool
	buf  [1024]byte // longer than any message: attributes, and 64 bytes of the packet
}

// Open makes the queue of the calling thread's network namespace. Until it is closed,
// nobody else can; packets that it held are dropped then. The errno says what the kernel
// lacks: EINVAL or EOPNOTSUPP when there is no nfnetlink_queue.
func Open() (_ *Queue, err error) {
	s, err := nlmsg.Open(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("packet queue: %w", err)
	}
	if err := s.Send(nlmsg.Netfilter(nlmsg.BindQueue(Most))); err != nil {
		s.Close()
		return nil, fmt.Errorf("bind packet queue 0 (nfnetlink_queue): %w", err)
	}
	fd := s.Take()
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	// What does not fit into the socket's buffer the kernel drops, and clients send it
	// again: that is no error of the next read. 1 MiB, or what net.core.rmem_max allows.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return nil, fmt.Errorf("packet queue: setsockopt(NETLINK_NO_ENOBUFS): %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20); err != nil {
		return nil, fmt.Errorf("packet queue: setsockopt(SO_RCVBUF): %w", err)
	}
	// From here on packets come, and Send would take them for answers.
	if err := unix.Sendto(fd, nlmsg.BeginQueue(headers).Bytes(), 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("begin packet queue: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("packet queue: %w", err)
	}
	q := &Queue{file: os.NewFile(uintptr(fd), "packet queue")}
	q.conn, err = q.file.SyscallConn()
	return q, err
}

// Close ends the queue: Next returns, and what is held is dropped.
func (q *Queue) Close() error {
	if q.over.Swap(true) {
		return net.ErrClosed
	}
	return q.file.Close()
}

// failed is why a call failed: a RawConn has no error of its own for a closed file.
func (q *Queue) failed(err, errno error) error {
	switch {
	case q.over.Load():
		return net.ErrClosed
	case err != nil:
		return err
	}
	return errno
}

// Detach gives the queue to who asks Poll when the returned file descriptor, which stays the
// queue's, can be read: the runtime's poller, and with it Next, knows nothing of it any more.
func (q *Queue) Detach() (fd int, err error) {
	var derr error
	err = q.conn.Control(func(old uintptr) { fd, derr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	if err != nil || derr != nil {
		err = q.failed(err, derr)
		return -1, fmt.Errorf("detach packet queue: %w", err)
	}
	// A blocking file is not for the poller. Both descriptors share that.
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("detach packet queue: %w", err)
	}
	file := os.NewFile(uintptr(fd), "packet queue")
	conn, err := file.SyscallConn()
	if err = errors.Join(err, unix.SetNonblock(fd, true)); err != nil {
		_ = file.Close()
		return -1, fmt.Errorf("detach packet queue: %w", err)
	}
	err = q.file.Close()
	q.file, q.conn = file, conn
	return fd, err
}

// Poll is Next where there is something, and false where not.
func (q *Queue) Poll() (syn SYN, ok bool) {
	err := q.conn.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), q.buf[:], unix.MSG_DONTWAIT)
		if err == nil {
			syn, ok, err = parse(q.buf[:n])
		}
		ok = ok && err == nil
	})
	return syn, ok && err == nil
}

// Next waits for a packet. A SYN that nobody answered comes again, as another packet.
// After net.ErrClosed there are no more; other errors are of one message.
func (q *Queue) Next() (SYN, error) {
	for {
		var n int
		var rerr error
		err := q.conn.Read(func(fd uintptr) bool {
			for rerr = unix.EINTR; errors.Is(rerr, unix.EINTR); {
				n, _, rerr = unix.Recvfrom(int(fd), q.buf[:], 0)
			}
			return !errors.Is(rerr, unix.EAGAIN)
		})
		if err != nil || rerr != nil {
			err = q.failed(err, rerr)
			return SYN{}, fmt.Errorf("read packet queue: %w", err)
		}
		if syn, ok, err := parse(q.buf[:n]); ok || err != nil {
			return syn, err
		}
	}
}

// Decide says what becomes of a packet. It has happened when Decide returns, with all that
// follows in the kernel.
func (q *Queue) Decide(id uint32, v Verdict) error {
	m := nlmsg.AcceptQueued(id, uint32(v))
	if v == Drop {
		m = nlmsg.DropQueued(id)
	}
	var serr error
	err := q.conn.Control(func(fd uintptr) {
		serr = unix.Sendto(int(fd), m.Bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	if err != nil || serr != nil {
		err = q.failed(err, serr)
		return fmt.Errorf("decide about packet %d of the queue: %w", id, err)
	}
	return nil
}
