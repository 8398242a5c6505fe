package main

import (
	"context"

	"github.com/hutch-sh/hutch/netfilter"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/server"
)

var _ server.Networks = (*backend)(nil)

func (b *backend) Network(ref string) (api.Network, error) {
	n, wanted, err := b.d.manager.Network(ref)
	if err == nil && n.Network.Mode == api.NetLearn {
		learned := netfilter.Learn(n.Network, wanted)
		n.Learned = &learned
	}
	return n, err
}

func (b *backend) UpdateNetwork(ctx context.Context, p api.NetUpdateParams) (api.Network, error) {
	if err := b.d.manager.UpdateNetwork(ctx, p); err != nil {
		return api.Network{}, err
	}
	return b.Network(p.Sandbox)
}

func (b *backend) CheckNetwork(p api.NetCheckParams) (api.NetVerdict, error) {
	if err := p.Validate(); err != nil {
		return api.NetVerdict{}, err
	}
	if p.Network != nil && p.Network.IsZero() {
		def := b.d.manager.Settings().Network
		p.Network = &def
	}
	if p.Network == nil {
		s, err := b.d.manager.Get(p.Sandbox)
		if err != nil {
			return api.NetVerdict{}, err
		}
		p.Network = &s.Network.NetPolicy
	}
	return netfilter.Check(*p.Network, p.NetTarget)
}
