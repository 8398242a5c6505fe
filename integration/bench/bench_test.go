package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fixed is a subject whose runs take the times given, in turn, and which fails
// at the run numbered failAt (from 0).
func fixed(name string, failAt int, log *[]string, times ...time.Duration) *entry {
	n := -1
	return &entry{subject: Subject{Name: name},
		prepared: &Prepared{Command: name, Run: func(context.Context) (Sample, error) {
			n++
			*log = append(*log, name)
			if n == failAt {
				return Sample{}, errors.New("wrong answer")
			}
			return Sample{Wall: times[n%len(times)]}, nil
		}}}
}

func TestMeasure(t *testing.T) {
	var log []string
	a := fixed("a", -1, &log, time.Millisecond)
	b := fixed("b", -1, &log, 2*time.Millisecond)
	c := fixed("c", 3, &log, time.Millisecond)
	absent := &entry{subject: Subject{Name: "absent"}, unavailable: &Unavailable{MissingTool, "no such tool", ""}}
	entries := []*entry{a, b, c, absent}
	counted, err := measure(t.Context(), entries, plan{warmup: 2, rounds: 4, until: time.Now().Add(time.Hour)})
	if counted != 4 || err != nil {
		t.Fatalf("counted %d, %v", counted, err)
	}
	if len(a.samples) != 4 || len(b.samples) != 4 {
		t.Errorf("%d and %d samples, want 4: warm-up does not count", len(a.samples), len(b.samples))
	}
	for round := range 3 {
		part := slices.Sorted(slices.Values(log[3*round : 3*round+3]))
		if !slices.Equal(part, []string{"a", "b", "c"}) {
			t.Errorf("round %d ran %v, want each subject once", round, part)
		}
	}
	if got := strings.Count(strings.Join(log, ""), "c"); got != 4 || c.err == nil {
		t.Errorf("c ran %d times (%v), want none after its failure in the fourth round", got, c.err)
	}

	got := results(entries, "a")
	if r := got[1].Ratio; r == nil || r.Median != 2 {
		t.Errorf("ratio of b to a: %+v, want 2", r)
	}
	if got[2].Wall != nil || !strings.Contains(got[2].Error, "round 3: wrong answer") {
		t.Errorf("c: %+v, want its error and no times", got[2])
	}
	if got[3].Unavailable == nil || got[3].Error != "" {
		t.Errorf("absent: %+v, want a reason and no error", got[3])
	}
	if r := (&Report{Results: got}); !r.failed() {
		t.Error("a wrong result must fail the report")
	}
	if r := (&Report{Results: got[3:]}); r.failed() {
		t.Error("what this machine cannot run must not fail the report")
	}
}

func TestMeasureStopsInTime(t *testing.T) {
	var log []string
	a := fixed("a", -1, &log, time.Millisecond)
	counted, err := measure(t.Context(), []*entry{a}, plan{warmup: 1, rounds: 50, until: time.Now().Add(-time.Second)})
	// One round counts however late it is, so that there is something to report.
	if counted != 1 || err != nil {
		t.Errorf("counted %d, %v; want 1", counted, err)
	}
}

func TestMeasureInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	e := &entry{prepared: &Prepared{Run: func(context.Context) (Sample, error) {
		cancel(stop)
		return Sample{}, nil
	}}}
	if _, err := measure(ctx, []*entry{e}, plan{rounds: 5, until: time.Now().Add(time.Hour)}); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause of the interruption", err)
	}
}

