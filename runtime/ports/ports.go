// Package ports is the ports of sandboxes that the host reaches: exposing and closing them, listing them, and going on
// with those of a hutchd before. netfilter carries the connections.
package ports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Find finds a sandbox by id or name, Living one that runs or is paused.
	Find(ref string) (Sandbox, error)
	Living(ref string) (Sandbox, error)
	All() []Sandbox
}

// Sandbox is one whose ports are asked for. Its methods are called with the lock of its Set held.
type Sandbox interface {
	ID() string
	// Ports are the sandbox's own.
	Ports() *Set
	// Open makes what carries connections into the network of the sandbox, which lives.
	Open() (Carrier, error)
	// Save notes its ports for the next hutchd.
	Save(list []api.Port) error
	// Audit notes what was done with a port, by whose call as ctx knows. There is no token in it.
	Audit(ctx context.Context, kind api.AuditKind, p api.Port)
}

// Carrier carries connections of the host's to servers in one sandbox. Calls come one at a time.
type Carrier interface {
	// Expose listens where p says, or goes on with listener, which it owns and which may be nil.
	Expose(p api.PortExposeParams, listener *os.File) (api.Port, error)
	// Adopt goes on with what a hutchd before has exposed.
	Adopt(p api.Port) error
	List() []api.Port
	// Unexpose returns when nothing listens at an address, and its connections are closed.
	Unexpose(address string) error
	Close() error
}

// Ports serves the ports of all sandboxes. Its methods may be called from any goroutine.
type Ports struct {
	sandboxes Sandboxes
	log       *slog.Logger
}

// New serves the ports of sandboxes.
func New(sandboxes Sandboxes, log *slog.Logger) *Ports { return &Ports{sandboxes: sandboxes, log: log} }

// Set is the ports of one sandbox. The zero value has none.
type Set struct {
	mu     sync.Mutex // held for a whole call: one at a time
	open   Carrier    // nil before there was one
	closed bool       // the sandbox is being removed
}

// Expose makes a port of a sandbox be reached from the host.
func (ps *Ports) Expose(ctx context.Context, p api.PortExposeParams, fds packet.Taker) (api.Port, error) {
	if err := p.Validate(); err != nil {
		return api.Port{}, err
	}
	s, err := ps.sandboxes.Living(p.Sandbox)
	if err != nil {
		return api.Port{}, err
	}
	set := s.Ports()
	set.mu.Lock()
	defer set.mu.Unlock()
	if err := set.carry(s); err != nil {
		return api.Port{}, err
	}
	if n := len(set.open.List()); n >= api.MaxPorts {
		return api.Port{}, api.Errorf(api.ResourceExhausted,
			"sandbox %s has %d ports that the host reaches, as many as it may", s.ID(), n).
			WithHint("close one: hutch port close %s PORT", s.ID())
	}
	var listener *os.File
	if p.Listener != nil {
		if listener, err = fds.Take(*p.Listener); err != nil {
			return api.Port{}, err
		}
	}
	port, err := set.open.Expose(p, listener)
	if err != nil {
		return api.Port{}, err
	}
	if err := set.save(s); err != nil {
		return api.Port{}, fmt.Errorf("note the ports of sandbox %s: %w", s.ID(),
			errors.Join(err, set.open.Unexpose(port.Address)))
	}
	audit(ctx, s, api.AuditPortExposed, port)
	return port, nil
}

// carry makes the sandbox's Carrier, where there is none; mu is held.
func (set *Set) carry(s Sandbox) (err error) {
	if set.closed {
		return api.Errorf(api.NotFound, "sandbox %s is being removed", s.ID()).
			WithHint("hutch ps lists the sandboxes")
	}
	if set.open == nil {
		set.open, err = s.Open()
	}
	return err
}

