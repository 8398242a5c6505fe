package main

import (
	"context"
	"path/filepath"

	"github.com/hutch-sh/hutch/netfilter"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/ask"
)

// openApprovals makes the place where connections wait that somebody is asked about.
func (d *daemon) openApprovals() (err error) {
	d.approvals, err = ask.Open(ask.Config{
		File: filepath.Join(d.cfg.Data, "always.json"), Events: d.events, Audit: d.audit, Logger: d.log,
		Allow: func(ctx context.Context, sandbox string, add api.NetLists) error {
			return d.manager.Egress.Update(ctx, api.NetUpdateParams{Sandbox: sandbox, Add: &add})
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

// network says what a sandbox may reach, and what it has learned.
func (d *daemon) network(ref string) (api.Network, error) {
	n, wanted, err := d.manager.Egress.Get(ref)
	if err == nil && n.Network.Mode == api.NetLearn {
		learned := netfilter.Learn(n.Network, wanted)
		n.Learned = &learned
	}
	return n, err
}

// checkNetwork asks a policy, a sandbox's or one that is only thought of.
func (d *daemon) checkNetwork(p api.NetCheckParams) (api.NetVerdict, error) {
	if p.Network != nil && p.Network.IsZero() {
		def := d.manager.Settings().Network
		p.Network = &def
	}
	if p.Network == nil {
		s, err := d.manager.Get(p.Sandbox)
		if err != nil {
			return api.NetVerdict{}, err
		}
		p.Network = &s.Network.NetPolicy
	}
	return netfilter.Check(*p.Network, p.NetTarget)
}
