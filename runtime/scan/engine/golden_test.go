package engine

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

var update = flag.Bool("update", false, "write the goldens of testdata anew")

// goldenCase is one case of testdata/*.txt: "=== name", code, "---", and what is found.
type goldenCase struct{ name, code, want string }

func readGoldens(t testing.TB, file string) []goldenCase {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []goldenCase
	for part := range strings.SplitSeq("\n"+string(data), "\n=== ") {
		name, rest, ok := strings.Cut(part, "\n")
		if !ok || name == "" {
			continue
		}
		code, want, _ := strings.Cut(rest, "\n---")
		all = append(all, goldenCase{name, code + "\n", strings.TrimSpace(want)})
	}
	return all
}

func told(res *api.ScanResult) string {
	var b strings.Builder
	for _, f := range res.Findings {
		fmt.Fprintf(&b, "%d:%d %s %s %s\n", f.Line, f.Column, f.Severity, f.Category, f.Rule)
	}
	for _, i := range res.Imports {
		fmt.Fprintf(&b, "%d import %s\n", i.Line, i.Module)
	}
	return strings.TrimSpace(b.String())
}

// TestGoldens: what is found in each case is what is written there. Whatever is called innocent is not risky, and all
// else is.
func TestGoldens(t *testing.T) {
	for _, language := range api.ScanLanguages {
		file := "testdata/" + language + ".txt"
		var out bytes.Buffer
		for _, c := range readGoldens(t, file) {
			res := Scan(Request{Language: language, Code: c.code})
			got := told(&res)
			fmt.Fprintf(&out, "=== %s\n%s---\n%s\n", c.name, c.code, got)
			if innocent := strings.HasPrefix(c.name, "innocent"); res.Risky == innocent {
				t.Errorf("%s: %s: risky is %v:\n%s", language, c.name, res.Risky, got)
			}
			if got != c.want && !*update {
				t.Errorf("%s: %s: found\n%s\nwant\n%s", language, c.name, got, c.want)
			}
		}
		if *update {
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
