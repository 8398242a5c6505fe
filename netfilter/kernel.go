package netfilter

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/netns"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// kernel is the layer that the kernel enforces itself, by eBPF, before a packet is made. It
// is never stricter than the proxy, which has the last word about what gets out: it knows
// addresses and ports, and not what a stream asks for.
type kernel struct {
	maps   *bpf.Maps
	events *bpf.Reader
	told   sync.WaitGroup
	engine *Engine
	mount  string
	execs  bool // the programs know policies of execs: those in force may be of an older build

	mu       sync.Mutex
	enforced map[uint64]*Enforced // by cgroup
}

// Enforced is one sandbox in the kernel.
type Enforced struct {
	k      *kernel
	id     string
	cgroup uint64
	net    *Network       // nil in mode none
	proof  chan bpf.Event // of ProveKernel alone

	mu       sync.Mutex
	sandbox  *bpf.Sandbox
	narrowed map[uint64]*narrowed // execs with policies of their own, by cgroup

	handling sync.Mutex // guards what follows
	changed  sync.Cond
	told     uint64 // refusals
	before   uint64 // that the kernel had counted when it began
	closed   bool
	recent   map[wanted]*repeated
	untold   int64
	limit    *rate.Limiter
	reader   reader
}

// UseKernel makes the engine enforce policies by eBPF, too. The files are the maps of
// programs that are in force around all sandboxes, in the order of bpf.Open; they stay the
// caller's. mount is where the cgroup2 hierarchy is. It must be called before anything else.
func (e *Engine) UseKernel(files []*os.File, mount string) error {
	m, err := bpf.Open(files)
	if err != nil {
		return err
	}
	k := &kernel{maps: m, engine: e, mount: mount, enforced: map[uint64]*Enforced{}}
	if k.events, err = m.Events(); err != nil {
		return errors.Join(err, m.Close())
	}
	k.told.Go(k.tell)
	e.kernel = k
	return nil
}

func (k *kernel) close() error {
	err := k.events.Close()
	k.told.Wait()
	return errors.Join(err, k.maps.Close())
}

// adopted forgets the sandboxes of a daemon before that are not taken over.
func (k *kernel) adopted() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var living []*bpf.Sandbox
	for _, s := range k.enforced { // nobody enforces a new one before all are adopted
		living = append(living, s.sandbox)
		s.mu.Lock()
		for _, n := range s.narrowed {
			living = append(living, n.sandbox)
		}
		s.mu.Unlock()
	}
	return k.maps.Sweep(living)
}

// ProveKernel has a process in a cgroup, and there in that of an exec, connect to an address that is allowed, to one
// that is not, and to one that the exec's policy alone does not allow. It fails unless the kernel
// does with the first two as it was told, and tells of it; the third shows whether execs can have policies.
// connect returns an errno, or 0, for each.
func (e *Engine) ProveKernel(cgroup, exec uint64, errnos bool, connect func(to ...netip.AddrPort) ([]syscall.Errno,
	error)) (err error) {
	k := e.kernel
	good, bad := netip.AddrPortFrom(netns.Synthetic.Addr(), 9), netip.AddrPortFrom(netns.Synthetic.Addr().Next(), 9)
	wide := netip.AddrPortFrom(bad.Addr().Next(), 9)
	s := &Enforced{cgroup: cgroup, proof: make(chan bpf.Event, 1)}
	k.mu.Lock()
	k.enforced[cgroup] = s
	k.mu.Unlock()
	defer k.forget(s)
	rule := func(a netip.AddrPort) bpf.Address {
		return bpf.Address{Addr: a.Addr(), Port: a.Port(), Proto: bpf.UDP, Verdict: bpf.Allow}
	}
	if s.sandbox, err = k.maps.Add(cgroup, bpf.Policy{Addresses: []bpf.Address{rule(good), rule(wide)}}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.sandbox.Close()) }()
	own, err := s.sandbox.Narrow(exec, bpf.Policy{Addresses: []bpf.Address{rule(good)}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(own.Close(), err) }()
	got, err := connect(good, bad, wide)
	if err != nil {
		return err
	}
	refused := syscall.EPERM
	if errnos {
		refused = syscall.EACCES
	}
	// Without a route what is allowed fails all the same, in another way.
	if len(got) != 3 || got[0] == syscall.EACCES || got[0] == syscall.EPERM || got[1] != refused {
		return fmt.Errorf("to %s, which is allowed, and %s, which is not, connect(2) answers %v, want %w for the second", good, bad, got, refused)
	}
	k.execs = got[2] == refused
	select {
	case event := <-s.proof:
		if event.To != bad || event.Errno != refused {
			return fmt.Errorf("the kernel tells of %+v, and should of %s", event, bad)
		}
		return nil
	case <-time.After(eventPatience):
		return fmt.Errorf("the kernel has refused %s, and does not tell of it", bad)
	}
}

// eventPatience is for events, which take microseconds.
const eventPatience = 10 * time.Second

