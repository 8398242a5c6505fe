package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// TestLayout compares our types with what the compiler made of the C ones: a Go struct with
// another layout would be written without an error and match nothing.
func TestLayout(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec("program/hutch_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	for name, ours := range map[string]any{
		"sandbox": sandboxValue{}, "address_key": addressKey{}, "address": addressValue{}, "cidr_key": cidrKey{},
		"cidr": cidrValue{}, "counts": Counts{}, "event": eventValue{},
	} {
		var theirs *btf.Struct
		if err := spec.Types.TypeByName(name, &theirs); err != nil {
			t.Errorf("struct %s: %v", name, err)
			continue
		}
		typ := reflect.TypeOf(ours)
		if binary.Size(ours) != int(theirs.Size) || typ.Size() != uintptr(theirs.Size) {
			t.Errorf("struct %s has %d bytes, ours %d and %d packed", name, theirs.Size, typ.Size(), binary.Size(ours))
		}
		if typ.NumField() != len(theirs.Members) {
			t.Errorf("struct %s has %d members, ours %d", name, len(theirs.Members), typ.NumField())
			continue
		}
		for i, m := range theirs.Members {
			f := typ.Field(i)
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.EqualFold(f.Name, m.Name) || f.Offset != uintptr(m.Offset.Bytes()) ||
				f.Type.Size() != uintptr(size) {
				t.Errorf("struct %s: %s at %d, %d bytes; ours %s at %d, %d bytes", name, m.Name, m.Offset.Bytes(), size,
					f.Name, f.Offset, f.Type.Size())
			}
		}
	}
	for _, s := range shapes {
		m := spec.Maps[s.name]
		if m == nil || m.Type != s.kind || m.KeySize != s.key || m.ValueSize != s.value {
			t.Errorf("map %s is %+v, ours %+v", s.name, m, s)
		}
	}
}

// TestRefused: rules that would not mean what they say.
func TestRefused(t *testing.T) {
	good := Address{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: TCP, Verdict: Allow}
	for name, change := range map[string]func(*Address){
		"":                func(*Address) {},
		"no address":      func(a *Address) { a.Addr = netip.Addr{} },
		"a zone":          func(a *Address) { a.Addr = netip.MustParseAddr("fe80::1%lo") },
		"no transport":    func(a *Address) { a.Proto = 0 },
		"ICMP":            func(a *Address) { a.Proto = 1 },
		"no verdict":      func(a *Address) { a.Verdict = 0 },
		"expired forever": func(a *Address) { a.Expires = -1 },
	} {
		a := good
		change(&a)
		if _, _, err := a.entry(1); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, r := range []Range{{Verdict: Allow}, {Prefix: netip.MustParsePrefix("::/0")}} {
		if _, _, err := r.entry(1); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
	if _, err := (Policy{Errno: syscall.ENOENT}).value(1); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("ENOENT: %v", err)
	}
	if v, err := (Policy{}).value(1); err != nil || v.Error != int32(syscall.EACCES) {
		t.Errorf("no errno: %+v, %v", v, err)
	}
}

// TestRange: bits of IPv4 count from those of IPv6, and bits behind a prefix are none.
func TestRange(t *testing.T) {
	k, v, err := Range{Prefix: netip.MustParsePrefix("10.1.2.3/8"), UDP: true, Verdict: Allow,
		Rule: 4}.entry(0x1_0000_0002)
	want := cidrKey{Prefix: 64 + 96 + 8, Table: [2]uint32{2, 1}, IP: netip.MustParseAddr("::ffff:10.0.0.0").As16()}
	if err != nil || k != want || v != (cidrValue{Verdict: 1, Protos: protoUDP, Rule: 4}) {
		t.Errorf("%+v %+v %v, want %+v", k, v, err, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, 72))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, sample []byte) {
		var e Event
		var err error
		cost.Input(t, sample, func(sample []byte) { e, err = decode(sample) })
		if (err == nil) != (len(sample) == binary.Size(eventValue{})) {
			t.Errorf("%d bytes: %+v, %v", len(sample), e, err)
		}
	})
}
