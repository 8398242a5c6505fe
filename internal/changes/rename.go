package changes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
)

func (f *finder) sameContent(da int, a string, db int, b string) (bool, error) {
	x, err := Open(da, a)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := Open(db, b)
	if errors.Is(err, os.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer y.Close()
	var p, q [64 << 10]byte
	for {
		if err := context.Cause(f.ctx); err != nil {
			return false, err
		}
		n, errA := io.ReadFull(x, p[:])
		m, errB := io.ReadFull(y, q[:])
		if n != m || !bytes.Equal(p[:n], q[:m]) {
			return false, nil
		}
		if errA != nil || errB != nil {
			ended := func(err error) bool {
				return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
			}
			if !ended(errA) || !ended(errB) {
				return false, errors.Join(errA, errB)
			}
			return true, nil
		}
	}
}

// renames joins files that are deleted with those that were added with the same content. Only a few
// of one size are compared: a rename is a help for whoever reads the list.
func (f *finder) renames() error {
	type pair struct{ gone, made []int }
	bySize := map[int64]*pair{}
	taken := map[string]bool{} // names that are there again: what was there cannot be moved from them
	for _, c := range f.found {
		if c.Kind != Deleted {
			taken[c.Path] = true
		}
	}
	for i, c := range f.found {
		if c.Type != "-" || c.Size == 0 || !c.made() && c.Kind != Deleted || c.Kind == Deleted && taken[c.Path] {
			continue
		}
		p := bySize[c.Size]
		if p == nil {
			p = &pair{}
			bySize[c.Size] = p
		}
		if c.Kind == Deleted {
			p.gone = append(p.gone, i)
		} else {
			p.made = append(p.made, i)
		}
	}
	drop := map[int]bool{}
	for _, p := range bySize {
		if len(p.gone)*len(p.made) > maxCompared {
			continue
		}
		for _, gone := range p.gone {
			if err := f.rename(gone, p.made, drop); err != nil {
				return err
			}
		}
	}
	kept := f.found[:0]
	for i, c := range f.found {
		if !drop[i] {
			kept = append(kept, c)
		}
	}
	f.found = kept
	return nil
}

// made says that a name may be another's new one: also where somebody else has taken it meanwhile, so that the old one
// is not removed while the new one is left out.
func (c *Change) made() bool { return c.Kind == Added || c.Kind == Modified && c.Conflict != "" }

// maxCompared bounds, of one size, how many pairs of files are compared.
const maxCompared = 64

// rename joins what is gone with the first of what was made that is the same.
func (f *finder) rename(gone int, made []int, drop map[int]bool) error {
	old := &f.found[gone]
	for _, i := range made {
		c := &f.found[i]
		if !c.made() {
			continue // it has another's name
		}
		same, err := f.sameContent(f.upper, c.Path, f.lower, old.Path)
		if err != nil {
			return err
		}
		if same {
			c.Kind, c.From, c.since, drop[gone] = Renamed, old.Path, old.since, true
			if c.Conflict == "" {
				c.Conflict = old.Conflict
			}
			return nil
		}
	}
	return nil
}