// Enforce puts the policy of a network in force in the kernel for the processes of a cgroup,
// whose number is the inode of its folder; nil is mode none. UseKernel must have succeeded.
func (e *Engine) Enforce(id string, cgroup uint64, n *Network) (_ *Enforced, err error) {
	k := e.kernel
	s := &Enforced{k: k, id: id, cgroup: cgroup, net: n, limit: rate.NewLimiter(denialsPerSecond, 10*denialsPerSecond),
		recent: map[wanted]*repeated{}}
	s.changed.L = &s.handling
	if c, err := k.maps.Counts(cgroup); err == nil { // a daemon before was told about these
		s.before = c.Denied - c.Lost
	}
	k.mu.Lock()
	k.enforced[cgroup] = s // first, as events come before Add returns
	k.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := bpf.Policy{Errno: syscall.ENETUNREACH} // as without a route
	if n != nil {
		p = n.forKernel(n.rules.Load())
	}
	if s.sandbox, err = k.maps.Add(cgroup, p); err != nil {
		k.forget(s)
		return nil, fmt.Errorf("enforce the network of %s by eBPF: %w", id, err)
	}
	if n != nil {
		n.kernel.Store(s)
	}
	return s, nil
}

// Close ends it: the processes of the cgroup reach nothing any more.
func (s *Enforced) Close() error {
	s.k.forget(s)
	s.mu.Lock()
	for _, n := range s.narrowed {
		_ = n.sandbox.Close() // the cgroups go, too
	}
	s.narrowed = nil
	s.mu.Unlock()
	s.handling.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.handling.Unlock()
	return s.sandbox.Close()
}

// Settle waits until all that the kernel has refused so far is reported. The kernel counts
// before the program has its answer; what found the ring full is not waited for.
func (s *Enforced) Settle() {
	c, err := s.k.maps.Counts(s.cgroup)
	if err != nil {
		return // it is closed
	}
	late := time.AfterFunc(eventPatience, func() {
		s.handling.Lock()
		defer s.handling.Unlock()
		s.before = c.Denied // give up what has not come
		s.changed.Broadcast()
	})
	defer late.Stop()
	s.handling.Lock()
	defer s.handling.Unlock()
	for !s.closed && s.told+s.before < c.Denied-c.Lost {
		s.changed.Wait()
	}
	s.tellAgain()
}

// wanted is what makes two refusals the same: a target, and which cgroup wanted it.
type wanted struct {
	api.NetTarget
	cgroup uint64
}

// repeated is a refusal that was reported, with how often it was since.
type repeated struct {
	d     api.DeniedEvent
	at    time.Time
	again int64
}

const (
	// pause is between two tellings of the same: a program that tries again and again must
	// not hide what else is refused.
	pause = time.Second
	// maxRecent are remembered at a time.
	maxRecent = 256
)

// handle tells of a refusal, or counts it.
func (s *Enforced) handle(d api.DeniedEvent, event bpf.Event) {
	s.handling.Lock()
	defer s.handling.Unlock()
	defer s.changed.Broadcast()
	s.told++
	if len(s.recent) >= maxRecent {
		s.tellAgain()
		clear(s.recent)
	}
	key := wanted{d.NetTarget, d.Cgroup}
	r, now := s.recent[key], time.Now()
	switch {
	case r != nil && r.d.Rule == d.Rule && now.Sub(r.at) < pause:
		r.again++
		return
	case !s.limit.Allow():
		s.untold++
		return
	case r != nil && r.d.Rule == d.Rule:
		d.Count += r.again
	}
	d.Process = s.reader.process(s.k.mount, event)
	s.recent[key] = &repeated{d: d, at: now}
	d.Untold, s.untold = s.untold, 0
	s.k.engine.cfg.Denied(s.id, d)
}

// tellAgain tells of what was only counted; s.handling is held.
func (s *Enforced) tellAgain() {
	for _, r := range s.recent {
		if r.again > 0 {
			d := r.d
			d.Count, r.again = r.again, 0
			s.k.engine.cfg.Denied(s.id, d)
		}
	}
}

func (k *kernel) forget(s *Enforced) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.enforced[s.cgroup] == s {
		delete(k.enforced, s.cgroup)
	}
}

// grant makes a name's address reachable, on the ports that the policy in force has for it.
func (n *Network) grant(name string, a netip.Addr) error {
	s := n.kernel.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock() // a new policy comes before or after
	defer s.mu.Unlock()
	for _, address := range addresses(n.rules.Load(), name, a) {
		if err := s.sandbox.Put(address); err != nil {
			return err
		}
	}
	for _, e := range s.narrowed {
		for _, address := range addresses(e.rules, name, a) {
			if err := e.sandbox.Put(address); err != nil {
				return err
			}
		}
	}
	return nil
}

// updateKernel puts the rules that are n's now in force.
func (n *Network) updateKernel() error {
	s := n.kernel.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandbox.Replace(n.forKernel(n.rules.Load()))
}

