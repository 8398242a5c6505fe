package seccomp

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files from the system call numbers of golang.org/x/sys")

// arches are the architectures with a golden file.
var arches = []string{"amd64", "arm64"}

func goldenPath(arch string) string { return filepath.Join("testdata", "decisions_"+arch+".golden") }

// numbers are the system calls of an architecture by name: with -update those
// of golang.org/x/sys, else those of the golden file.
func numbers(t testing.TB, arch string) map[string]uint32 {
	t.Helper()
	pattern, path := regexp.MustCompile(`^(\d+) (\w+)\s`), goldenPath(arch)
	if *update {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
		if err != nil {
			t.Fatalf("find golang.org/x/sys: %v", err)
		}
		path = filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go")
		pattern = regexp.MustCompile(`^\tSYS_(\w+)\s+= (\d+)$`)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]uint32{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := pattern.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		name, number := m[2], m[1]
		if *update {
			name, number = strings.ToLower(m[1]), m[2]
		}
		if name == "arch_specific_syscall" { // a bound, not a call
			continue
		}
		nr, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = uint32(nr)
	}
	if len(out) < 300 {
		t.Fatalf("%s: only %d system calls", path, len(out))
	}
	return out
}

// lowered is p for an architecture, by name.
func lowered(t testing.TB, p Profile, arch string) map[string]call {
	t.Helper()
	nrs := numbers(t, arch)
	calls, err := lower(p, func(name string) (uint32, bool) { nr, ok := nrs[name]; return nr, ok })
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]call{}
	for _, c := range calls {
		out[c.name] = c
	}
	return out
}

func errnoText(e unix.Errno) string {
	if e == 0 {
		return "allow"
	}
	return unix.ErrnoName(e)
}