func TestReport(t *testing.T) {
	var log []string
	a := fixed("a", -1, &log, 4*time.Millisecond)
	b := fixed("b", -1, &log, 6*time.Millisecond)
	bad := fixed("bad", 0, &log)
	absent := &entry{subject: Subject{Name: "absent"}, unavailable: &Unavailable{MissingTool, "tool is not in PATH",
		"install it"}}
	entries := []*entry{a, b, bad, absent}
	if _, err := measure(t.Context(), entries, plan{rounds: 3, until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	r := &Report{Machine: thisMachine(), Rounds: 3, Baseline: "a", Results: results(entries, "a")}
	text := r.String()
	for _, want := range []string{
		`(?m)^ +6\.00 +6\.00 +6\.00 +6\.00 +0\.00 +1\.50 +1\.50-1\.50 +b$`,
		`(?m)^  absent: tool is not in PATH; install it \(missing_tool\)$`,
		`(?m)^  bad: round 0: wrong answer$`,
		`Linux \d.*cores`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	data, err := r.json()
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back.Results[1].Ratio.Median != 1.5 || len(back.Results[1].Walls) != 3 ||
		back.Results[3].Unavailable.Reason != MissingTool {
		t.Errorf("lost on the way through JSON: %s", data)
	}
}

func TestChoose(t *testing.T) {
	names := func(list []Subject) (out []string) {
		for _, s := range list {
			out = append(out, s.Name)
		}
		return out
	}
	for _, tc := range []struct {
		pattern, baseline string
		want              []string // nil: an error
	}{
		{"^runc$", "bwrap", []string{"bwrap", "runc"}},
		{"^floor$", "floor", []string{"floor"}},
		{"nothing", "bwrap", nil},
		{"", "nothing", nil},
	} {
		got, err := choose(options{run: regexp.MustCompile(tc.pattern), baseline: tc.baseline})
		if !slices.Equal(names(got), tc.want) || (err == nil) != (tc.want != nil) {
			t.Errorf("-run %q -baseline %q: %v, %v; want %v", tc.pattern, tc.baseline, names(got), err, tc.want)
		}
	}
}

// TestNamed: what takes long runs only when it is asked for.
func TestNamed(t *testing.T) {
	for pattern, want := range map[string]bool{"": false, "-down$": true} {
		got, err := choose(options{run: regexp.MustCompile(pattern), baseline: "bwrap"})
		if err != nil || slices.ContainsFunc(got, func(s Subject) bool { return s.Named }) != want {
			t.Errorf("-run %q: %d subjects, %v; want such that take long: %v", pattern, len(got), err, want)
		}
	}
}

func TestSubjectNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range subjects() {
		if seen[s.Name] || s.About == "" || s.Setup == nil {
			t.Errorf("subject %q: twice, or without About or Setup", s.Name)
		}
		seen[s.Name] = true
	}
}

// testHost is a Host that is closed, and must then have left nothing.
func testHost(t *testing.T) *Host {
	t.Helper()
	h, err := newHost("", -1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(h.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", h.dir, err)
		}
	})
	return h
}

func TestProcess(t *testing.T) {
	h := testHost(t)
	good, err := h.newProcess([]string{"WORD=here"}, "sh", "-c", `test "$WORD" = here && test -z "$USER"`)
	if err != nil {
		t.Fatal(err)
	}
	s, err := good.run(t.Context())
	if err != nil || s.Wall <= 0 || s.User+s.Sys <= 0 || s.User+s.Sys > 2*s.Wall {
		t.Errorf("sample %+v, %v", s, err)
	}
	bad, err := h.newProcess(nil, "sh", "-c", "echo why >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := bad.run(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: why") {
			t.Errorf("got %v, want the status and what it said on stderr, once", err)
		}
	}
	if _, err := h.newProcess(nil, "no-such-program-here"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// TestLeftBehind: a process that outlives its parent is adopted, killed and told.
func TestLeftBehind(t *testing.T) {
	h, err := newHost("", -1)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := h.output(t.Context(), nil, "sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := reapAll(ctx); err == nil || !strings.Contains(err.Error(), pid+" (s") {
		t.Errorf("got %v, want process %s by name", err, pid)
	}
	if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process %s is still there", pid)
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
}

func TestParseStat(t *testing.T) {
	for _, tc := range []struct {
		line, comm, state string
		ppid              int
		ok                bool
	}{
		{"12 (sh) S 1 12 12 0", "sh", "S", 1, true},
		{"12 (a) Z (b)) R 77 1", "a) Z (b)", "R", 77, true},
		{"12 () S 5 1", "", "S", 5, true},
		{"", "", "", 0, false},
		{"12 (sh", "", "", 0, false},
		{"12 )sh( S 1", "", "", 0, false},
		{"12 (sh) S", "", "", 0, false},
	} {
		comm, state, ppid, ok := parseStat(tc.line)
		if ok != tc.ok || ok && (comm != tc.comm || state != tc.state || ppid != tc.ppid) {
			t.Errorf("%q: %q %q %d %v", tc.line, comm, state, ppid, ok)
		}
	}
}

func TestShellLine(t *testing.T) {
	for _, argv := range [][]string{
		{"true"}, {"a b", ""}, {"it's", `$HOME \ "x"`, "a\nb"}, {"--x=1,2", "%@+:/._-"}, {"*", "~", "#"},
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+shellLine(argv)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, argv) {
			t.Errorf("%q became %q by way of %s", argv, got, shellLine(argv))
		}
	}
}
