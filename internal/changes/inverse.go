package changes

import (
	"context"
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Inverse are the changes that make of what was changed what it was, with lower in the place of upper: what Apply
// brings from the folder into the overlay.
func Inverse(ctx context.Context, lower interface{ Fd() uintptr }, found []Change) ([]Change, error) {
	v := &inverter{ctx: ctx, lower: int(lower.Fd())}
	for _, c := range found {
		switch c.Kind {
		case Added:
			v.out = append(v.out, Change{Path: c.Path, Kind: Deleted, Type: c.Type})
		case Renamed:
			v.out = append(v.out, Change{Path: c.Path, Kind: Deleted, Type: c.Type})
			if err := v.restore(c.From); err != nil {
				return nil, err
			}
		default:
			if err := v.restore(c.Path); err != nil {
				return nil, err
			}
		}
	}
	// What was added has to go before what was there comes back; both with folders before what is in them.
	slices.SortStableFunc(v.out, func(a, b Change) int {
		if (a.Kind == Deleted) != (b.Kind == Deleted) {
			if a.Kind == Deleted {
				return -1
			}
			return 1
		}
		return Order(a.Path, b.Path)
	})
	return v.out, nil
}

type inverter struct {
	ctx   context.Context
	lower int
	out   []Change
	text  int // bytes of their names
}

// restore brings a name back with all that is in it.
func (v *inverter) restore(p string) error {
	if err := context.Cause(v.ctx); err != nil {
		return err
	}
	st, err := stat(v.lower, p)
	if errors.Is(err, unix.ENOENT) {
		v.out = append(v.out, Change{Path: p, Kind: Deleted, Type: "-"})
		return nil
	}
	if err != nil {
		return err
	}
	if v.text += len(p); len(v.out) >= MaxChanges || v.text > MaxText {
		return ErrTooMany
	}
	v.out = append(v.out, Change{Path: p, Kind: Modified, Type: letter(st), Mode: permissions(st)})
	if kind(st) != unix.S_IFDIR {
		return nil
	}
	names, err := list(v.lower, p)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := v.restore(path.Join(p, name)); err != nil {
			return err
		}
	}
	return nil
}
