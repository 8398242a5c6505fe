package bootstrap

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestParseSubIDs(t *testing.T) {
	tests := []struct {
		name, text string
		want       []Range
	}{
		{"by name", "dev:100000:65536\n", []Range{{0, 100000, 65536}}},
		{"by uid", "1000:100000:65536\n", []Range{{0, 100000, 65536}}},
		{"several, in order", "dev:300000:10\nother:1:1\ndev:100000:20\n", []Range{{0, 300000, 10}, {0, 100000, 20}}},
		{"other users only", "devel:100000:65536\n10000:1:1\n", nil},
		{"no newline at the end", "dev:5:6", []Range{{0, 5, 6}}},
		{"comments and rubbish", "# dev:1:1\n\ndev\ndev:1\ndev:x:1\ndev:1:-1\ndev:1:2:3\n", nil},
		{"empty range", "dev:100000:0\n", nil},
		{"beyond 32 bits", "dev:4294967296:1\ndev:1:4294967296\n", nil},
		{"reaches (uid_t)-1", "dev:4294967295:1\ndev:4294967294:1\n", []Range{{0, 4294967294, 1}}},
		{"empty owner", ":100000:65536\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseSubIDs(strings.NewReader(tt.text), "dev", 1000)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func FuzzParseSubIDs(f *testing.F) {
	f.Add("dev:100000:65536\n")
	f.Add("1000:4294967295:4294967295\n#\ndev:1:1")
	f.Fuzz(func(t *testing.T, text string) {
		var ranges []Range
		var err error
		cost.Input(t, text, func(text string) { ranges, err = parseSubIDs(strings.NewReader(text), "dev", 1000) })
		if err != nil {
			return
		}
		if len(ranges) > maxExtents {
			t.Fatalf("%d ranges", len(ranges))
		}
		var next uint64
		for _, r := range behind(1000, ranges) {
			if uint64(r.Inside) != next || r.Count == 0 {
				t.Fatalf("map %v: gap, overlap or empty range", r)
			}
			next += uint64(r.Count)
			if next > math.MaxUint32 || uint64(r.Outside)+uint64(r.Count) > math.MaxUint32 {
				t.Fatalf("map %v reaches (uid_t)-1", r)
			}
		}
	})
}

func TestRootMap(t *testing.T) {
	for _, tt := range []struct {
		base uint32
		ok   bool
	}{{0, false}, {1, true}, {1879048192, true}, {math.MaxUint32 - RootCount, true},
		{math.MaxUint32 - RootCount + 1, false}} {
		m, err := rootMap(tt.base)
		if (err == nil) != tt.ok {
			t.Errorf("base %d: %v", tt.base, err)
		}
		if err != nil {
			if api.ErrorCode(err) != api.InvalidArgument {
				t.Errorf("base %d: code %s", tt.base, api.ErrorCode(err))
			}
			continue
		}
		if m.Method != MethodDirect || !slices.Equal(m.UIDs, []Range{{0, tt.base, RootCount}}) ||
			!slices.Equal(m.GIDs, m.UIDs) {
			t.Errorf("base %d: %+v", tt.base, m)
		}
	}
}

func TestMapText(t *testing.T) {
	got := mapText(behind(1000, []Range{{0, 100000, 65536}, {0, 300000, 5}}))
	const want = "0 1000 1\n1 100000 65536\n65537 300000 5\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
