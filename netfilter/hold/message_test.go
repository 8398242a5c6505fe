package hold

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// packet is a message as the kernel sends it.
func packet(id uint32, payload []byte) []byte {
	number := binary.BigEndian.AppendUint32(nil, id)
	return message(nlmsg.QueuePacket, nlmsg.Attr(nlmsg.QueuePacketHeader, append(number, 8, 0, 0, 0)),
		nlmsg.Attr(5, number),
		nlmsg.Attr(nlmsg.QueuePayload|unix.NLA_F_NESTED, payload))
}

func message(kind uint16, attrs ...[]byte) []byte {
	return nlmsg.Message{Kind: kind, Body: append(nlmsg.Header(unix.AF_INET, 0), nlmsg.Join(attrs...)...)}.Bytes()
}

// syn4 and syn6 are the first bytes of SYNs from port 40000 to 5432.
func syn4(options int) []byte {
	b := make([]byte, 20+options+20)
	b[0], b[9] = byte(0x45+options/4), unix.IPPROTO_TCP
	copy(b[12:], []byte{127, 0, 0, 1, 198, 18, 0, 9})
	copy(b[20+options:], []byte{0x9c, 0x40, 0x15, 0x38})
	return b
}

func syn6(next byte) []byte {
	b := make([]byte, 60)
	b[0], b[6], b[23], b[24], b[39] = 0x60, next, 1, 0xfd, 7
	copy(b[40:], []byte{0x9c, 0x40, 0x15, 0x38})
	return b
}

func TestParse(t *testing.T) {
	const v4, v6 = "127.0.0.1:40000 198.18.0.9:5432", "[::1]:40000 [fd00::7]:5432"
	fragment := syn4(0)
	fragment[7] = 1
	for what, c := range map[string]struct {
		payload []byte
		want    string
	}{
		"IPv4": {syn4(0), v4}, "with options": {syn4(8), v4}, "IPv6": {syn6(unix.IPPROTO_TCP), v6},
		"extension header": {syn6(43), ""}, "UDP": {append([]byte{0x45, 8: 0, 9: 17}, syn4(0)[10:]...), ""},
		"a fragment": {fragment, ""},
		"short":      {syn4(0)[:22], ""}, "no ports": {syn4(40)[:60], ""}, "nothing": {nil, ""},
		"header of 4 bytes": {append([]byte{0x41}, syn4(0)[1:]...), ""},
	} {
		syn, ok, err := parse(packet(7, c.payload))
		got := ""
		if syn.To.IsValid() {
			got = syn.From.String() + " " + syn.To.String()
		}
		if !ok || err != nil || syn.ID != 7 || got != c.want {
			t.Errorf("%s: %+v, %t, %v, want %q", what, syn, ok, err, c.want)
		}
	}
	errno := func(e unix.Errno) []byte {
		return nlmsg.Message{Kind: unix.NLMSG_ERROR,
			Body: binary.NativeEndian.AppendUint32(nil, uint32(-int32(e)))}.Bytes()
	}
	for what, c := range map[string]struct {
		message []byte
		want    error
	}{
		"a packet without a header": {message(nlmsg.QueuePacket, nlmsg.Attr(nlmsg.QueuePayload, syn4(0))),
			errMalformed},
		"an answer":               {errno(0), nil},
		"a verdict came too late": {errno(unix.ENOENT), nil},
		"refused":                 {errno(unix.EPERM), unix.EPERM},
		"another message":         {message(99), nil},
		"cut":                     {packet(1, syn4(0))[:30], errMalformed},
		"too long":                {packet(1, syn4(0))[:15], errMalformed},
	} {
		if syn, ok, err := parse(c.message); ok || !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %t, %v, want %v", what, syn, ok, err, c.want)
		}
	}
}

// FuzzParse: no bytes make it panic, and what it takes for a SYN has an id and both
// addresses of one family, or none.
func FuzzParse(f *testing.F) {
	f.Add(packet(1, syn4(0)))
	f.Add(packet(2, syn4(40)))
	f.Add(packet(3, syn6(unix.IPPROTO_TCP)))
	f.Add(packet(4, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var syn SYN
		var ok bool
		var err error
		cost.Input(t, b, func(b []byte) { syn, ok, err = parse(b) })
		if ok && err != nil || !ok && syn.To.IsValid() && err == nil {
			t.Fatalf("%+v, %t, %v", syn, ok, err)
		}
		if syn.From.IsValid() != syn.To.IsValid() || syn.From.Addr().Is4() != syn.To.Addr().Is4() {
			t.Fatalf("%+v", syn)
		}
		from, to := addresses(b)
		if again, ok, err := parse(packet(9, b)); len(b) < 1<<15 && (!ok || err != nil || again != SYN{9, from, to}) {
			t.Fatalf("%+v, %v: %v %v", again, err, from, to)
		}
	})
}
