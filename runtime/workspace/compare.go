package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
)

// Comparison is one snapshot.diff under way: what differs between two states of a sandbox is where one of their upper
// folders has something, since both have the same layers below. All of it is sandboxes' and images', and looked at as
// Diff does: by fds that nothing leads out of. It is for one goroutine.
type Comparison struct {
	// Out is what was found, of snapshots that the caller names there.
	Out     api.SnapshotDiff
	p       api.SnapshotDiffParams
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

// Compare begins a comparison, which has to be closed.
func Compare(p api.SnapshotDiffParams) *Comparison {
	d := &Comparison{p: p, skip: p.Offset, limit: p.Limit, bytes: maxDiffPaths}
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
	d.Out.Changes = []api.SnapshotChange{}
	return d
}

// Result is Out, with the text of what was found.
func (d *Comparison) Result() api.SnapshotDiff {
	d.Out.Diff = strings.ToValidUTF8(d.text.String(), "\uFFFD")
	return d.Out
}

// AtEnd adds what Close does.
func (d *Comparison) AtEnd(f func()) { d.cleanup = append(d.cleanup, f) }

// Close closes what was opened.
func (d *Comparison) Close() {
	for _, f := range d.opened {
		_ = f.Close()
	}
	for _, f := range d.cleanup {
		f()
	}
}

// Open opens a folder of hutchd's until Close.
func (d *Comparison) Open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, unix.O_DIRECTORY|unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("compare files: %w", err)
	}
	d.opened = append(d.opened, f)
	return f, nil
}

// Overlay compares two upper folders over the same lower ones, whose names begin with at in the sandbox.
func (d *Comparison) Overlay(ctx context.Context, at, old, now string, lower []*os.File) error {
	if d.done {
		return nil
	}
	o := &changes.Overlays{Lower: lower}
	var err error
	if o.Old, err = d.Open(old); err == nil {
		o.New, err = d.Open(now)
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
func (d *Comparison) add(o *changes.Overlays, at string, x *changes.Difference) error {
	if d.skip > 0 {
		d.skip--
		return nil
	}
	name := path.Join(at, x.Path)
	if len(d.Out.Changes) == d.limit || len(d.Out.Changes) > 0 && d.bytes < len(name) {
		d.Out.NextOffset, d.done = d.p.Offset+len(d.Out.Changes), true
		return changes.ErrEnough
	}
	d.bytes -= len(name)
	d.Out.Changes = append(d.Out.Changes, api.SnapshotChange{
		Path: excerpt.Valid([]byte(name)), Kind: string(x.Kind), Type: x.Type, Was: x.Was, Mode: x.Mode, Size: x.Size,
	})
	if d.differ == nil || d.Out.Truncated {
		return nil
	}
	err := d.differ.Write(o, at, x)
	if errors.Is(err, changes.ErrLong) {
		d.Out.Truncated, err = true, nil
	}
	return err
}
