package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestDetachKeys(t *testing.T) {
	for _, tt := range []struct {
		keys, typed, want string // in typed, | is between reads
		pushed            int
	}{
		{"ctrl-p,ctrl-q", "abc", "abc", 0},
		{"ctrl-p,ctrl-q", "a\x10\x11b", "ab", 1},
		{"ctrl-p,ctrl-q", "\x10|\x11", "", 1},
		{"ctrl-p,ctrl-q", "\x10|\x10|\x11", "\x10", 1},
		{"ctrl-p,ctrl-q", "\x10x\x11", "\x10x\x11", 0},
		{"ctrl-p,ctrl-q", "\x10", "", 0},
		{"ctrl-@,a", "\x00a", "", 1},
		{"a,a,b", "aaab", "a", 1},
		{"a,b,a,c", "ababac", "ab", 1},
		{"q", "qq", "", 2},
		{"", "\x10\x11", "\x10\x11", 0},
	} {
		pushed := 0
		d, err := ParseDetachKeys(tt.keys, func() { pushed++ })
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for part := range strings.SplitSeq(tt.typed, "|") {
			got.Write(d.filter([]byte(part)))
		}
		if got.String() != tt.want || pushed != tt.pushed {
			t.Errorf("%s: %q became %q and %d, want %q and %d", tt.keys, tt.typed, got.String(), pushed, tt.want,
				tt.pushed)
		}
	}
	for _, bad := range []string{"ctrl-", "ab", "ctrl-1", ",", "ctrl-p,", "\x01"} {
		if _, err := ParseDetachKeys(bad, nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzDetachKeys(f *testing.F) {
	f.Add("a,b,a", []byte("abab"))
	f.Fuzz(func(t *testing.T, keys string, typed []byte) {
		pushed := 0
		var d *DetachKeys
		var err error
		cost.Input(t, keys, func(keys string) { d, err = ParseDetachKeys(keys, func() { pushed++ }) })
		if err != nil {
			return
		}
		n := 0
		cost.Once(t, len(typed), func() {
			for _, key := range typed {
				n += len(d.filter([]byte{key}))
			}
		})
		if d != nil && n+d.have+pushed*len(d.seq) != len(typed) {
			t.Errorf("of %d keys %d were passed on, %d held, %d times detached", len(typed), n, d.have, pushed)
		}
	})
}

// TestOnTwice: a second Ctrl-C within two seconds is noticed, a later one is a first, and all of them are passed on.
func TestOnTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, keys := range []string{DefaultDetachKeys, ""} {
			n := 0
			d, err := ParseDetachKeys(keys, func() { t.Error("detached") })
			if err != nil {
				t.Fatal(err)
			}
			d = d.OnTwice(func() { n++ })
			for i, c := range []struct {
				typed string
				after time.Duration
				want  int
			}{{"a\x03", 0, 0}, {"b", 0, 0}, {"\x03", time.Second, 1}, {"\x03", 0, 1}, {"\x03", 3 * time.Second, 1},
				{"\x03\x03", 3 * time.Second, 2}} {
				testenv.Elapse(c.after)
				if got := string(d.filter([]byte(c.typed))); got != c.typed || n != c.want {
					t.Errorf("%q, %d: passed %q, noticed %d, want %d", keys, i, got, n, c.want)
				}
			}
		}
	})
}
