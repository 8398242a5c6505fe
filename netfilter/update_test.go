package netfilter

import (
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestUpdateFails: an update that fails halfway leaves the policy before in force, with its sockets, which are kept,
// and the next one works.
func TestUpdateFails(t *testing.T) {
	k := &keeper{}
	e := newEngine(t, k)
	broken, full := "", errors.New("no more files")
	e.cfg.Keep = func(key string, f *os.File) error {
		if broken != "" && strings.HasSuffix(key, broken) {
			return full
		}
		return k.keep(key, f)
	}
	first := api.NetPolicy{Mode: api.NetAllow, Allow: []string{"udp://ntp.test:123"},
		AllowCIDRs: []string{"10.0.0.0/8"}}
	n, err := e.Open("a", t.TempDir(), first, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	state := func() (names, kept []string, policy api.NetPolicy) {
		names = n.ns.Names()
		for _, key := range slices.Sorted(maps.Keys(k.files)) {
			kept = append(kept, strings.TrimPrefix(key, "net/a/"))
		}
		slices.Sort(names)
		return names, kept, n.rules.Load().Policy()
	}
	names, kept, policy := state()
	if !slices.Equal(names, kept) {
		t.Fatalf("there are %q, and kept are %q", names, kept)
	}
	next := api.NetPolicy{Mode: api.NetAllow, Allow: []string{"udp://log.test:514"},
		AllowCIDRs: []string{"172.16.0.0/12"}}
	for range 2 {
		broken = ":514"
		if err := n.Update(next); !errors.Is(err, full) {
			t.Fatalf("%v, want %v", err, full)
		}
		if now, held, p := state(); !slices.Equal(now, names) || !slices.Equal(held, kept) ||
			!reflect.DeepEqual(p, policy) {
			t.Fatalf("after an update that failed there are %q, kept are %q, and the policy is %+v", now, held, p)
		}
		if err := n.ns.Apply(config(n.rules.Load())); err != nil || len(n.ns.UDP) != 1 {
			t.Fatalf("%d sockets, %v", len(n.ns.UDP), err)
		}
	}
	broken = ""
	if err := n.Update(next); err != nil {
		t.Fatal(err)
	}
	now, held, p := state()
	if !slices.Equal(now, held) || reflect.DeepEqual(p, policy) || slices.Equal(now, names) {
		t.Errorf("after the update there are %q, kept are %q, and the policy is %+v", now, held, p)
	}
	// Where the policy before cannot be put back either, the error says so.
	broken = "."
	e.cfg.Keep = func(string, *os.File) error { return full }
	if err := n.Update(first); !errors.Is(err, full) ||
		!strings.Contains(err.Error(), "put the network policy before") {
		t.Errorf("%v", err)
	}
}
