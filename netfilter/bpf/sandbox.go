package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// Sandbox is one sandbox's policy in the kernel. Its methods may be called from any
// goroutine.
//
// The maps cannot tell which keys are a sandbox's without reading them all: it keeps them.
type Sandbox struct {
	m      *Maps
	cgroup uint64

	parent *Sandbox // of an exec's; nil of a sandbox's own

	mu    sync.Mutex // guards what follows; an exec's before its parent's
	execs int        // that have policies of their own
	// inherited says that execs had some when a process before was here: they are looked for until
	// it is known which.
	inherited bool
	policy    sandboxValue
	keys      keys
	closed    bool
}

// keys are those of one table.
type keys struct {
	table     uint64
	addresses map[addressKey]struct{}
	cidrs     map[cidrKey]struct{}
}

// Add puts a policy in force for the processes in a cgroup and below it, or in the place of
// the one that a process before has put there. The number is the cgroup's, as the inode of
// its folder.
func (m *Maps) Add(cgroup uint64, p Policy) (*Sandbox, error) {
	return m.add(&Sandbox{m: m, cgroup: cgroup}, p)
}

// Narrow puts one more policy in force for the processes in a cgroup right below s's: they
// reach what both allow.
func (s *Sandbox) Narrow(cgroup uint64, p Policy) (*Sandbox, error) {
	n, err := s.m.add(&Sandbox{m: s.m, cgroup: cgroup, parent: s}, p)
	if err != nil {
		return nil, err
	}
	if err := s.narrowed(1); err != nil {
		n.parent = nil // it was not counted
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// narrowed notes how many execs have policies of their own: without any the programs do not look for one.
func (s *Sandbox) narrowed(more int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		if more < 0 {
			return nil
		}
		return fmt.Errorf("policy of cgroup %d: %w", s.cgroup, ErrClosed)
	}
	value := s.policy
	value.Flags &^= hasExecs
	if s.execs+more > 0 {
		value.Flags |= hasExecs
	}
	if value != s.policy {
		if err := s.m.sandboxes.Put(s.cgroup, value); err != nil {
			return fmt.Errorf("note that cgroup %d has execs with policies of their own: %w", s.cgroup, err)
		}
		s.policy = value
	}
	s.execs += more
	s.inherited = false
	return nil
}

func (m *Maps) add(s *Sandbox, p Policy) (*Sandbox, error) {
	cgroup := s.cgroup
	err := m.counters.Update(cgroup, Counts{}, ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return nil, fmt.Errorf("add cgroup %d to the eBPF counters: %w", cgroup, err)
	}
	var before sandboxValue
	if m.sandboxes.Lookup(cgroup, &before) == nil {
		s.inherited = before.Flags&hasExecs != 0
	}
	if err := s.Replace(p); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Replace puts another policy in force, all of it at once, and forgets what was Put. When it
// fails, the one before stays.
func (s *Sandbox) Replace(p Policy) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("policy of cgroup %d: %w", s.cgroup, ErrClosed)
	}
	table, err := s.m.table()
	if err != nil {
		return err
	}
	value, err := p.value(table)
	if err != nil {
		return err
	}
	if s.execs > 0 || s.inherited {
		value.Flags |= hasExecs
	}
	next := keys{table: table, addresses: map[addressKey]struct{}{}, cidrs: map[cidrKey]struct{}{}}
	for _, a := range p.Addresses {
		err = errors.Join(err, s.m.put(&next, a))
	}
	for _, r := range p.Ranges {
		err = errors.Join(err, s.m.putRange(&next, r))
	}
	if err == nil {
		if err = s.m.sandboxes.Put(s.cgroup, value); err != nil {
			err = fmt.Errorf("name the eBPF table of cgroup %d: %w", s.cgroup, err)
		}
	}
	if err != nil {
		return errors.Join(err, s.m.forget(next))
	}
	before := s.keys
	s.policy, s.keys = value, next
	return s.m.forget(before)
}

// Put adds one address to the policy in force. It is there when Put returns.
func (s *Sandbox) Put(a Address) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("policy of cgroup %d: %w", s.cgroup, ErrClosed)
	}
	return s.m.put(&s.keys, a)
}

// Close removes the sandbox: its processes reach nothing any more. It may be called twice.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	cgroup := []uint64{s.cgroup}
	if s.parent != nil {
		defer func() { _ = s.parent.narrowed(-1) }() // a flag too many costs a look
	}
	return errors.Join(remove(s.m.sandboxes, cgroup), s.m.forget(s.keys), remove(s.m.counters, cgroup))
}

// ErrClosed says that a sandbox was removed.
var ErrClosed = errors.New("the sandbox was removed")

// numbers are its cgroup and the table in force.
func (s *Sandbox) numbers() (cgroup, table uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cgroup, s.keys.table
}

func (m *Maps) put(k *keys, a Address) error {
	key, value, err := a.entry(k.table)
	if err != nil {
		return err
	}
	k.addresses[key] = struct{}{}
	if err := m.addresses.Put(key, value); err != nil {
		return fmt.Errorf("put %s port %d into the eBPF map: %w", a.Addr, a.Port, err)
	}
	return nil
}

func (m *Maps) putRange(k *keys, r Range) error {
	key, value, err := r.entry(k.table)
	if err != nil {
		return err
	}
	k.cidrs[key] = struct{}{}
	if err := m.cidrs.Put(key, value); err != nil {
		return fmt.Errorf("put %s into the eBPF map: %w", r.Prefix, err)
	}
	return nil
}

// forget deletes a table's keys.
func (m *Maps) forget(k keys) error {
	addresses := make([]addressKey, 0, len(k.addresses))
	for key := range k.addresses {
		addresses = append(addresses, key)
	}
	cidrs := make([]cidrKey, 0, len(k.cidrs))
	for key := range k.cidrs {
		cidrs = append(cidrs, key)
	}
	return errors.Join(remove(m.addresses, addresses), remove(m.cidrs, cidrs))
}
