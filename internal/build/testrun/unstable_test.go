package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/build/testtree"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestMain is, in the build of a test, what testrun is then: the keeper of test binaries.
func TestMain(m *testing.M) {
	testtree.Keep()
	os.Exit(m.Run())
}

// TestUnstable runs tests that fail when they are told to: what failed decides whether they run again.
func TestUnstable(t *testing.T) {
	const pkg = "internal/build/testrun/testdata/flaky"
	testenv.Toolchain(t)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	tests, err := testplan.ReadTests(filepath.Join(root, pkg))
	if err != nil {
		t.Fatal(err)
	}
	for i := range tests {
		tests[i].Pkg = pkg
	}
	built := t.TempDir()
	o := options{packages: []string{"./" + pkg}, timeout: time.Minute, parallel: 1, jobs: 1}
	folders, ok, err := build(t.Context(), os.Stderr, root, built, o)
	if err != nil || !ok {
		t.Fatalf("build: %v, %v", ok, err)
	}
	for _, tt := range []struct {
		name  string
		runs  map[string]string // how the runs of a test end: F fails
		known string            // .ci/unstable
		ok    bool
		said  []string
	}{
		{"all pass", nil, "", true, []string{"5 passed, 0 failed, 0 cannot run here"}},
		{"one time in two", map[string]string{"TestLate": "F.F."}, "", false,
			[]string{"FAIL: x.TestLate failed again"}},
		{"once", map[string]string{"TestLate": "F..."}, "", true,
			[]string{"UNSTABLE x.TestLate as", "the wait of run", "after 1ns: the wait", "again 1 of 3, beside",
				"again 3 of 3", "1 unstable"}},
		{"two tests, once each", map[string]string{"TestLate": "F...", "TestLateToo": "F..."}, "", true,
			[]string{"UNSTABLE x.TestLate as", "UNSTABLE x.TestLateToo as"}},
		{"unstable before", map[string]string{"TestLate": "F..."}, "x.TestLate 2026-11-27, on a busy machine\n", false,
			[]string{"FAIL: x.TestLate is unstable again; .ci/unstable says: 2026-11-27, on a busy machine"}},
		{"a leak, once", map[string]string{"TestLeak": "F"}, "", false,
			[]string{"FAIL x.TestLeak", "left behind: process 1"}},
		{"a leak that no test knows", map[string]string{"leak": "F"}, "", false, []string{"FAIL x.exit status 1"}},
		{"an assertion, once", map[string]string{"TestWrong": "F"}, "", false,
			[]string{"FAIL x.TestWrong", "one is not two"}},
		{"a panic, once", map[string]string{"TestPanic": "F"}, "", false, []string{"FAIL x.TestPanic", "panic: oh"}},
		{"a wait and an assertion", map[string]string{"TestLate": "F", "TestWrong": "F"}, "", false,
			[]string{"FAIL x.TestWrong"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, runs := range tt.runs {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(runs), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("HUTCH_FLAKY", dir)
			memory, err := testplan.ParseMemory(strings.NewReader(strings.ReplaceAll(tt.known, "x.", pkg+".")))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			r := runner{out: &out, root: root, dir: built, o: o, plan: testplan.Plan{Tests: tests, Unstable: memory}}
			ok, _, err := r.execute(t.Context(), folders)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.ReplaceAll(out.String(), pkg+".", "x.")
			if ok != tt.ok {
				t.Errorf("ok is %v, want %v", ok, tt.ok)
			}
			for _, want := range tt.said {
				if !strings.Contains(said, want) {
					t.Errorf("does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}
