package warm

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Configure makes the pools of the configuration file what it says; those that calls made stay. Before Adopt it does
// nothing.
func (ps *Pools) Configure(specs []api.PoolSpec) {
	if ps.configure(specs) {
		ps.save()
	}
}

func (ps *Pools) configure(specs []api.PoolSpec) bool {
	ps.mu.Lock()
	defer ps.unlock()
	if ps.closed || !ps.started {
		return false
	}
	for _, p := range ps.pools {
		wanted := slices.ContainsFunc(specs, func(s api.PoolSpec) bool { return s.Name == p.spec.Name })
		if p.configured && !wanted {
			p.close()
		}
	}
	for _, spec := range specs {
		p := ps.pools[spec.Name]
		if p != nil && (p.spec.Ahead() != spec.Ahead() || !reflect.DeepEqual(p.spec.Sandbox, spec.Sandbox)) {
			p.close() // what waits is another thing now
			p = nil
		}
		if p == nil {
			p, _ = ps.add(spec, ps.cfg.Owner) // there is none of that name
		}
		p.configured = true
		p.resize(spec.Size)
	}
	return true
}

// KeepTemplate makes the pool of a template what spec says, and fills it in the background. Size 0 is no pool.
func (ps *Pools) KeepTemplate(spec api.PoolSpec, user uint32) error {
	if err := ps.keepTemplate(spec, user); err != nil {
		return err
	}
	ps.save()
	return nil
}

func (ps *Pools) keepTemplate(spec api.PoolSpec, user uint32) error {
	ps.mu.Lock()
	defer ps.unlock()
	p := ps.pools[spec.Name]
	switch {
	case p != nil && p.spec.Sandbox.Template != spec.Sandbox.Template:
		if spec.Size == 0 {
			return nil
		}
		return api.Errorf(api.AlreadyExists, "there is a pool %q, which is none of template %s", spec.Name,
			spec.Sandbox.Template).WithField("name").
			WithHint("remove it, or rename the template: hutch pool rm %s", spec.Name)
	case p != nil && spec.Size == 0:
		p.close()
	case p != nil:
		p.resize(spec.Size)
	case spec.Size > 0:
		p, err := ps.add(spec, user)
		if err != nil {
			return err
		}
		p.fill()
	}
	return nil
}

// RenewTemplate removes what waits in the pools of a template, which is another one now, and makes others. What was
// acquired goes on.
func (ps *Pools) RenewTemplate(template string) {
	ps.mu.Lock()
	defer ps.unlock()
	for _, p := range ps.pools {
		if p.spec.Sandbox.Template != template {
			continue
		}
		p.age++ // of those that are being made, too
		ps.remove("its template has changed", p.ready...)
		p.ready = nil
		p.fill()
	}
}

// saved is a pool in pools.json, which the next hutchd reads.
type saved struct {
	Spec       api.PoolSpec `json:"spec"`
	User       uint32       `json:"user"`
	Configured bool         `json:"configured,omitempty"`
}

// save tells the next hutchd which pools there are.
func (ps *Pools) save() {
	ps.saving.Lock() // the last one writes what holds last
	defer ps.saving.Unlock()
	ps.mu.Lock()
	all := []saved{}
	for _, p := range ps.pools {
		all = append(all, saved{Spec: p.spec, User: p.user, Configured: p.configured})
	}
	ps.unlock()
	if err := ps.cfg.Write(ps.cfg.File, all); err != nil {
		ps.cfg.Logger.Warn("save the list of pools", "err", err)
	}
}

// Adopt takes over the pools of a hutchd before, and their sandboxes that wait. Configure follows.
func (ps *Pools) Adopt(waiting []Sandbox) {
	var all []saved
	data, err := os.ReadFile(ps.cfg.File)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		ps.cfg.Logger.Error("take over the pools; sandboxes that wait are removed", "err", err)
	}
	of := map[string][]Sandbox{}
	for _, s := range waiting {
		name := s.Record().Pool
		of[name] = append(of[name], s)
	}
	ps.mu.Lock()
	defer ps.unlock()
	for _, sp := range all {
		if sp.Spec.Validate() != nil {
			continue
		}
		if p, err := ps.add(sp.Spec, sp.User); err == nil { // nobody else can have added one yet
			p.configured = sp.Configured
		}
	}
	for name, list := range of {
		if p := ps.pools[name]; p != nil {
			for _, s := range list {
				p.put(s)
			}
		} else {
			ps.remove("its pool is gone", list...)
		}
	}
	for _, p := range ps.pools {
		p.later(refillAfter)
	}
	ps.started = true
}
