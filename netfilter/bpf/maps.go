package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Maps are the maps of one attachment. Their methods may be called from any goroutine.
type Maps struct {
	sandboxes, addresses, cidrs, counters, events *ebpf.Map

	mu   sync.Mutex
	last uint64 // table
}

// Count is how many maps there are.
const Count = 5

// shapes are what the maps must be, in the order in which they travel.
var shapes = [Count]struct {
	name       string
	kind       ebpf.MapType
	key, value uint32 // bytes
}{
	{"sandboxes", ebpf.Hash, 8, 16},
	{"addresses", ebpf.Hash, 32, 16},
	{"cidrs", ebpf.LPMTrie, 28, 12},
	{"counters", ebpf.Hash, 8, 24},
	{"events", ebpf.RingBuf, 0, 0},
}

// Open makes Maps of their fds, in the order in which hutch-netd sends them. It takes
// duplicates: files stay the caller's.
//
// Before Linux 5.19 the kernel lets nobody without CAP_BPF use maps where
// kernel.unprivileged_bpf_disabled is set: Open then fails with EPERM.
func Open(files []*os.File) (*Maps, error) {
	if len(files) != Count {
		return nil, fmt.Errorf("open the eBPF maps: %d files, want %d", len(files), Count)
	}
	m := &Maps{}
	for i, at := range []**ebpf.Map{&m.sandboxes, &m.addresses, &m.cidrs, &m.counters, &m.events} {
		var err error
		if *at, err = open(files[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("open the eBPF map %s: %w", shapes[i].name, err), m.Close())
		}
		if s, o := shapes[i], *at; o.Type() != s.kind || o.KeySize() != s.key || o.ValueSize() != s.value {
			err = fmt.Errorf("open the eBPF map %s: it is a %s of %d to %d bytes, want %s, %d, %d: not this build's",
				s.name, o.Type(), o.KeySize(), o.ValueSize(), s.kind, s.key, s.value)
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

func open(f *os.File) (*ebpf.Map, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, derr := -1, error(nil)
	if err := rc.Control(func(own uintptr) { fd, derr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, derr
	}
	return ebpf.NewMapFromFD(fd) // the fd is the map's, also when it fails
}

// Close closes the maps; what they say stays in force.
func (m *Maps) Close() error {
	var errs []error
	for _, one := range []*ebpf.Map{m.sandboxes, m.addresses, m.cidrs, m.counters, m.events} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// Counts are a sandbox's numbers; those of cgroup 0 are of all that is no sandbox.
func (m *Maps) Counts(cgroup uint64) (Counts, error) {
	var c Counts
	if err := m.counters.Lookup(cgroup, &c); err != nil {
		return c, fmt.Errorf("read the counters of cgroup %d: %w", cgroup, err)
	}
	return c, nil
}

// Sweep removes what is no living sandbox's: that of a process before, which knew the keys.
func (m *Maps) Sweep(living []*Sandbox) error {
	cgroups, tables := map[uint64]bool{0: true}, map[uint64]bool{}
	for _, s := range living {
		cgroup, table := s.numbers()
		cgroups[cgroup], tables[table] = true, true
	}
	known := func(cgroup uint64) bool { return cgroups[cgroup] }
	return errors.Join(
		// Sandboxes first: without its entry nothing that a table allows counts.
		sweep(m.sandboxes, known),
		sweep(m.counters, known),
		sweep(m.addresses, func(k addressKey) bool { return tables[k.Table] }),
		sweep(m.cidrs, func(k cidrKey) bool { return tables[uint64(k.Table[0])|uint64(k.Table[1])<<32] }),
	)
}

func sweep[K any](m *ebpf.Map, keep func(K) bool) error {
	var key K
	var value []byte
	var gone []K
	all := m.Iterate()
	for all.Next(&key, &value) {
		if !keep(key) {
			gone = append(gone, key)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("sweep the eBPF map %s: %w", m, err)
	}
	return remove(m, gone)
}

// remove deletes keys; those that are not there are no error.
func remove[K any](m *ebpf.Map, keys []K) error {
	var errs []error
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete %+v from the eBPF map %s: %w", k, m, err))
		}
	}
	return errors.Join(errs...)
}

// table is a number that no table has, nor had in a process before that is not swept yet.
func (m *Maps) table() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = max(m.last+1, uint64(now.Nano()))
	return m.last, nil
}
