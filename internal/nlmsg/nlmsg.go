// Package nlmsg builds netlink messages as bytes and sends them in one system call.
// What hutch asks of rtnetlink and nf_tables is a handful of messages that never
// change: built once and sent as they are, they cost a third of what the general
// libraries take, which build them anew and wait for each answer.
package nlmsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Message is one netlink message without its length, sequence number and port.
type Message struct {
	Kind  uint16
	Flags uint16 // besides NLM_F_REQUEST
	Body  []byte // the family's own header and the attributes
}

// Batch is a row of messages ready to be sent.
type Batch struct {
	protocol int
	bytes    []byte
	last     uint32 // sequence number of the message that is acknowledged
}

// Bytes is the message on its own, which the kernel answers only when it refuses it.
func (m Message) Bytes() []byte {
	var b Batch
	b.append(m, 0)
	return b.bytes
}

// Route makes a batch for rtnetlink. Each message is carried out on its own; the
// kernel goes on after one that fails.
func Route(messages ...Message) Batch {
	b := Batch{protocol: unix.NETLINK_ROUTE}
	b.add(messages)
	return b
}

// Netfilter makes a batch for a subsystem of netfilter other than nf_tables.
func Netfilter(messages ...Message) Batch {
	b := Batch{protocol: unix.NETLINK_NETFILTER}
	b.add(messages)
	return b
}

// NFTables makes a batch for nf_tables that happens as a whole or not at all.
func NFTables(messages ...Message) Batch {
	b := Batch{protocol: unix.NETLINK_NETFILTER}
	limit := Header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	b.append(Message{Kind: unix.NFNL_MSG_BATCH_BEGIN, Body: limit}, 0)
	b.add(messages)
	b.append(Message{Kind: unix.NFNL_MSG_BATCH_END, Body: limit}, b.last+1)
	return b
}

// add appends messages, of which the last is acknowledged; errors of others come
// all the same (netlink_rcv_skb).
func (b *Batch) add(messages []Message) {
	for i, m := range messages {
		if i == len(messages)-1 {
			m.Flags |= unix.NLM_F_ACK
		}
		b.last++
		b.append(m, b.last)
	}
}

func (b *Batch) append(m Message, seq uint32) {
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, uint32(unix.SizeofNlMsghdr+len(m.Body)))
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, m.Kind)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, m.Flags|unix.NLM_F_REQUEST)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, seq)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, 0) // port: the kernel fills it in
	b.bytes = append(b.bytes, m.Body...)
	b.bytes = append(b.bytes, make([]byte, -len(m.Body)&3)...)
}

// Error is the kernel's refusal of one message of a batch.
type Error struct {
	Message uint32 // the first is 1
	Errno   syscall.Errno
}

func (e *Error) Error() string { return fmt.Sprintf("netlink message %d: %v", e.Message, e.Errno) }

// Unwrap makes the errno visible to errors.Is.
func (e *Error) Unwrap() error { return e.Errno }

// Send sends the batch in the network namespace of the calling thread and returns
// the kernel's first refusal.
func (b Batch) Send() error {
	s, err := Open(b.protocol)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Send(b)
}

// Socket sends batches in the network namespace of the thread that opened it, from any
// thread. It is for one goroutine at a time.
type Socket struct{ fd int }

// Open opens a socket of a protocol, such as unix.NETLINK_ROUTE.
func Open(protocol int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	// The answer has come when sendto returns; the limit is for a kernel that gives none.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("netlink socket: setsockopt(SO_RCVTIMEO): %w", err)
	}
	return &Socket{fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() { _ = unix.Close(s.fd) }

// Take is the socket's fd, which is the caller's now: there is no Socket any more.
func (s *Socket) Take() (fd int) {
	fd, s.fd = s.fd, -1
	return fd
}

// Send sends a batch of the socket's protocol and returns the kernel's first refusal. After
// one the socket is of no further use: answers to what came behind are still in it.
func (s *Socket) Send(b Batch) error {
	if err := unix.Sendto(s.fd, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send netlink batch: %w", err)
	}
	return b.verdict(s.fd)
}

// verdict reads answers until that to the last message, or the first refusal.
func (b Batch) verdict(fd int) error {
	buf := make([]byte, 1<<13)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("read netlink answer: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return fmt.Errorf("parse netlink answer: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
				continue
			}
			if errno := -int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
				return &Error{Message: m.Header.Seq, Errno: syscall.Errno(errno)}
			}
			if m.Header.Seq == b.last {
				return nil
			}
		}
	}
}

// Attr is struct nlattr with its value, padded to four bytes.
func Attr(kind uint16, value []byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(value)))
	a = binary.NativeEndian.AppendUint16(a, kind)
	a = append(a, value...)
	return append(a, make([]byte, -len(a)&3)...)
}

// Nested is an attribute that consists of attributes.
func Nested(kind uint16, attrs ...[]byte) []byte {
	return Attr(kind|unix.NLA_F_NESTED, Join(attrs...))
}

// Join puts parts behind each other.
func Join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// U32 is a number of rtnetlink.
func U32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
