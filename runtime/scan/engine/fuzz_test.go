package engine

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func FuzzPython(f *testing.F)     { fuzz(f, "python") }
func FuzzJavaScript(f *testing.F) { fuzz(f, "javascript") }
func FuzzShell(f *testing.F)      { fuzz(f, "shell") }

// bound is linear too, and wider than that of others: tree-sitter keeps several ways to read what has errors, which
// costs 6 µs a byte at 4 KB as at 128.
var bound = cost.Bound{Base: 10 * time.Millisecond, PerByte: 20 * time.Microsecond}

// fuzz: whatever the code, the result can be sent, lies within it, and is the same the second time.
func fuzz(f *testing.F, language string) {
	for _, c := range readGoldens(f, "testdata/"+language+".txt") {
		f.Add(c.code)
	}
	f.Fuzz(func(t *testing.T, code string) {
		if len(code) > 1<<14 {
			return
		}
		var res api.ScanResult
		cost.Within(t, bound, code, func(code string) {
			res = Scan(Request{Language: language, Code: code, AllowedImports: []string{"json"}})
		})
		risky := false
		for _, x := range res.Findings {
			risky = risky || x.Severity != api.SeverityLow
			if x.Line < 1 || x.Column < 1 || x.Rule == "" || x.Why == "" || len(x.Text) > maxText+4 ||
				!utf8.ValidString(x.Text) {
				t.Errorf("finding %+v", x)
			}
		}
		if risky != res.Risky && !res.Truncated {
			t.Errorf("risky is %v: %+v", res.Risky, res.Findings)
		}
		again := Scan(Request{Language: language, Code: code, AllowedImports: []string{"json"}})
		if told(&res) != told(&again) {
			t.Errorf("once\n%s\nthen\n%s", told(&res), told(&again))
		}
	})
}
