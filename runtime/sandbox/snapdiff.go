package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/internal/shelf"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
)

// What differs between two states of a sandbox is where one of their upper folders has something: both have the same
// layers below, those that the sandbox was forked from and the image. All of it is sandboxes' and images', and looked
// at as workspace.diff does: by fds that nothing leads out of.

// diffing is one snapshot.diff under way.
type diffing struct {
	p       api.SnapshotDiffParams
	out     api.SnapshotDiff
	skip    int
	limit   int
	bytes   int // of paths that may still be listed
	differ  *changes.Differ
	text    strings.Builder
	done    bool
	opened  []*os.File
	cleanup []func()
}

// maxDiffPaths bounds the paths of one reply, in bytes.
const maxDiffPaths = 2 << 20

// DiffSnapshot tells what is other in a sandbox, or in another snapshot of it, than in a snapshot.
func (m *Manager) DiffSnapshot(ctx context.Context, by Caller, p api.SnapshotDiffParams) (api.SnapshotDiff, error) {
	if err := p.Validate(); err != nil {
		return api.SnapshotDiff{}, err
	}
	sn, err := m.snapshotOf(by.User, p.Snapshot)
	if err != nil {
		return api.SnapshotDiff{}, err
	}
	held, err := m.cfg.Shelf.Use(sn.Layers)
	if err != nil {
		return api.SnapshotDiff{}, fmt.Errorf("use the layers of snapshot %s: %w", sn.ID, err)
	}
	defer shelf.CloseAll(held)
	d := newDiffing(p)
	defer d.close()
	d.out.Snapshot, d.out.Sandbox, d.out.NotCovered = sn.ID, sn.Sandbox, sn.NotCovered
	if p.To != "" {
		err = m.diffSnapshots(ctx, by.User, d, sn)
	} else {
		err = m.diffNow(ctx, d, sn)
	}
	d.out.Diff = strings.ToValidUTF8(d.text.String(), "\uFFFD")
	return d.out, err
}

func newDiffing(p api.SnapshotDiffParams) *diffing {
	d := &diffing{p: p, skip: p.Offset, limit: p.Limit, bytes: maxDiffPaths}
	if d.limit == 0 {
		d.limit = api.DefaultSnapshotChanges
	}
	lines, most := 3, api.DefaultDiffBytes
	if p.Context != nil {
		lines = *p.Context
	}
	if p.MaxBytes > 0 {
		most = p.MaxBytes
	}
	if p.Unified {
		d.differ = changes.NewDiffer(&d.text, lines, most)
	}
	d.out.Changes = []api.SnapshotChange{}
	return d
}

func (d *diffing) close() {
	for _, f := range d.opened {
		_ = f.Close()
	}
	for _, f := range d.cleanup {
		f()
	}
}

// diffSnapshots compares with another snapshot.
func (m *Manager) diffSnapshots(ctx context.Context, user uint32, d *diffing, sn *snapshot) error {
	to, err := m.snapshotOf(user, d.p.To)
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
	held, err := m.cfg.Shelf.Use(to.Layers)
	if err != nil {
		return fmt.Errorf("use the layers of snapshot %s: %w", to.ID, err)
	}
	defer shelf.CloseAll(held)
	d.out.To = to.ID
	s, err := m.find(sn.Sandbox)
	if err != nil {
		s = nil // it may be gone; its folders are not seen then
	}
	now := m.cfg.Shelf.LayerDir(to.Layers[0])
	return m.diffWith(ctx, d, sn, s, filepath.Join(now, "root"),
		func(i string) string { return filepath.Join(now, "over", i) })
}

// diffNow compares with the sandbox as it is.
func (m *Manager) diffNow(ctx context.Context, d *diffing, sn *snapshot) error {
	s, done, err := m.takeTurn(ctx, sn.Sandbox)
	if api.ErrorCode(err) == api.NotFound {
		return api.Errorf(api.NotFound, "sandbox %s, which snapshot %s was taken of, is gone", sn.Sandbox, sn.ID).
			WithField("snapshot").
			WithHint("compare it with another snapshot of that sandbox: hutch snapshot diff %s OTHER", sn.ID)
	}
	if err != nil {
		return err
	}
	defer done()
	if !slices.Equal(s.layers, sn.Layers[1:]) {
		return api.Errorf(api.FailedPrecondition, "sandbox %s has other layers below its files than snapshot %s", s.id,
			sn.ID).WithField("snapshot").
			WithHint("take another snapshot of it: hutch snapshot create %s", s.id)
	}
	return m.still(ctx, s, "snapshot.diff", func() error {
		now := filepath.Join(s.dir, "fs")
		return m.diffWith(ctx, d, sn, s, filepath.Join(now, "upper"),
			func(i string) string { return filepath.Join(now, i, "upper") })
	})
}

