package names

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var small = netip.MustParsePrefix("198.18.7.0/24")

func open(t testing.TB, path string, prefix netip.Prefix, seed string) *Table {
	t.Helper()
	table, err := Open(path, prefix, []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func address1(t testing.TB, table *Table, name string) netip.Addr {
	t.Helper()
	a, err := table.Address(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestTableSurvives: what a daemon gave out, the next one knows, and gives nobody else.
func TestTableSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	first := open(t, path, small, "seed")
	given := map[string]netip.Addr{}
	for i := range 100 {
		name := fmt.Sprintf("n%d.example.com", i)
		given[name] = address1(t, first, name)
		if !small.Contains(given[name]) || given[name] == small.Masked().Addr().Next() {
			t.Fatalf("%s has %s", name, given[name])
		}
	}
	second := open(t, path, small, "seed")
	seen := map[netip.Addr]bool{}
	for name, a := range given {
		if got, ok := second.Name(a); !ok || got != name {
			t.Errorf("%s is %q, %v after a restart; it was %s's", a, got, ok, name)
		}
		if got := address1(t, second, name); got != a {
			t.Errorf("%s has %s after a restart, %s before", name, got, a)
		}
		if seen[a] {
			t.Errorf("%s was given twice", a)
		}
		seen[a] = true
	}
}

func TestTableIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	a := address1(t, open(t, filepath.Join(dir, "a"), DefaultPrefix, "one"), "example.com")
	if b := address1(t, open(t, filepath.Join(dir, "b"), DefaultPrefix, "one"), "example.com"); a != b {
		t.Errorf("one seed: %s and %s", a, b)
	}
	if c := address1(t, open(t, filepath.Join(dir, "c"), DefaultPrefix, "two"), "example.com"); a == c {
		t.Errorf("two seeds: %s both times", a)
	}
}

func TestTableExhausted(t *testing.T) {
	table := open(t, filepath.Join(t.TempDir(), "names"), small, "seed")
	n := 0
	for {
		_, err := table.Address(fmt.Sprintf("n%d.example.com", n))
		if errors.Is(err, ErrExhausted) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if want := 256 - reserved - 1; n != want {
		t.Errorf("%d names have addresses of a /24, want %d", n, want)
	}
	if a, err := table.Address("n0.example.com"); err != nil || !small.Contains(a) {
		t.Errorf("a name that has an address: %s, %v", a, err)
	}
}

// TestTableTorn: a daemon that was killed, or had no room, while it wrote a line.
func TestTableTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	a := address1(t, open(t, path, small, "seed"), "example.com")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		table := open(t, path, small, "seed")
		if got, ok := table.Name(a); ok && got != "example.com" {
			t.Fatalf("cut at %d: %s is %q", cut, a, got)
		}
		address1(t, table, "other.example")
		if got := address1(t, table, "example.com"); got != a {
			t.Fatalf("cut at %d: example.com has %s, not %s", cut, got, a)
		}
		open(t, path, small, "seed")
	}
}

func TestTableRefuses(t *testing.T) {
	head := magic + small.String() + "\n"
	for what, content := range map[string]string{
		"another version":       "hutch names 9 " + small.String() + "\n",
		"another range":         magic + "198.19.0.0/24\n",
		"no name table":         "#!/bin/sh\n",
		"an address twice":      head + "198.18.7.20 a.example\n198.18.7.20 b.example\n",
		"a name twice":          head + "198.18.7.20 a.example\n198.18.7.21 a.example\n",
		"the resolver":          head + "198.18.7.1 a.example\n",
		"an address outside":    head + "198.18.8.20 a.example\n",
		"a name with a NUL":     head + "198.18.7.20 a\x00b.example\n",
		"a name in capitals":    head + "198.18.7.20 A.example\n",
		"a line without a name": head + "198.18.7.20\n",
		"an IPv6 address":       head + "::ffff:198.18.7.20 a.example\n",
	} {
		path := filepath.Join(t.TempDir(), "names")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, small, nil); err == nil {
			t.Errorf("%s: opened", what)
		}
	}
	for _, p := range []string{"fd00::/64", "198.18.0.0/31", "10.0.0.0/7", "198.18.0.1/24"} {
		if _, err := Open(filepath.Join(t.TempDir(), "names"), netip.MustParsePrefix(p), nil); !errors.Is(err,
			ErrPrefix) {
			t.Errorf("range %s: %v", p, err)
		}
	}
	table := open(t, filepath.Join(t.TempDir(), "names"), small, "seed")
	for _, name := range []string{"", "Example.com", "example.com.", "a\n198.18.7.99 b", "a b",
		strings.Repeat("a", 64)} {
		if a, err := table.Address(name); err == nil {
			t.Errorf("the name %q has %s", name, a)
		}
	}
}

// TestTableUnwritable: an address that could not be recorded is not given out.
func TestTableUnwritable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	table := open(t, path, small, "seed")
	if _, err := table.Address("first.example.com"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	never := open(t, filepath.Join(t.TempDir(), "no/names"), small, "seed")
	for _, table := range []*Table{table, never} {
		if a, err := table.Address("example.com"); err == nil {
			t.Errorf("%s was given out", a)
		}
		if _, ok := table.Lookup("example.com"); ok {
			t.Error("it is known although nothing was given out")
		}
	}
}

func TestTableConcurrently(t *testing.T) {
	table := open(t, filepath.Join(t.TempDir(), "names"), DefaultPrefix, "seed")
	var wg sync.WaitGroup
	got := make([][]netip.Addr, 8)
	for i := range got {
		wg.Go(func() {
			for n := range 50 {
				a, err := table.Address(fmt.Sprintf("n%d.example.com", n))
				if err != nil {
					t.Error(err)
				}
				got[i] = append(got[i], a)
			}
		})
	}
	wg.Wait()
	for _, g := range got[1:] {
		for n := range g {
			if g[n] != got[0][n] {
				t.Fatalf("n%d has %s and %s", n, g[n], got[0][n])
			}
		}
	}
}
