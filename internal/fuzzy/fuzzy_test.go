package fuzzy

import (
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// TestOrder: what people mean comes first.
func TestOrder(t *testing.T) {
	for _, test := range []struct{ query, better, worse string }{
		{"main", "cmd/main.go", "domain/x.go"},
		{"main", "cmd/main.go", "main/cmd.go"},
		{"srvmn", "server/main.go", "sorvmxn/x.go"},
		{"fb", "foo/bar.go", "foobar.go"},
		{"fb", "fooBar.go", "foobar.go"},
		{"abc", "x/abc", "x/axbxc"},
		{"tool go", "tool.go", "tool/a/b/c/x.go"},
		{"é", "é.txt", "aé.txt"},
	} {
		q := New(test.query)
		b, ok1 := q.Score(test.better)
		w, ok2 := q.Score(test.worse)
		if !ok1 || !ok2 || b <= w {
			t.Errorf("%q: %s has %d, %s %d", test.query, test.better, b, test.worse, w)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		query, path string
		want        bool
	}{
		{"", "a", true}, {"  ", "a", true}, {"ab", "xaxb", true}, {"ba", "ab", false}, {"a c", "cab", true},
		{"a d", "cab", false},
		{"AB", "ab", false}, {"ab", "AB", true}, {"ÄB", "äb", false}, {"äb", "ÄB", true},
	} {
		if _, got := New(test.query).Score(test.path); got != test.want {
			t.Errorf("%q in %q: %v", test.query, test.path, got)
		}
	}
}

func TestLong(t *testing.T) {
	begin := time.Now()
	New(strings.Repeat(strings.Repeat("a", 100)+" ", 20)).Score(strings.Repeat("a", 4096))
	if d := time.Since(begin); d > time.Second {
		t.Error(d)
	}
}

func FuzzScore(f *testing.F) {
	f.Add("ma go", "cmd/main.go")
	f.Fuzz(func(t *testing.T, query, path string) {
		m := New(query)
		cost.Input(t, path, func(path string) {
			if score, _ := m.Score(path); score < 0 {
				t.Error(score)
			}
		})
	})
}
