package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// Event is one verdict.
type Event struct {
	Cgroup  uint64 // the sandbox's, as it was added
	Process uint64 // cgroup of the process: its exec's; 0 from Egress
	// Time is CLOCK_MONOTONIC.
	Time time.Duration
	// PID and UID are as the initial namespaces have them; 0 from Egress, where whoever runs
	// is not who sent.
	PID, UID int
	// To is not valid from Socket.
	To       netip.AddrPort
	Protocol int // IPPROTO_*
	Type     int // SOCK_*, from Socket
	Hook     Hook
	Verdict  Verdict
	Rule     uint32
	Errno    syscall.Errno // 0 when allowed
}

// Reader reads events. Several cannot share a ring: each event goes to one.
type Reader struct{ ring *ringbuf.Reader }

// Events reads what the programs tell, from the oldest that nobody has read.
func (m *Maps) Events() (*Reader, error) {
	ring, err := ringbuf.NewReader(m.events)
	if err != nil {
		return nil, fmt.Errorf("read the eBPF events: %w", err)
	}
	return &Reader{ring}, nil
}

// Close ends Read.
func (r *Reader) Close() error { return r.ring.Close() }

// SetDeadline bounds Read, which then fails with os.ErrDeadlineExceeded.
func (r *Reader) SetDeadline(t time.Time) { r.ring.SetDeadline(t) }

// Read waits for the next event. It fails with os.ErrClosed after Close.
func (r *Reader) Read() (Event, error) {
	record, err := r.ring.Read()
	switch {
	case errors.Is(err, os.ErrClosed):
		return Event{}, os.ErrClosed
	case err != nil:
		return Event{}, fmt.Errorf("read the eBPF events: %w", err)
	}
	return decode(record.RawSample)
}

func decode(sample []byte) (Event, error) {
	var v eventValue
	if n := binary.Size(v); len(sample) != n {
		return Event{}, fmt.Errorf("an eBPF event has %d bytes, want %d", len(sample), n)
	}
	if _, err := binary.Decode(sample, binary.NativeEndian, &v); err != nil {
		return Event{}, fmt.Errorf("decode an eBPF event: %w", err)
	}
	e := Event{
		Cgroup: v.Sandbox, Process: v.Cgroup, Time: time.Duration(v.Time), PID: int(v.PID), UID: int(v.UID),
		Protocol: int(v.Protocol), Type: int(v.Type), Hook: Hook(v.Hook), Verdict: Verdict(v.Verdict), Rule: v.Rule,
		Errno: syscall.Errno(v.Error),
	}
	if e.Hook != Socket {
		e.To = netip.AddrPortFrom(netip.AddrFrom16(v.IP).Unmap(), binary.BigEndian.Uint16(v.Port[:]))
	}
	return e, nil
}
