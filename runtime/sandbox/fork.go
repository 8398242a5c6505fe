package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/hutch-sh/hutch/internal/shelf"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/warm"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// maxForking is how many forks are made at once.
const maxForking = 4

// Fork makes sandboxes that go on from the files of another one, or of a snapshot: all that are asked for, or none.
func (m *Manager) Fork(ctx context.Context, by Caller, p api.ForkParams) (out api.Forked, err error) {
	if err := p.Validate(); err != nil {
		return out, err
	}
	p.Count = max(1, p.Count)
	sn, source, held, first, err := m.forkSource(ctx, by.User, p)
	defer first.Drop()
	if err != nil {
		return out, err
	}
	defer func() { // forks have locks of their own by now
		shelf.CloseAll(held)
		err = errors.Join(err, m.collectLayers())
	}()
	sp, err := forkSpec(sn, p)
	if err != nil {
		return out, err
	}
	m.mu.Lock()
	err = m.checkQuota(by.User, &sn.Record.Limits, nil, p.Count) // before any is made; each is counted again
	m.mu.Unlock()
	if err != nil {
		return out, err
	}
	out = api.Forked{Sandboxes: make([]api.Sandbox, p.Count), NotCovered: notCovered(&sn.Spec), Note: snapshotNote}
	errs := make([]error, p.Count)
	all, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, maxForking)
	var wg sync.WaitGroup
	for i := range p.Count {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			req := CreateRequest{Spec: sp, FDs: by.FDs, User: by.User, Conn: by.Conn, Progress: func(api.Progress) {}}
			if i == 0 {
				req.early = first
			}
			if out.Sandboxes[i], errs[i] = m.forkOne(all, sn, source, req); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	failed := context.Cause(all)
	if failed == nil {
		return out, nil
	}
	for i := range errs {
		if errs[i] == nil {
			m.removeNow(ctx, out.Sandboxes[i].ID)
		}
	}
	return api.Forked{}, failed
}

// forkSource is what is forked. source is the sandbox whose mounts the forks take, nil when they open folders by their
// paths; first is to be one of them, and the caller drops it also behind an error.
func (m *Manager) forkSource(ctx context.Context, user uint32, p api.ForkParams) (sn *snapshot, source *Sandbox,
	held []*os.File, first *early, err error) {
	if p.Snapshot != "" {
		if sn, err = m.snapshotOf(user, p.Snapshot); err != nil {
			return nil, nil, nil, nil, err
		}
		if held, err = m.cfg.Shelf.Use(sn.Layers); err != nil {
			return nil, nil, nil, nil, fmt.Errorf("use the layers of snapshot %s: %w", sn.ID, err)
		}
		return sn, nil, held, nil, nil
	}
	s, done, err := m.takeTurn(ctx, p.Sandbox)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	defer done()
	first = m.launchEarly(s, p)
	if sn, held, err = m.takeLayer(ctx, s); err != nil {
		return nil, nil, nil, first, err
	}
	if !s.stopped && len(p.Folders) == 0 {
		source = s
	}
	return sn, source, held, first, nil
}

// early is a generic sandbox that is launched for the first fork beside the copy of what it goes on from.
type early = warm.Early[*generic, aheadKey]

// launchEarly is for a fork of s, of which the caller has the turn; nil where it will not need one.
func (m *Manager) launchEarly(s *Sandbox, p api.ForkParams) *early {
	s.mu.Lock()
	sn := &snapshot{Spec: s.spec, Record: s.record}
	s.mu.Unlock()
	sp, err := forkSpec(sn, p)
	if err != nil { // which the fork will say
		return nil
	}
	if _, err := m.limitsOf(&sp.Limits, true); err != nil || !(&CreateRequest{Spec: sp}).fits() {
		return nil
	}
	return m.genericsFor(&sp).Early()
}

// forkSpec is what a fork is made by: the sandbox's spec with what was changed since, and without what there can be
// only one of.
func forkSpec(sn *snapshot, p api.ForkParams) (api.Spec, error) {
	sp, err := workspace.HandOver(sn.Spec, p.Folders)
	if err != nil {
		return sp, err
	}
	sp.Name, sp.Scope, sp.Owner, sp.Uploads = p.Name, nil, "", nil
	sp.Network, sp.Limits = sn.Record.Network.NetPolicy, meter.Overlay(sn.Spec.Limits, sn.Record.Limits)
	sp.Labels = map[string]string{}
	maps.Copy(sp.Labels, sn.Record.Labels)
	maps.Copy(sp.Labels, p.Labels)
	return sp, nil
}

func (m *Manager) forkOne(ctx context.Context, sn *snapshot, source *Sandbox, req CreateRequest) (api.Sandbox, error) {
	if err := context.Cause(ctx); err != nil {
		return api.Sandbox{}, err
	}
	req.origin = &origin{
		root: sn.Root, layers: sn.Layers, base: sn.Base, record: sn.Record, folders: sn.Folders,
		over: filepath.Join(m.cfg.Shelf.LayerDir(sn.Layers[0]), "over"),
	}
	if source != nil {
		given, folders, err := workspace.Clone(&source.spec, source.dir, req.Spec)
		if err != nil {
			return api.Sandbox{}, err
		}
		defer folders.Close()
		req.Spec, req.FDs = given, folders
	}
	return m.createNew(ctx, req)
}
