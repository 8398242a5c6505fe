package keep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// What differs between two states of a sandbox is where one of their upper folders has something: both have the same
// layers below, those that the sandbox was forked from and the image. All of it is sandboxes' and images', and looked
// at as workspace.diff does: by fds that nothing leads out of.

// DiffSnapshot tells what is other in a sandbox, or in another snapshot of it, than in a snapshot.
func (k *Keep) DiffSnapshot(ctx context.Context, by Caller, p api.SnapshotDiffParams) (api.SnapshotDiff, error) {
	if err := p.Validate(); err != nil {
		return api.SnapshotDiff{}, err
	}
	sn, err := k.snapshotOf(by.User, p.Snapshot)
	if err != nil {
		return api.SnapshotDiff{}, err
	}
	held, err := k.shelf.Use(sn.Layers)
	if err != nil {
		return api.SnapshotDiff{}, fmt.Errorf("use the layers of snapshot %s: %w", sn.ID, err)
	}
	defer shelf.CloseAll(held)
	d := workspace.Compare(p)
	defer d.Close()
	d.Out.Snapshot, d.Out.Sandbox, d.Out.NotCovered = sn.ID, sn.Sandbox, sn.NotCovered
	if p.To != "" {
		err = k.diffSnapshots(ctx, by.User, d, sn, p.To)
	} else {
		err = k.diffNow(ctx, d, sn)
	}
	return d.Result(), err
}

// diffSnapshots compares with another snapshot.
func (k *Keep) diffSnapshots(ctx context.Context, user uint32, d *workspace.Comparison, sn *snapshot,
	toID string) error {
	to, err := k.snapshotOf(user, toID)
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			err = e.WithField("to")
		}
		return err
	}
	if to.Sandbox != sn.Sandbox || !slices.Equal(to.Layers[1:], sn.Layers[1:]) {
		return api.Errorf(api.FailedPrecondition, "snapshot %s is of sandbox %s, and %s of %s", sn.ID, sn.Sandbox,
			to.ID, to.Sandbox).WithField("to").
			WithHint("hutch snapshot ls shows which snapshots are of the same sandbox")
	}
	held, err := k.shelf.Use(to.Layers)
	if err != nil {
		return fmt.Errorf("use the layers of snapshot %s: %w", to.ID, err)
	}
	defer shelf.CloseAll(held)
	d.Out.To = to.ID
	s, err := k.sandboxes.Find(sn.Sandbox)
	if err != nil {
		s = nil // it may be gone; its folders are not seen then
	}
	now := k.shelf.LayerDir(to.Layers[0])
	return k.diffWith(ctx, d, sn, s, filepath.Join(now, "root"),
		func(i string) string { return filepath.Join(now, "over", i) })
}

// diffNow compares with the sandbox as it is.
func (k *Keep) diffNow(ctx context.Context, d *workspace.Comparison, sn *snapshot) error {
	s, done, err := k.sandboxes.Turn(ctx, sn.Sandbox)
	if api.ErrorCode(err) == api.NotFound {
		return api.Errorf(api.NotFound, "sandbox %s, which snapshot %s was taken of, is gone", sn.Sandbox, sn.ID).
			WithField("snapshot").
			WithHint("compare it with another snapshot of that sandbox: hutch snapshot diff %s OTHER", sn.ID)
	}
	if err != nil {
		return err
	}
	defer done()
	if !slices.Equal(s.Files().Layers, sn.Layers[1:]) {
		return api.Errorf(api.FailedPrecondition, "sandbox %s has other layers below its files than snapshot %s",
			s.ID(),
			sn.ID).WithField("snapshot").
			WithHint("take another snapshot of it: hutch snapshot create %s", s.ID())
	}
	return s.Still(ctx, "snapshot.diff", func() error {
		now := filepath.Join(s.Dir(), "fs")
		return k.diffWith(ctx, d, sn, s, filepath.Join(now, upper),
			func(i string) string { return filepath.Join(now, i, upper) })
	})
}

// diffWith compares a snapshot with what these folders hold. s is its sandbox, nil if that is gone.
func (k *Keep) diffWith(ctx context.Context, d *workspace.Comparison, sn *snapshot, s Sandbox, root string,
	over func(i string) string) error {
	was := k.shelf.LayerDir(sn.Layers[0])
	lower, err := k.diffLower(ctx, d, sn, s)
	if err != nil {
		return err
	}
	if err := d.Overlay(ctx, "/", filepath.Join(was, "root"), root, lower); err != nil {
		return err
	}
	if sn.Spec.WritableUsr { // over the host's, which changes by itself
		d.Out.NotCovered = append(slices.Clip(d.Out.NotCovered), "/usr")
	}
	wanted, err := workspace.Sorted(&sn.Spec)
	if err != nil {
		return err
	}
	mounts := false
	if s != nil && !s.Stopped() {
		_, record := s.Now()
		mounts = record.State != api.Stopped && record.State != api.Failed
	}
	for i, mt := range wanted {
		if mt.Mode != api.ModeOverlay {
			continue
		}
		if !mounts {
			d.Out.NotCovered = append(slices.Clip(d.Out.NotCovered), mt.Target)
			continue
		}
		n := strconv.Itoa(i)
		folder, err := d.Open(workspace.At(s.Dir(), i))
		if err == nil {
			err = d.Overlay(ctx, mt.Target, filepath.Join(was, "over", n), over(n), []*os.File{folder})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// diffLower opens what lies below the root of both: layers that the sandbox was forked from, and the image.
func (k *Keep) diffLower(ctx context.Context, d *workspace.Comparison, sn *snapshot, s Sandbox) ([]*os.File,
	error) {
	var root *spec.Root
	if s != nil && !s.Stopped() {
		root = s.Root()
	} else {
		now, err := k.Again(ctx, sn.Root, nil)
		if err != nil {
			return nil, err
		}
		root = now
		d.AtEnd(now.Release)
	}
	var lower []*os.File
	for _, id := range sn.Layers[1:] {
		f, err := d.Open(filepath.Join(k.shelf.LayerDir(id), "root"))
		if err != nil {
			return nil, err
		}
		lower = append(lower, f)
	}
	for _, name := range root.Lowers() {
		f, err := d.Open(name)
		if err != nil {
			return nil, err
		}
		lower = append(lower, f)
	}
	return lower, nil
}
