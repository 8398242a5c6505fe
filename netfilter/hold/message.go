package hold

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
)

var errMalformed = errors.New("a message of the kernel's queue is malformed")

// parse reads one message. A packet of which it does not understand the addresses has
// none; other messages than packets are no SYN and no error, but for refusals.
func parse(b []byte) (syn SYN, ok bool, err error) {
	if len(b) < unix.SizeofNlMsghdr {
		return syn, false, errMalformed
	}
	length, kind := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
	if length < unix.SizeofNlMsghdr || uint64(length) > uint64(len(b)) {
		return syn, false, errMalformed
	}
	body := b[unix.SizeofNlMsghdr:length]
	switch kind {
	case unix.NLMSG_ERROR:
		return syn, false, refusal(body)
	case nlmsg.QueuePacket:
	default:
		return syn, false, nil
	}
	const nfgenmsg = 4
	if len(body) < nfgenmsg {
		return syn, false, errMalformed
	}
	for attrs := body[nfgenmsg:]; len(attrs) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < unix.SizeofNlAttr || size > len(attrs) {
			return syn, false, errMalformed
		}
		value := attrs[unix.SizeofNlAttr:size]
		switch binary.NativeEndian.Uint16(attrs[2:]) &^ unix.NLA_F_NESTED {
		case nlmsg.QueuePacketHeader:
			if len(value) < 4 {
				return syn, false, errMalformed
			}
			syn.ID, ok = binary.BigEndian.Uint32(value), true
		case nlmsg.QueuePayload:
			syn.From, syn.To = addresses(value)
		}
		attrs = attrs[min((size+3)&^3, len(attrs)):]
	}
	if !ok {
		return syn, false, errMalformed
	}
	return syn, true, nil
}

// refusal is the kernel's of something that was asked. A verdict that came too late is
// none: the packet went with the namespace.
func refusal(body []byte) error {
	if len(body) < 4 {
		return errMalformed
	}
	if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); errno != 0 && errno != unix.ENOENT {
		return errno
	}
	return nil
}

// addresses are a TCP packet's. Those with extension headers, which nobody needs to
// connect, are left to who accepts the connection.
func addresses(packet []byte) (from, to netip.AddrPort) {
	const v4, v6 = 20, 40
	var src, dst netip.Addr
	var ports []byte
	switch {
	case len(packet) >= v4 && packet[0]>>4 == 4:
		header := int(packet[0]&15) * 4
		fragment := binary.BigEndian.Uint16(packet[6:]) & 0x1fff
		if header < v4 || header > len(packet) || packet[9] != unix.IPPROTO_TCP || fragment != 0 {
			return from, to
		}
		src, dst = netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
		ports = packet[header:]
	case len(packet) >= v6 && packet[0]>>4 == 6 && packet[6] == unix.IPPROTO_TCP:
		src, dst = netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40]))
		ports = packet[v6:]
	}
	if len(ports) < 4 {
		return from, to
	}
	return netip.AddrPortFrom(src, binary.BigEndian.Uint16(ports)),
		netip.AddrPortFrom(dst, binary.BigEndian.Uint16(ports[2:]))
}
