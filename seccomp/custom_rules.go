package seccomp

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A profile's rules have no order: neither the specification nor libseccomp gives them one. libseccomp
// drops a rule with arguments beside one of the same call without them, keeps the first of two without,
// and decides by its own order where two comparisons are true. So a profile whose meaning depends on
// the order is refused here, and what is left means the same however it is read.

// validate reports a comparison that is none, or that nothing passes.
func (a customArg) validate() error {
	switch {
	case a.Index > 5:
		return fmt.Errorf("argument %d: a system call has 0 to 5", a.Index)
	case !slices.Contains(customOps, a.Op):
		return fmt.Errorf("%q is no comparison: use one of %s", a.Op, strings.Join(customOps, ", "))
	case a.Op == "SCMP_CMP_MASKED_EQ":
		if a.ValueTwo&^a.Value != 0 {
			return fmt.Errorf("argument %d: valueTwo %#x has bits outside the mask (value %#x), so nothing equals it",
				a.Index, a.ValueTwo, a.Value)
		}
	case a.ValueTwo != 0:
		return fmt.Errorf("%s has no valueTwo", a.Op)
	case a.Op == "SCMP_CMP_LT" && a.Value == 0, a.Op == "SCMP_CMP_GT" && a.Value == math.MaxUint64:
		return fmt.Errorf("argument %d: %s %d is true for no value", a.Index, a.Op, a.Value)
	}
	return nil
}

// alternatives are the conjunctions that an entry's comparisons stand for. OCI runtimes read several
// comparisons of one argument as alternatives, and then all of the entry's.
func alternatives(args []customArg) [][]customArg {
	var seen [6]bool
	for _, a := range args {
		if seen[a.Index] {
			var out [][]customArg
			for _, one := range args {
				out = append(out, []customArg{one})
			}
			return out
		}
		seen[a.Index] = true
	}
	return [][]customArg{args}
}

// matches reports whether the comparison is true for an argument's value.
func (a customArg) matches(value uint64) bool {
	switch a.Op {
	case "SCMP_CMP_NE":
		return value != a.Value
	case "SCMP_CMP_LT":
		return value < a.Value
	case "SCMP_CMP_LE":
		return value <= a.Value
	case "SCMP_CMP_EQ":
		return value == a.Value
	case "SCMP_CMP_GE":
		return value >= a.Value
	case "SCMP_CMP_GT":
		return value > a.Value
	case "SCMP_CMP_MASKED_EQ":
		return value&a.Value == a.ValueTwo
	}
	return false
}

// span is the least and the greatest value for which a may be true: of NE and MASKED_EQ not all
// between them are.
func (a customArg) span() (low, high uint64) {
	low, high = 0, math.MaxUint64
	switch a.Op {
	case "SCMP_CMP_LT":
		high = a.Value - 1 // validate has refused 0
	case "SCMP_CMP_LE":
		high = a.Value
	case "SCMP_CMP_EQ":
		low, high = a.Value, a.Value
	case "SCMP_CMP_GE":
		low = a.Value
	case "SCMP_CMP_GT":
		low = a.Value + 1
	case "SCMP_CMP_MASKED_EQ":
		low, high = a.ValueTwo, a.ValueTwo|^a.Value
	}
	return low, high
}

// both finds a value for which a and b are true.
func both(a, b customArg) (value uint64, ok bool) {
	if a.Op == "SCMP_CMP_MASKED_EQ" && b.Op == "SCMP_CMP_MASKED_EQ" {
		value = a.ValueTwo | b.ValueTwo
		return value, a.matches(value) && b.matches(value)
	}
	if a.Op == "SCMP_CMP_MASKED_EQ" {
		a, b = b, a
	}
	low, high := a.span()
	if b.Op == "SCMP_CMP_MASKED_EQ" {
		// a is a range, or all values but one: the two smallest in the range that b takes are enough.
		for range 2 {
			if value, ok = b.atLeast(low); !ok || value > high {
				return 0, false
			}
			if a.matches(value) {
				return value, true
			}
			if value == math.MaxUint64 {
				return 0, false
			}
			low = value + 1
		}
		return 0, false
	}
	low2, high2 := b.span()
	low, high = max(low, low2), min(high, high2)
	// Two NE exclude two values at most.
	for value, n := low, 0; value <= high && n < 3; value, n = value+1, n+1 {
		if a.matches(value) && b.matches(value) {
			return value, true
		}
		if value == math.MaxUint64 {
			break
		}
	}
	return 0, false
}

