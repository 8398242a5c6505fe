package lines

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// slowly is what Each finds, line by line.
func slowly(pattern string, literal, ignoreCase bool, text string) (list []string) {
	if literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	flags := "(?m)"
	if ignoreCase {
		flags = "(?mi)"
	}
	re := regexp.MustCompile(flags + "(?:" + pattern + ")")
	for l := range strings.Lines(text) {
		if l = strings.TrimSuffix(l, "\n"); re.MatchString(l) {
			list = append(list, l)
		}
	}
	return list
}

func check(t *testing.T, pattern string, literal, ignoreCase bool, text string) {
	t.Helper()
	m, err := New(pattern, literal, ignoreCase)
	if err != nil {
		return
	}
	var got []string
	m.Clone().Each([]byte(text), func(begin, end int) bool {
		got = append(got, text[begin:end])
		return true
	})
	if want := slowly(pattern, literal, ignoreCase, text); !slices.Equal(got, want) {
		t.Errorf("%q (literal %v, ignore case %v) in %q: %q, want %q", pattern, literal, ignoreCase, text, got, want)
	}
}

var texts = []string{
	"", "\n", "a\n\nb", "foo bar\nFOO\n\nbar\u212aelvin kelvin\nfunc main() {\n\tlong\u017fs\n", "ab\nabab\nxaby",
	"\xff\xfe\nfoo\xff\n", "a\r\nb\r\n",
}

func TestEach(t *testing.T) {
	for _, p := range []string{
		"foo", "bar$", "^a", "^$", "", "a*", "kelvin", "longss", "(foo|bar|main)", `func\s+\w+\(`, `a\sb`, `\Aab\z`,
		`x?`, "[fb][oa][or]", "(?:ab)+$", `.`, "a|b*", `\x{212a}`,
		`(?-m:^ab$)`, `[^a]`, "b{2,}", "(a|b){1,2}y",
	} {
		for _, text := range texts {
			for i := range 4 {
				check(t, p, i&1 > 0, i&2 > 0, text)
			}
		}
	}
}

func FuzzEach(f *testing.F) {
	f.Add("(foo|b+)k", true, "foo\nbbK\n")
	f.Fuzz(func(t *testing.T, pattern string, fold bool, text string) {
		if len(pattern) < 100 && utf8.ValidString(pattern) && !strings.ContainsAny(pattern, "\n") && pattern != "" {
			if m, err := New(pattern, false, fold); err == nil {
				cost.Input(t, text, func(text string) {
					m.Clone().
						Each([]byte(text), func(int, int) bool { return true })
				})
			}
			check(t, pattern, false, fold, text)
			check(t, pattern, true, fold, text)
		}
	})
}

func TestFirst(t *testing.T) {
	m, err := New("a", true, false)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	m.Each(bytes.Repeat([]byte("a\n"), 1000), func(int, int) bool { n++; return false })
	if n != 1 {
		t.Error(n)
	}
}

// TestFar: an expression that could go on over all lines does not do so from each.
func TestFar(t *testing.T) {
	m, err := New(`\w+[^;]*$|[^x]*`, false, false)
	if err != nil {
		t.Fatal(err)
	}
	n, begin := 0, time.Now()
	m.Each(bytes.Repeat([]byte("ab c\n"), 50_000), func(int, int) bool { n++; return true })
	if d := time.Since(begin); n != 50_000 || d > 5*time.Second {
		t.Error(n, d)
	}
}
