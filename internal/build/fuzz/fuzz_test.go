package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

func TestInFile(t *testing.T) {
	src := `package a

import "testing"

// FuzzFast: parses.
func FuzzFast(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) { cost.Input(t, s, parse) })
}

// FuzzSlow starts processes.
// Rate: 150/s, because each input
// starts a process.
// Cost: not here, the process is not ours.
func FuzzSlow(f *testing.F) {}

// FuzzAlso is slow.
//
// Cost: none.
//
// Rate: 100/s, because of fsync.
func FuzzAlso(f *testing.F) {}

func FuzzThere(f *testing.F) { helper(f) }

func FuzzNot(t *testing.T) {}
func (x) FuzzMethod(f *testing.F) {}
func helper(f *testing.F) { cost.Of(f, 1, nil) }
`
	got, err := inFile("b/c/a_test.go", []byte(src))
	want := []target{
		{pkg: "b/c", name: "FuzzAlso", rate: 100, because: "of fsync.", cost: true},
		{pkg: "b/c", name: "FuzzFast", rate: wanted, cost: true},
		{pkg: "b/c", name: "FuzzSlow", rate: 150, because: "each input starts a process.", cost: true},
		{pkg: "b/c", name: "FuzzThere", rate: wanted, cost: true},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	for _, doc := range []string{"Rate: 100/s", "Rate: 99/s, because x", "Rate: 1000/s, because x", "Rate: many",
		"Rate: 100/s because x"} {
		if _, err := inFile("a_test.go", []byte("package a\n// "+doc+"\nfunc FuzzX(f *testing.F) {}\n")); err == nil ||
			!strings.Contains(err.Error(), "FuzzX") {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

// TestTargets: every target of the module is found, and asserts what an input costs or says why not.
func TestTargets(t *testing.T) {
	testenv.Toolchain(t)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := list(t.Context(), root, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 80 || !slices.ContainsFunc(all,
		func(t target) bool { return t.String() == "internal/cli.FuzzParseVolume" }) {
		t.Errorf("%d targets: %v", len(all), all)
	}
	for _, t1 := range all {
		if !t1.cost {
			t.Errorf("%s: call internal/testenv/cost, or say in its doc comment, behind \"Cost:\", why not", t1)
		}
	}
}

func TestRead(t *testing.T) {
	r := read("fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\n" +
		"fuzz: elapsed: 0s, gathering baseline coverage: 3/3 completed, now fuzzing with 2 workers\n" +
		"fuzz: elapsed: 3s, execs: 1234 (411/sec), new interesting: 5 (total: 8)\n" +
		"fuzz: minimizing 40-byte failing input file\n" +
		"fuzz: elapsed: 4s, execs: 2345 (1111/sec), new interesting: 6 (total: 9)\n" +
		"--- FAIL: FuzzX (4.01s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:1: bad\n    \n" +
		"    Failing input written to testdata/fuzz/FuzzX/0123\n    To re-run:\n    go test -run=FuzzX/0123\nFAIL\n")
	r.target, r.failed, r.took, r.cpu = target{pkg: "a/b", name: "FuzzX", rate: wanted}, true, 5*time.Second,
		time.Second
	if r.execs != 2345 || r.found != 6 || r.corpus != 9 || r.perSecond() != 469 || r.perCPUSecond() != 2345 {
		t.Errorf("%+v", r)
	}
	if r.why() != "a/b/testdata/fuzz/FuzzX/0123" || strings.Contains(r.line(), "elapsed") ||
		!strings.Contains(r.line(), "x_test.go:1: bad") {
		t.Errorf("%s\n%s", r.why(), r.line())
	}
	if r := read("    fuzzing process hung or terminated\n"); r.execs != 0 ||
		r.why() != "fuzzing process hung or terminated" {
		t.Errorf("%+v", r)
	}
	line := "fuzz: elapsed: 9s, execs: 7 (0/sec), new interesting: 0 (total: 1)\n"
	if r := read(strings.Repeat(line, 5)); !r.stuck {
		t.Errorf("%+v", r)
	}
	if r := read(strings.Repeat(line, 4)); r.stuck {
		t.Errorf("%+v", r)
	}
	if r := read(strings.Repeat(line, 4) + strings.ReplaceAll(line, "execs: 7", "execs: 8")); r.stuck {
		t.Errorf("%+v", r)
	}
	ended := read(line + "--- FAIL: FuzzX (12.08s)\n    context deadline exceeded\nFAIL\n")
	if !timeUp.MatchString(ended.said) || timeUp.MatchString(r.said) {
		t.Errorf("%q, %q", ended.said, r.said)
	}
	if r := read("failure while testing seed corpus entry: FuzzX/45\n"); r.crasher != "FuzzX/45" {
		t.Errorf("%+v", r)
	}
}

func TestSummary(t *testing.T) {
	made := func(name string, execs, rate int) result {
		return result{target: target{pkg: "a", name: name, rate: rate, because: "of fsync."}, execs: execs,
			took: time.Second, cpu: time.Second}
	}
	var out bytes.Buffer
	if !summary(&out, []result{made("FuzzFast", 5000, wanted), made("FuzzKnown", 120, 100),
		made("FuzzSlow", 999, wanted)}) {
		t.Errorf("slow is no failure:\n%s", &out)
	}
	for _, line := range []string{"3 targets, 6119 executions", "as it says: a.FuzzKnown makes 120, because of fsync.",
		"SLOW: a.FuzzSlow makes 999/s", "0 failed, 1 slow"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is not in\n%s", line, &out)
		}
	}
	bad := made("FuzzBad", 1, wanted)
	bad.failed = true
	if summary(&out, []result{bad}) || strings.Contains(out.String(), "a.FuzzFast") {
		t.Errorf("%s", &out)
	}
}

// TestTurn: where there is not the time for all, each run goes on behind the one before.
func TestTurn(t *testing.T) {
	w := &workshop{dir: t.TempDir()}
	all := []target{{pkg: "a", name: "FuzzA"}, {pkg: "a", name: "FuzzB"}, {pkg: "b", name: "FuzzA"}}
	if got, each := w.turn(all, time.Minute); len(got) != 3 || each != 20*time.Second {
		t.Errorf("%v, %v each", got, each)
	}
	var names []string
	for range 4 {
		got, each := w.turn(all, 2*slice)
		if len(got) != 2 || each != slice {
			t.Fatalf("%v, %v each", got, each)
		}
		for _, t := range got {
			names = append(names, t.String())
			w.done(t)
		}
	}
	if want := "a.FuzzA a.FuzzB b.FuzzA a.FuzzA a.FuzzB b.FuzzA a.FuzzA a.FuzzB"; strings.Join(names, " ") != want {
		t.Errorf("%v, want %s", names, want)
	}
	if got, each := w.turn(all, time.Second); len(got) != 1 || each != time.Second {
		t.Errorf("%v, %v each", got, each)
	}
}

// TestFuzz: a target of a module of its own runs, is slow or not, and fails with the file of its input.
func TestFuzz(t *testing.T) {
	testenv.Toolchain(t)
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module github.com/hutch-sh/hutch\n\ngo 1.26\n",
		"p/p_test.go": `package p
import "testing"
func FuzzGood(f *testing.F) { f.Add("a"); f.Fuzz(func(t *testing.T, s string) {}) }
func FuzzBad(f *testing.F) {
	f.Add("a")
	f.Fuzz(func(t *testing.T, s string) { if len(s) > 3 { t.Error("too long") } })
}
`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	targets, err := list(t.Context(), root, regexp.MustCompile(`^p\.`))
	if err != nil || len(targets) != 2 {
		t.Fatalf("%v, %v", targets, err)
	}
	w := &workshop{root: root, dir: filepath.Join(root, ".cache", "fuzz"), parallel: 1}
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	defer w.close()
	bad, err := w.fuzz(t.Context(), targets[0], 20*time.Second)
	if err != nil || !bad.failed || !strings.HasPrefix(bad.why(), "p/testdata/fuzz/FuzzBad/") {
		t.Errorf("%+v, %v", bad, err)
	}
	if _, err := os.Stat(filepath.Join(root, bad.why())); err != nil {
		t.Error(err)
	}
	good, err := w.fuzz(t.Context(), targets[1], time.Second)
	if err != nil || good.failed || good.execs == 0 || good.cpu == 0 {
		t.Errorf("%+v, %v", good, err)
	}
}
