package main

import (
	"context"
	"path/filepath"

	"github.com/hutch-sh/hutch/netfilter"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/ask"
	"github.com/hutch-sh/hutch/runtime/server"
)

func (b *backend) Asks() (api.Asks, error) { return b.d.approvals.List(), nil }

func (b *backend) Answer(ctx context.Context, p api.AnswerParams) error {
	return b.d.approvals.Answer(ctx, p)
}

func (b *backend) Forget(p api.ForgetParams) (api.Asks, error) { return b.d.approvals.Forget(p) }

// openApprovals makes the place where connections wait that somebody is asked about.
func (d *daemon) openApprovals() (err error) {
	d.approvals, err = ask.Open(ask.Config{
		File: filepath.Join(d.cfg.Data, "always.json"), Events: d.events, Audit: d.audit, Logger: d.log,
		Allow: func(ctx context.Context, sandbox string, add api.NetLists) error {
			return d.manager.UpdateNetwork(ctx, api.NetUpdateParams{Sandbox: sandbox, Add: &add})
		},
	})
	return err
}

// askAbout is an answer for package netfilter, which remembers a no.
func (d *daemon) askAbout(ctx context.Context, sandbox string, e api.AskEvent) netfilter.Answer {
	switch d.approvals.Ask(ctx, sandbox, e) {
	case api.NetOnce:
		return netfilter.Once
	case api.NetSession, api.NetAlways:
		return netfilter.Rules
	case api.NetDeny:
		return netfilter.Never
	}
	return netfilter.No
}

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
