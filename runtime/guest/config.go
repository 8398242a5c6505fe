package guest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// stubELF is the exec stub: see stub/stub.c.
//
//go:embed stub/stub
var stubELF []byte

const (
	stubMagic   = 0x42545348 // "HSTB"
	stubVersion = 1
)

// stage is where the stub failed: enum stage of stub.c.
type stage int32

const (
	stageConfig stage = iota + 1
	stageSignals
	stageRlimit
	stageBounding
	stageGroups
	stageGID
	stageUID
	stageCaps
	stageChdir
	stageSeccomp
	stageExec
)

// header is struct config of stub.c, field by field. Offsets count bytes from
// the start of the config; 0 means absent.
type header struct {
	Magic       uint32
	Version     uint32
	Size        uint32
	UID         uint32
	GID         uint32
	Umask       uint32
	OomScoreAdj uint32
	SetGroups   uint32
	GroupsLen   uint32
	Groups      uint32
	RlimitsLen  uint32
	Rlimits     uint32
	CpusLen     uint32
	Cpus        uint32
	CapDropLo   uint32
	CapDropHi   uint32
	Argv        uint32
	Env         uint32
	Cwd         uint32
	Path        uint32
}

// stubConfig is what the stub is told.
type stubConfig struct {
	cred        *credentials
	oomScoreAdj uint32
	rlimits     []guestapi.Rlimit
	cpus        []byte // guestapi.Request.CPUs
	capDrop     uint64 // guestapi.Request.CapDrop
	argv        []string
	env         []string
	cwd         string // "" stays in hutch-init's, which is /
	path        string // value of PATH; unused when argv[0] has a slash
}

// encode lays c out as stub.c documents it: the header, the tables (8-aligned,
// little-endian as both supported architectures are), then the strings. The
// strings must hold no NUL byte.
func (c *stubConfig) encode() ([]byte, error) {
	h := header{
		Magic: stubMagic, Version: stubVersion,
		UID: c.cred.uid, GID: c.cred.gid, Umask: 0o022, OomScoreAdj: c.oomScoreAdj,
		GroupsLen: uint32(len(c.cred.groups)), RlimitsLen: uint32(len(c.rlimits)),
		CpusLen: uint32(len(c.cpus)), CapDropLo: uint32(c.capDrop), CapDropHi: uint32(c.capDrop >> 32),
	}
	if c.cred.setGroups {
		h.SetGroups = 1
	}
	next := uint64(binary.Size(h))
	place := func(n, size int) uint32 {
		at := next
		next += (uint64(n)*uint64(size) + 7) &^ 7
		return uint32(at)
	}
	h.Rlimits = place(len(c.rlimits), 24)
	h.Cpus = place(len(c.cpus), 1)
	h.Groups = place(len(c.cred.groups), 4)
	h.Argv = place(len(c.argv)+2, 8)
	h.Env = place(len(c.env)+1, 8)

	total := next
	for _, list := range [][]string{c.argv, c.env, {c.cwd, c.path}} {
		for _, s := range list {
			total += uint64(len(s)) + 1
		}
	}
	if total > math.MaxInt32 {
		return nil, fmt.Errorf("arguments and environment of %d bytes: %w", total, unix.E2BIG)
	}
	w := layout{buf: make([]byte, total), next: uint32(next)}
	if c.cwd != "" {
		h.Cwd = w.text(c.cwd)
	}
	if c.path != "" {
		h.Path = w.text(c.path)
	}
	w.tables(&h, c)
	h.Size = w.next
	if _, err := binary.Encode(w.buf, binary.LittleEndian, &h); err != nil {
		return nil, fmt.Errorf("encode stub config: %w", err)
	}
	return w.buf[:w.next], nil
}

// layout fills a config whose size is known.
type layout struct {
	buf  []byte
	next uint32 // where the next string goes
}

func (w *layout) text(s string) uint32 {
	at := w.next
	w.next += uint32(copy(w.buf[at:], s)) + 1
	return at
}

func (w *layout) table(at uint32, list []string) {
	for i, s := range list {
		binary.LittleEndian.PutUint64(w.buf[at+uint32(i)*8:], uint64(w.text(s)))
	}
}

func (w *layout) tables(h *header, c *stubConfig) {
	w.table(h.Argv+8, c.argv) // after the spare slot
	w.table(h.Env, c.env)
	for i, g := range c.cred.groups {
		binary.LittleEndian.PutUint32(w.buf[h.Groups+uint32(i)*4:], g)
	}
	copy(w.buf[h.Cpus:], c.cpus)
	for i, r := range c.rlimits {
		at := w.buf[h.Rlimits+uint32(i)*24:]
		binary.LittleEndian.PutUint32(at, uint32(r.Resource))
		binary.LittleEndian.PutUint64(at[8:], r.Soft)
		binary.LittleEndian.PutUint64(at[16:], r.Hard)
	}
}