// diffWith compares a snapshot with what these folders hold. s is its sandbox, nil if that is gone.
func (m *Manager) diffWith(ctx context.Context, d *diffing, sn *snapshot, s *Sandbox, root string,
	over func(i string) string) error {
	was := m.cfg.Shelf.LayerDir(sn.Layers[0])
	lower, err := m.diffLower(ctx, d, sn, s)
	if err != nil {
		return err
	}
	if err := d.overlay(ctx, "/", filepath.Join(was, "root"), root, lower); err != nil {
		return err
	}
	if sn.Spec.WritableUsr { // over the host's, which changes by itself
		d.out.NotCovered = append(slices.Clip(d.out.NotCovered), "/usr")
	}
	wanted, err := inOrder(hostFolders(&sn.Spec))
	if err != nil {
		return err
	}
	for i, mt := range wanted {
		if mt.Mode != api.ModeOverlay {
			continue
		}
		if s == nil || s.stopped || s.state() == api.Stopped || s.state() == api.Failed {
			d.out.NotCovered = append(slices.Clip(d.out.NotCovered), mt.Target)
			continue
		}
		n := strconv.Itoa(i)
		folder, err := d.open(filepath.Join(s.dir, "mnt", n))
		if err == nil {
			err = d.overlay(ctx, mt.Target, filepath.Join(was, "over", n), over(n), []*os.File{folder})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// diffLower opens what lies below the root of both: layers that the sandbox was forked from, and the image.
func (m *Manager) diffLower(ctx context.Context, d *diffing, sn *snapshot, s *Sandbox) ([]*os.File, error) {
	root := sn.Root
	switch {
	case s != nil && !s.stopped:
		root = s.root
	case root.Ref == hostImage: // is made anew
		now, err := m.cfg.Images.Resolve(ctx, hostImage, "", "", nil)
		if err != nil {
			return nil, err
		}
		root = now
		d.cleanup = append(d.cleanup, now.Release)
	default:
		release, err := m.cfg.Images.Hold(root.Lower)
		if err != nil {
			return nil, err
		}
		d.cleanup = append(d.cleanup, release)
	}
	var lower []*os.File
	for _, id := range sn.Layers[1:] {
		f, err := d.open(filepath.Join(m.cfg.Shelf.LayerDir(id), "root"))
		if err != nil {
			return nil, err
		}
		lower = append(lower, f)
	}
	for _, name := range root.Lower {
		if !filepath.IsAbs(name) {
			name = filepath.Join(root.Dir, name)
		}
		f, err := d.open(name)
		if err != nil {
			return nil, err
		}
		lower = append(lower, f)
	}
	return lower, nil
}

// open opens a folder of hutchd's.
func (d *diffing) open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, unix.O_DIRECTORY|unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("compare files: %w", err)
	}
	d.opened = append(d.opened, f)
	return f, nil
}

// overlay compares two upper folders over the same lower ones, whose names begin with at in the sandbox.
func (d *diffing) overlay(ctx context.Context, at, old, now string, lower []*os.File) error {
	if d.done {
		return nil
	}
	o := &changes.Overlays{Lower: lower}
	var err error
	if o.Old, err = d.open(old); err == nil {
		o.New, err = d.open(now)
	}
	if errors.Is(err, fs.ErrNotExist) { // the snapshot is of before there was one
		return nil
	}
	if err != nil {
		return err
	}
	err = o.Between(ctx, func(x *changes.Difference) error { return d.add(o, at, x) })
	if errors.Is(err, unix.ENAMETOOLONG) {
		err = api.Errorf(api.ResourceExhausted, "compare files: %w", err).
			WithHint("remove what is so deep in the sandbox")
	}
	return err
}

// add takes a difference into the reply, or ends the walk.
func (d *diffing) add(o *changes.Overlays, at string, x *changes.Difference) error {
	if d.skip > 0 {
		d.skip--
		return nil
	}
	name := path.Join(at, x.Path)
	if len(d.out.Changes) == d.limit || len(d.out.Changes) > 0 && d.bytes < len(name) {
		d.out.NextOffset, d.done = d.p.Offset+len(d.out.Changes), true
		return changes.ErrEnough
	}
	d.bytes -= len(name)
	d.out.Changes = append(d.out.Changes, api.SnapshotChange{
		Path: excerpt.Valid([]byte(name)), Kind: string(x.Kind), Type: x.Type, Was: x.Was, Mode: x.Mode, Size: x.Size,
	})
	if d.differ == nil || d.out.Truncated {
		return nil
	}
	err := d.differ.Write(o, at, x)
	if errors.Is(err, changes.ErrLong) {
		d.out.Truncated, err = true, nil
	}
	return err
}
