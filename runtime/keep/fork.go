package keep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// maxForking is how many forks are made at once.
const maxForking = 4

// Fork makes sandboxes that go on from the files of another one, or of a snapshot: all that are asked for, or none.
func (k *Keep) Fork(ctx context.Context, by Caller, p api.ForkParams) (out api.Forked, err error) {
	if err := p.Validate(); err != nil {
		return out, err
	}
	p.Count = max(1, p.Count)
	sn, source, held, first, err := k.forkSource(ctx, by.User, p)
	if first != nil {
		defer first.Drop()
	}
	if err != nil {
		return out, err
	}
	defer func() { // forks have locks of their own by now
		shelf.CloseAll(held)
		err = errors.Join(err, k.Collect())
	}()
	sp, err := k.forkSpec(sn, p)
	if err != nil {
		return out, err
	}
	// before any is made; each is counted again
	if err := k.sandboxes.Room(by.User, &sn.Record.Limits, p.Count); err != nil {
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
			r := Fork{Spec: sp, FDs: by.FDs, By: by}
			if i == 0 {
				r.Early = first
			}
			if out.Sandboxes[i], errs[i] = k.forkOne(all, sn, source, r); errs[i] != nil {
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
			k.sandboxes.Remove(ctx, out.Sandboxes[i].ID)
		}
	}
	return api.Forked{}, failed
}

// forkSource is what is forked. source is the sandbox whose mounts the forks take, nil when they open folders by their
// paths; first is to be one of them, and the caller drops it also behind an error.
func (k *Keep) forkSource(ctx context.Context, user uint32, p api.ForkParams) (sn *snapshot, source Sandbox,
	held []*os.File, first Early, err error) {
	if p.Snapshot != "" {
		if sn, err = k.snapshotOf(user, p.Snapshot); err != nil {
			return nil, nil, nil, nil, err
		}
		if held, err = k.shelf.Use(sn.Layers); err != nil {
			return nil, nil, nil, nil, fmt.Errorf("use the layers of snapshot %s: %w", sn.ID, err)
		}
		return sn, nil, held, nil, nil
	}
	s, done, err := k.sandboxes.Turn(ctx, p.Sandbox)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	defer done()
	first = k.launchEarly(s, p)
	if sn, held, err = k.takeLayer(ctx, s); err != nil {
		return nil, nil, nil, first, err
	}
	if !s.Stopped() && len(p.Folders) == 0 {
		source = s
	}
	return sn, source, held, first, nil
}

// launchEarly is for a fork of s, of which the caller has the turn; nil where it will not need one.
func (k *Keep) launchEarly(s Sandbox, p api.ForkParams) Early {
	sn := &snapshot{}
	sn.Spec, sn.Record = s.Now()
	sp, err := k.forkSpec(sn, p)
	if err != nil { // which the fork will say
		return nil
	}
	return k.sandboxes.Early(sp)
}

// forkSpec is what a fork is made by: the sandbox's spec with what was changed since, and without what there can be
// only one of.
func (k *Keep) forkSpec(sn *snapshot, p api.ForkParams) (api.Spec, error) {
	sp, err := workspace.HandOver(sn.Spec, p.Folders)
	if err != nil {
		return sp, err
	}
	sp.Name, sp.Scope, sp.Owner, sp.Uploads = p.Name, nil, "", nil
	sp.Network, sp.Limits = sn.Record.Network.NetPolicy, k.sandboxes.Limits(sn.Spec.Limits, sn.Record.Limits)
	sp.Labels = map[string]string{}
	maps.Copy(sp.Labels, sn.Record.Labels)
	maps.Copy(sp.Labels, p.Labels)
	return sp, nil
}

func (k *Keep) forkOne(ctx context.Context, sn *snapshot, source Sandbox, r Fork) (api.Sandbox, error) {
	if err := context.Cause(ctx); err != nil {
		return api.Sandbox{}, err
	}
	r.Origin = Origin{
		Root: sn.Root, Layers: sn.Layers, Base: sn.Base, Record: sn.Record, Folders: sn.Folders,
		Over: filepath.Join(k.shelf.LayerDir(sn.Layers[0]), "over"),
	}
	if source != nil {
		sp, _ := source.Now()
		given, folders, err := workspace.Clone(&sp, source.Dir(), r.Spec)
		if err != nil {
			return api.Sandbox{}, err
		}
		defer folders.Close()
		r.Spec, r.FDs = given, folders
	}
	return k.sandboxes.Fork(ctx, r)
}