// List lists the ports of a sandbox, or of all where none is named.
func (ps *Ports) List(_ context.Context, p api.PortListParams) (api.Ports, error) {
	var of []Sandbox
	if p.Sandbox == "" {
		of = ps.sandboxes.All()
	} else {
		s, err := ps.sandboxes.Find(p.Sandbox)
		if err != nil {
			return api.Ports{}, err
		}
		of = append(of, s)
	}
	list := []api.Port{}
	for _, s := range of {
		list = append(list, s.Ports().list()...)
	}
	order(list)
	return api.Ports{Ports: list}, nil
}

func (set *Set) list() []api.Port {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.open == nil || set.closed {
		return nil
	}
	return set.open.List()
}

func order(list []api.Port) {
	slices.SortFunc(list, func(a, b api.Port) int {
		return cmp.Or(cmp.Compare(a.Sandbox, b.Sandbox), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address))
	})
}

// Close ends what is exposed of a port, with its connections, and returns that.
func (ps *Ports) Close(ctx context.Context, p api.PortCloseParams) (api.Ports, error) {
	if err := p.Validate(); err != nil {
		return api.Ports{}, err
	}
	s, err := ps.sandboxes.Find(p.Sandbox)
	if err != nil {
		return api.Ports{}, err
	}
	set := s.Ports()
	set.mu.Lock()
	defer set.mu.Unlock()
	var closed []api.Port
	if set.open != nil && !set.closed {
		for _, port := range set.open.List() {
			if port.Port == p.Port && (p.Address == "" || port.Address == p.Address) {
				closed = append(closed, port)
			}
		}
	}
	if len(closed) == 0 {
		at := ""
		if p.Address != "" {
			at = " at " + p.Address
		}
		return api.Ports{}, api.Errorf(api.NotFound, "port %d of sandbox %s is not reached from the host%s", p.Port,
			s.ID(), at).WithHint("hutch port ls lists those that are")
	}
	order(closed)
	// first: the next hutchd would go on with sockets that nobody listens at
	if err := set.save(s, closed...); err != nil {
		return api.Ports{}, err
	}
	for _, port := range closed {
		err = errors.Join(err, set.open.Unexpose(port.Address))
		audit(ctx, s, api.AuditPortClosed, port)
	}
	return api.Ports{Ports: closed}, err
}

// save notes the ports for the next hutchd, without some; mu is held.
func (set *Set) save(s Sandbox, without ...api.Port) error {
	list := slices.DeleteFunc(set.open.List(), func(p api.Port) bool {
		return slices.ContainsFunc(without, func(w api.Port) bool { return w.Address == p.Address })
	})
	for i := range list {
		list[i].Connections, list[i].Accepted = 0, 0
	}
	order(list)
	return s.Save(list)
}

// Adopt goes on with what a hutchd before has exposed of a sandbox. A port that is lost does not end the sandbox.
func (ps *Ports) Adopt(s Sandbox, exposed []api.Port) {
	if len(exposed) == 0 {
		return
	}
	set := s.Ports()
	set.mu.Lock()
	defer set.mu.Unlock()
	err := set.carry(s)
	for _, p := range exposed {
		if err == nil {
			err = set.open.Adopt(p)
		}
		if err != nil {
			ps.log.Warn("go on with a port", "sandbox", s.ID(), "port", p.Port, "address", p.Address, "err", err)
		}
	}
}

// End closes the ports of a sandbox that is removed or stopped. If there were any it calls then, which who ends them a
// second time waits for, too: somebody else may listen there after that.
func (set *Set) End(then func() error) error {
	set.mu.Lock()
	defer set.mu.Unlock()
	was := set.closed
	if set.closed = true; was || set.open == nil {
		return nil
	}
	return errors.Join(set.open.Close(), then())
}

// AuditEnd records that a stop closes what is exposed: nothing opens it again but another port.expose.
func (set *Set) AuditEnd(s Sandbox) {
	for _, port := range set.list() {
		audit(context.Background(), s, api.AuditPortClosed, port)
	}
}

// audit records who has opened a way into the sandbox, or closed it; never its token.
func audit(ctx context.Context, s Sandbox, kind api.AuditKind, p api.Port) {
	p.Token, p.URL = "", ""
	s.Audit(ctx, kind, p)
}