// forKernel is what of the rules the kernel can know.
func (n *Network) forKernel(rules *policy.Rules) bpf.Policy {
	var p bpf.Policy
	for _, proto := range []bpf.Proto{bpf.TCP, bpf.UDP} {
		p.Addresses = append(p.Addresses, bpf.Address{Addr: netns.Resolver, Port: 53, Proto: proto, Verdict: bpf.Allow})
	}
	if everything(rules) { // which UDP passes is the proxy's to say
		for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv6Unspecified(), 0), netns.Synthetic} {
			p.Ranges = append(p.Ranges, bpf.Range{Prefix: all, TCP: true, UDP: true, Verdict: bpf.Allow})
		}
	} else {
		for name, a := range n.table.All() {
			p.Addresses = append(p.Addresses, addresses(rules, name, a)...)
		}
	}
	c := rules.Policy()
	// of the same range the last holds
	for verdict, list := range [...][]string{bpf.Allow: c.AllowCIDRs, bpf.Deny: c.BlockCIDRs} {
		for _, s := range list {
			prefix, err := api.ParseNetCIDR(s)
			if err != nil || inside(prefix, netns.Synthetic) { // Compile has read it; names are not blocked by it
				continue
			}
			p.Ranges = append(p.Ranges, bpf.Range{Prefix: prefix, TCP: true, Verdict: bpf.Verdict(verdict)})
		}
	}
	return p
}

func inside(p, outer netip.Prefix) bool { return outer.Contains(p.Addr()) && p.Bits() >= outer.Bits() }

// everything says that addresses without a name may be reached.
func everything(rules *policy.Rules) bool {
	_, all := rules.Ports(policy.TCP)
	return all
}

// addresses are those of a name, with each port that it may be reached on.
func addresses(rules *policy.Rules, name string, a netip.Addr) []bpf.Address {
	if everything(rules) {
		return nil // the range has it
	}
	var all []bpf.Address
	for proto, number := range map[policy.Proto]bpf.Proto{policy.TCP: bpf.TCP, policy.UDP: bpf.UDP} {
		ports, _ := rules.Ports(proto)
		for _, port := range ports {
			if rules.Connect(name, proto, port).Allow {
				all = append(all, bpf.Address{Addr: a, Port: port, Proto: number, Verdict: bpf.Allow})
			}
		}
	}
	return all
}

// counts are numbers by rule. Rules are a policy's entries and some of ours.
type counts struct {
	mu sync.Mutex
	n  map[string]int64
}

func (c *counts) add(rule string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	c.n[rule]++
}

func (c *counts) all() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int64{}
	maps.Copy(all, c.n)
	return all
}

// denialsPerSecond are reported, of one sandbox; ten times that at once.
const denialsPerSecond = 50

// tell tells of what the kernel has refused, until the reader is closed.
func (k *kernel) tell() {
	for {
		event, err := k.events.Read()
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				k.engine.cfg.Logger.Error("denials of eBPF are not told any more", "err", err)
			}
			return
		}
		k.mu.Lock()
		s := k.enforced[event.Cgroup]
		k.mu.Unlock()
		if s == nil || event.Verdict != bpf.Deny {
			continue // of a sandbox that was just removed
		}
		if s.proof != nil {
			select {
			case s.proof <- event:
			default: // one is enough
			}
			continue
		}
		d := s.explain(event)
		if s.net != nil {
			s.net.refused.add(d.Rule)
		}
		s.handle(d, event)
		runtime.Gosched() // whoever is to tell of it runs next, here, instead of being fetched by another processor
	}
}

var modeNone, _ = policy.Compile(api.NetPolicy{Mode: api.NetNone}) // it is valid

// explain finds the rule behind a refusal.
func (s *Enforced) explain(event bpf.Event) api.DeniedEvent {
	d := api.DeniedEvent{Count: 1, Cgroup: event.Process,
		Refusal: api.Refusal{By: "ebpf", Errno: unix.ErrnoName(event.Errno)}}
	if event.Hook == bpf.Socket {
		d.Rule, d.Why = "socket",
			fmt.Sprintf("sockets are for TCP and UDP, and not of type %d with protocol %d (socket(2), protocols(5))",
				event.Type, event.Protocol)
		return d
	}
	d.Port, d.Proto = event.To.Port(), policy.TCP
	if event.Protocol == syscall.IPPROTO_UDP || event.Protocol == syscall.IPPROTO_UDPLITE {
		d.Proto = policy.UDP
	}
	rules := modeNone
	to := event.To.Addr()
	name := ""
	if s.net != nil {
		rules = s.net.rules.Load()
		name, _ = s.net.table.Name(to)
	}
	decision := rules.Literal(to, d.Proto, d.Port)
	if d.Name = name; name != "" {
		decision = rules.Connect(name, d.Proto, d.Port)
	} else {
		d.Address = to.String()
	}
	if e := s.execRules(event.Process); decision.Allow && e != nil {
		if decision = e.Literal(to, d.Proto, d.Port); name != "" {
			decision = e.Connect(name, d.Proto, d.Port)
		}
		if !decision.Allow {
			d.Rule, d.Why = "exec: "+decision.Rule, "the policy of this exec: "+decision.Why
			return d
		}
	}
	if decision.Allow { // by a policy that came after
		decision = policy.Decision{Rule: "eBPF", Why: "the policy that was in force did not allow it"}
	}
	d.Rule, d.Why, d.HowToAllow = decision.Rule, decision.Why, decision.HowToAllow
	return d
}
