package seccomp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// call is what a profile says about one system call of one architecture: its
// rules in order, the first that matches decides.
type call struct {
	nr    uint32
	name  string
	rules []Rule
}

// decide is the errno for args, 0 to allow.
func (c call) decide(args [6]uint64) unix.Errno {
	for _, r := range c.rules {
		if r.matches(args) {
			return r.Errno
		}
	}
	return Unlisted
}

// lower turns a profile into calls, sorted by number. resolve gives the number
// of a name; names without one on the architecture are left out.
func lower(p Profile, resolve func(name string) (nr uint32, ok bool)) ([]call, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var calls []call
	index := map[string]int{}
	for _, r := range p.Rules {
		for _, name := range r.Syscalls {
			i, ok := index[name]
			if !ok {
				nr, known := resolve(name)
				if !known {
					continue
				}
				i = len(calls)
				index[name] = i
				calls = append(calls, call{nr: nr, name: name})
			}
			calls[i].rules = append(calls[i].rules, r)
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return int(a.nr) - int(b.nr) })
	return calls, nil
}

// branch is one path through the decision tree of a call.
type branch struct {
	when  []Cond // by argument, ascending
	errno unix.Errno
}

// branches writes the ordered rules of a call in a form whose meaning does not
// depend on order, as libseccomp wants it.
//
// libseccomp tries comparisons of one argument from the most to the least
// specific mask, and takes a rule that lacks a comparison as replacing those
// that have it. A rule that stands for "otherwise" after more specific ones is
// therefore given a comparison of one bit which theirs look at as well, once for
// each of its two values: always true together, and tried last.
func (c call) branches() ([]branch, error) {
	var out []branch
	for i, r := range c.rules {
		split, ok, err := otherwiseBit(c.rules[:i], r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if !ok {
			out = append(out, branch{when: sortedConds(r.When), errno: r.Errno})
			continue
		}
		for _, value := range []uint64{0, split.Mask} {
			split.Value = value
			out = append(out, branch{
				when:  sortedConds(append(slices.Clone(r.When), split)),
				errno: r.Errno,
			})
		}
	}
	return out, nil
}

// otherwiseBit finds the condition that distinguishes r from the earlier rules
// which refine it: those with all conditions of r and more. ok is false when
// there are none.
func otherwiseBit(earlier []Rule, r Rule) (c Cond, ok bool, err error) {
	c = Cond{Arg: 6}
	for _, e := range earlier {
		extra, refines := refinement(e, r)
		if !refines {
			continue
		}
		switch {
		case extra.Arg < c.Arg:
			c = Cond{Arg: extra.Arg, Mask: extra.Mask}
		case extra.Arg == c.Arg:
			c.Mask &= extra.Mask
		}
	}
	if c.Arg == 6 {
		return Cond{}, false, nil
	}
	if c.Mask == 0 {
		return Cond{}, false, fmt.Errorf("rules that refine %v have no bit of argument %d in common", r.When, c.Arg)
	}
	c.Mask &= -c.Mask // the lowest bit
	return c, true, nil
}

// refinement returns e's first condition, by argument, that r does not have.
// refines is false unless e has every condition of r and at least one more.
func refinement(e, r Rule) (extra Cond, refines bool) {
	for _, c := range r.When {
		if !slices.Contains(e.When, c) {
			return Cond{}, false
		}
	}
	for _, c := range sortedConds(e.When) {
		if !slices.Contains(r.When, c) {
			return c, true
		}
	}
	return Cond{}, false
}

func sortedConds(when []Cond) []Cond {
	return slices.SortedFunc(slices.Values(when), func(a, b Cond) int { return int(a.Arg) - int(b.Arg) })
}

// hash identifies what compiling calls gives: their decisions, the library and
// the architecture. Names and reasons do not count.
func hash(calls []call, library, arch string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\nlibseccomp %s\narch %s\n", cacheMagic, library, arch)
	for _, c := range calls {
		for _, r := range c.rules {
			fmt.Fprintf(h, "%d %d", c.nr, uint(r.Errno))
			writeConds(h, r.When)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeConds(w io.Writer, when []Cond) {
	for _, c := range when {
		fmt.Fprintf(w, " %d&%x=%x", c.Arg, c.Mask, c.Value)
	}
	fmt.Fprintln(w)
}
