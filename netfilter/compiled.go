package netfilter

import (
	"reflect"
	"slices"
	"sync"

	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// recent is how many policies stay compiled for the next that asks for them.
const recent = 4

// compiled are the policies that were compiled last. A creation asks for its policy twice,
// sandboxes that are made alike for the same one, and 10,000 names take 20 ms: rules never
// change, so that all share them.
type compiled struct {
	mu   sync.Mutex
	last []*policy.Rules // the latest first
}

// of is policy.Compile.
func (c *compiled) of(p api.NetPolicy) (*policy.Rules, error) {
	if r := c.get(p); r != nil {
		return r, nil
	}
	for _, list := range []*[]string{&p.Allow, &p.Block, &p.AllowCIDRs, &p.BlockCIDRs} {
		*list = slices.Clone(*list) // the caller's may change
	}
	r, err := policy.Compile(p)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = slices.Insert(c.last[:min(len(c.last), recent-1)], 0, r)
	return r, nil
}

func (c *compiled) get(p api.NetPolicy) *policy.Rules {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.last, func(r *policy.Rules) bool { return same(p, r.Policy()) })
	if i < 0 {
		return nil
	}
	r := c.last[i]
	c.last = slices.Insert(slices.Delete(c.last, i, i+1), 0, r)
	return r
}

func same(p, q api.NetPolicy) bool {
	for _, lists := range [][2]*[]string{{&p.Allow, &q.Allow}, {&p.Block, &q.Block}, {&p.AllowCIDRs, &q.AllowCIDRs},
		{&p.BlockCIDRs, &q.BlockCIDRs}} {
		if !slices.Equal(*lists[0], *lists[1]) {
			return false
		}
		*lists[0], *lists[1] = nil, nil
	}
	return reflect.DeepEqual(p, q)
}