// atLeast is the smallest value from low on for which a MASKED_EQ is true.
func (a customArg) atLeast(low uint64) (uint64, bool) {
	free := ^a.Value
	if value := low&free | a.ValueTwo; value >= low && low&a.Value == a.ValueTwo {
		return value, true
	}
	// Keep low's bits down to some position, where the result has 1 and low has 0: the lowest such position
	// gives the smallest result. Below it the free bits are 0.
	for bit := uint64(1); bit != 0; bit <<= 1 {
		above := ^(bit | (bit - 1))
		one := free&bit != 0 || a.ValueTwo&bit != 0
		if one && low&bit == 0 && low&above&a.Value == a.ValueTwo&above {
			return low&above | bit | a.ValueTwo&(bit-1), true
		}
	}
	return 0, false
}

// matches reports whether a rule is about a call with these arguments.
func (r customRule) matches(args [6]uint64) bool {
	for _, a := range r.args {
		if !a.matches(args[a.Index]) {
			return false
		}
	}
	return true
}

// overlap finds arguments that match both rules.
func overlap(a, b customRule) (args [6]uint64, ok bool) {
	var conds [6]*customArg
	for i, c := range a.args {
		conds[c.Index] = &a.args[i]
		args[c.Index], _ = c.span()
		if c.Op == "SCMP_CMP_NE" && c.Value == 0 {
			args[c.Index] = 1
		}
	}
	for _, c := range b.args {
		other := conds[c.Index]
		if other == nil {
			other = &c
		}
		if args[c.Index], ok = both(*other, c); !ok {
			return args, false
		}
	}
	return args, true
}

// contradiction finds two rules with two actions of which arguments match both, and the later one's line.
func (c *Custom) contradiction() (line int, err error) {
	byName := map[string][]customRule{}
	for _, r := range c.rules {
		if len(byName[r.name]) == maxCustomPerCall {
			return r.line, fmt.Errorf("%s: more than %d rules for one call", r.name, maxCustomPerCall)
		}
		for _, before := range byName[r.name] {
			if before.action == r.action {
				continue
			}
			args, ok := overlap(before, r)
			if !ok {
				continue
			}
			which := "whatever its arguments"
			if len(before.args)+len(r.args) > 0 {
				which = fmt.Sprintf("with arguments such as %s", sample(args, before, r))
			}
			return r.line, fmt.Errorf("%s: %s here and %s in line %d are both for the call %s: "+
				"rules have no order, so give them arguments that exclude each other", r.name, r.action, before.action,
				before.line, which)
		}
		byName[r.name] = append(byName[r.name], r)
	}
	return 0, nil
}

// sample shows the arguments that rules look at.
func sample(args [6]uint64, rules ...customRule) string {
	var parts []string
	for i, value := range args {
		if slices.ContainsFunc(rules, func(r customRule) bool {
			return slices.ContainsFunc(r.args, func(a customArg) bool { return a.Index == uint(i) })
		}) {
			parts = append(parts, fmt.Sprintf("%d: %#x", i, value))
		}
	}
	return strings.Join(parts, ", ")
}

// String is the action as a profile has it.
func (a customAction) String() string {
	if a.errno != 0 {
		return fmt.Sprintf("%s %d", a.name, a.errno)
	}
	return a.name
}