// describe writes a decision on one line.
func describe(c call) string {
	if len(c.rules) == 0 {
		return errnoText(Unlisted)
	}
	var parts []string
	for _, r := range c.rules {
		var conds []string
		for _, w := range r.When {
			if w.Mask == int32Mask {
				conds = append(conds, fmt.Sprintf("int arg%d=%#x", w.Arg, w.Value))
			} else {
				conds = append(conds, fmt.Sprintf("arg%d&%#x=%#x", w.Arg, w.Mask, w.Value))
			}
		}
		text := errnoText(r.Errno)
		if len(conds) > 0 {
			text += " if " + strings.Join(conds, " and ")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// TestGolden pins the decision about every system call number, so that each
// change of a profile shows what it changes.
func TestGolden(t *testing.T) {
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			nrs := numbers(t, arch)
			def := lowered(t, Default(), arch)
			others := []Profile{Init(), Build(), Strict(), Browser()}
			var b strings.Builder
			fmt.Fprintf(&b, "# %s: number, name, decision of default [| PROFILE: its decision, where it differs]\n",
				arch)
			for _, name := range slices.SortedFunc(maps.Keys(nrs),
				func(x, y string) int { return int(nrs[x]) - int(nrs[y]) }) {
				line := fmt.Sprintf("%d %s %s", nrs[name], name, describe(def[name]))
				for _, p := range others {
					if d := describe(lowered(t, p, arch)[name]); d != describe(def[name]) {
						line += " | " + p.Name + ": " + d
					}
				}
				fmt.Fprintln(&b, line)
			}
			var calls strings.Builder
			for _, name := range slices.SortedFunc(maps.Keys(nrs),
				func(x, y string) int { return int(nrs[x]) - int(nrs[y]) }) {
				fmt.Fprintf(&calls, "%d %s\n", nrs[name], name)
			}
			if *update {
				for path, text := range map[string]string{goldenPath(arch): b.String(), "calls_" + arch +
					".txt": calls.String()} {
					if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			if have, err := os.ReadFile("calls_" + arch + ".txt"); err != nil || string(have) != calls.String() {
				t.Errorf("calls_%s.txt has other names (-update), %v", arch, err)
			}
			want, err := os.ReadFile(goldenPath(arch))
			if err != nil {
				t.Fatal(err)
			}
			wantLines := strings.Split(string(want), "\n")
			for i, got := range strings.Split(b.String(), "\n") {
				if i >= len(wantLines) || got != wantLines[i] {
					t.Fatalf("line %d differs (-update after review):\n got %s\nwant %s", i+1, got,
						wantLines[min(i, len(wantLines)-1)])
				}
			}
		})
	}
}

// TestEveryCallConsidered fails when a system call is in no table, in two, or
// in one under a name that no architecture has.
func TestEveryCallConsidered(t *testing.T) {
	known := map[string]bool{}
	for _, arch := range arches {
		for name := range numbers(t, arch) {
			known[name] = true
		}
	}
	ruled := map[string]bool{}
	for _, r := range Default().Rules {
		for _, name := range r.Syscalls {
			ruled[name] = true
		}
	}
	left := unlisted()
	for name := range known {
		switch {
		case ruled[name] && left[name] != "":
			t.Errorf("%s has a rule and is left out as well", name)
		case !ruled[name] && left[name] == "":
			t.Errorf("%s is in no table: allow it, refuse it, or say why it is left out", name)
		}
	}
	for _, table := range []map[string]bool{ruled, mapKeys(left), mapKeys(recent)} {
		for name := range table {
			if !known[name] {
				t.Errorf("no architecture has a system call %q", name)
			}
		}
	}
}

func mapKeys[V any](m map[string]V) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}

// TestNoRedundantRule removes each name from each rule and expects another
// decision somewhere.
func TestNoRedundantRule(t *testing.T) {
	for _, p := range builtin() {
		for i, r := range p.Rules {
			for _, name := range r.Syscalls {
				with := call{name: name, rules: rulesOf(p, name, -1)}
				without := call{name: name, rules: rulesOf(p, name, i)}
				changed := false
				for args := range with.interesting() {
					if with.decide(args) != without.decide(args) {
						changed = true
						break
					}
				}
				if !changed {
					t.Errorf("profile %q: rule %d changes nothing for %s %v", p.Name, i, name, r.When)
				}
			}
		}
	}
}

// rulesOf are the rules of p about name except the one at index skip.
func rulesOf(p Profile, name string, skip int) []Rule {
	var out []Rule
	for i, r := range p.Rules {
		if i != skip && slices.Contains(r.Syscalls, name) {
			out = append(out, r)
		}
	}
	return out
}

// builtin are all built-in profiles.
func builtin() []Profile {
	var out []Profile
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		out = append(out, profiles[name]())
	}
	return out
}

// TestSupersets: filters stack, so what PID 1's refuses no command can have; and each of
// the profiles that are said to be narrower is.
func TestSupersets(t *testing.T) {
	pairs := [][2]string{{StrictName, BuildName}, {BuildName, DefaultName}}
	for _, name := range []string{DefaultName, StrictName, BuildName, BrowserName} {
		pairs = append(pairs, [2]string{name, InitFor(name)})
	}
	for _, arch := range arches {
		for _, pair := range pairs {
			upper := lowered(t, profiles[pair[1]](), arch)
			for name, c := range lowered(t, profiles[pair[0]](), arch) {
				both := call{rules: slices.Concat(c.rules, upper[name].rules)}
				for args := range both.interesting() {
					if c.decide(args) == 0 && upper[name].decide(args) != 0 {
						t.Errorf("%s: %s allows %s %#x, %s does not", arch, pair[0], name, args, pair[1])
					}
				}
			}
		}
	}
}

// TestBrowserRefuses: what nobody may do, who makes user namespaces may not either.
func TestBrowserRefuses(t *testing.T) {
	p := Browser()
	for _, r := range refusedRules() {
		for _, name := range r.Syscalls {
			if got := p.Decide(name, [6]uint64{}); got != unix.EPERM {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
}

// TestRecentNumbers: the numbers of new calls are the same on all
// architectures, as recent assumes.
func TestRecentNumbers(t *testing.T) {
	for _, arch := range arches {
		nrs := numbers(t, arch)
		for name, nr := range recent {
			if nrs[name] != uint32(nr) {
				t.Errorf("%s: %s is %d, not %d", arch, name, nrs[name], nr)
			}
		}
	}
}
