package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestRead: what a guest prints, whole and cut short.
func TestRead(t *testing.T) {
	const pass = "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16PASS\n"
	for _, tt := range []struct {
		name, in string
		ended    int
		outcomes []testreport.Outcome
		failed   bool
		says     string
	}{
		{name: "nothing", in: ""},
		{name: "a package", in: beginMark + "cgroups\r\n" + pass + endMark + "0\r\n", ended: 1,
			outcomes: []testreport.Outcome{{Name: "cgroups.TestA", Action: "pass"}},
			says:     "ok  \tgithub.com/hutch-sh/hutch/cgroups\t(vm-x)"},
		{name: "the mark behind an unended line", in: beginMark + "cgroups\n" + pass + "last words" + endMark + "0\n",
			ended:    1,
			outcomes: []testreport.Outcome{{Name: "cgroups.TestA", Action: "pass"}}},
		{name: "failed", in: beginMark + "cgroups\n\x16=== RUN   TestA\n\x16--- FAIL: TestA (0.00s)\n\x16FAIL\n" +
			endMark + "1\n", ended: 1,
			outcomes: []testreport.Outcome{{Name: "cgroups.TestA", Action: "fail"}}, failed: true,
			says: "exit status 1"},
		{name: "went off", in: beginMark + "cgroups\n\x16=== RUN   TestA\n",
			outcomes: []testreport.Outcome{{Name: "cgroups.TestA", Action: "fail"}}, failed: true},
		{name: "no test", in: "Kernel panic\n", says: "Kernel panic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := testreport.NewReader(&out, module, "vm-x")
			ended, err := read(strings.NewReader(tt.in), r, &out, "vm-x")
			if err != nil || ended != tt.ended || r.Failed != tt.failed {
				t.Errorf("%d ended, failed %v (%v)", ended, r.Failed, err)
			}
			if len(r.Outcomes) != len(tt.outcomes) || len(r.Outcomes) > 0 && r.Outcomes[0] != tt.outcomes[0] {
				t.Errorf("outcomes %v, want %v", r.Outcomes, tt.outcomes)
			}
			if !strings.Contains(out.String(), tt.says) {
				t.Errorf("printed %q, want %q", out.String(), tt.says)
			}
		})
	}
}

// TestMatrix: every case has a name of its own, and the list of tests that must run
// names no other.
func TestMatrix(t *testing.T) {
	known := map[mustrun.Kind]bool{}
	for _, c := range matrix {
		if kind := mustrun.Kind(mustrun.VM + c.name); known[kind] {
			t.Errorf("two cases %s", c.name)
		} else {
			known[kind] = true
		}
	}
	list, err := mustrun.ReadFile("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range list {
		for _, kind := range rule.Kinds {
			if strings.HasPrefix(string(kind), mustrun.VM) && !known[kind] {
				t.Errorf("%s is for %s, which is no case", rule.Tests, kind)
			}
		}
	}
}

// TestKernel: of a series the last release, of all the newest.
func TestKernel(t *testing.T) {
	testenv.Axes(t, testenv.EBPF)
	p := parts{t.TempDir()}
	for _, name := range []string{
		"boot/vmlinuz-6.1.0-50-cloud-amd64", "boot/vmlinuz-6.12.9+deb13-cloud-amd64",
		"boot/vmlinuz-6.12.107+deb13-cloud-amd64",
		"usr/lib/modules/7.3.4+deb13-cloud-amd64/vmlinuz",
	} {
		path := filepath.Join(p.kernels(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for series, want := range map[string]string{"6.1": "6.1.0-50", "6.12": "6.12.107", newest: "7.3.4"} {
		if got, err := p.kernel(series); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s, %v; want %s", series, got, err, want)
		}
	}
	if got, err := p.kernel("5.15"); err == nil {
		t.Errorf("5.15: %s", got)
	}
}
