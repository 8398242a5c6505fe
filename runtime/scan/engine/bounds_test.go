package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// nests are texts that nest without end, by name.
var nests = map[string]struct{ language, code string }{
	"python parentheses": {"python", strings.Repeat("(", 100_000)},
	"python brackets":    {"python", "x = " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)},
	"python calls":       {"python", strings.Repeat("f(", 100_000) + strings.Repeat(")", 100_000)},
	"python attributes":  {"python", "a" + strings.Repeat(".a", 100_000)},
	"python sums":        {"python", "a" + strings.Repeat("+'a'", 100_000)},
	"python not":         {"python", strings.Repeat("not ", 100_000) + "1"},
	"python lambdas":     {"python", strings.Repeat("lambda:", 100_000) + "1"},
	"python f-strings":   {"python", strings.Repeat("f'{", 10_000)},
	"python blocks":      {"python", blocks(600)},
	"python doubling":    {"python", "a='x'*60000\n" + strings.Repeat("a=a+a\n", 100_000)},
	"python statements":  {"python", strings.Repeat("a=1\n", 1<<18)},
	"python names":       {"python", strings.Repeat("eval\n", 200_000)},
	"js parentheses":     {"javascript", strings.Repeat("(", 100_000)},
	"js brackets":        {"javascript", strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)},
	"js braces":          {"javascript", strings.Repeat("{", 100_000) + strings.Repeat("}", 100_000)},
	"js arrows":          {"javascript", strings.Repeat("a=>", 100_000) + "1"},
	"js templates":       {"javascript", strings.Repeat("`${", 100_000)},
	"js sums":            {"javascript", "1" + strings.Repeat("+'a'", 200_000)},
	"js members":         {"javascript", "a" + strings.Repeat(".a", 200_000)},
	"js statements":      {"javascript", strings.Repeat("a=1;", 1<<18)},
	"js commas":          {"javascript", strings.Repeat("a,", 1<<19) + "a"},
	"shell pipes":        {"shell", "a" + strings.Repeat("|a", 100_000)},
	"shell words":        {"shell", "a " + strings.Repeat("a ", 1<<19)},
	"shell lines":        {"shell", strings.Repeat("a\n", 1<<19)},
	"shell quotes":       {"shell", strings.Repeat("'", 1<<20)},
	"shell nested 1000":  {"shell", strings.Repeat("$(", 1000) + "a" + strings.Repeat(")", 1000)},
	"shell in shell":     {"shell", strings.Repeat("sh -c \"", 1000)},
}

func blocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "if a:\n")
	}
	b.WriteString(strings.Repeat(" ", n) + "pass\n")
	return b.String()
}

// TestBounds: no text of the size that is allowed takes long, nor kills; one that nests without end is risky.
func TestBounds(t *testing.T) {
	for name, c := range nests {
		start := time.Now()
		code := c.code[:min(len(c.code), api.MaxCodeBytes/8)] // linear: the rest only takes longer
		res := Scan(Request{Language: c.language, Code: code})
		took := time.Since(start)
		t.Logf("%-20s %7d bytes %8s risky %v findings %d", name, len(code), took.Round(time.Millisecond), res.Risky,
			len(res.Findings))
		if len(res.Findings) > api.MaxFindings || len(res.Imports) > api.MaxScanImports {
			t.Errorf("%s: %d findings, %d imports", name, len(res.Findings), len(res.Imports))
		}
		if took > 20*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
}
