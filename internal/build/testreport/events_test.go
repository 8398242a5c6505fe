package testreport

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

const module = "github.com/hutch-sh/hutch"

// stream writes events as the go command would: one package, then its tests.
func events(es ...event) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, e := range es {
		if e.Package == "" {
			e.Package = module + "/images"
		}
		_ = enc.Encode(e)
	}
	return b.String()
}

func output(test, text string) event { return event{Action: "output", Test: test, Output: text} }

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		name, in, out string
		failed        bool
		outcomes      []Outcome
	}{
		{
			name: "passing tests say nothing",
			in: events(output("TestA", "=== RUN   TestA\n"), output("TestA", "    a_test.go:1: chatter\n"),
				event{Action: "pass", Test: "TestA"},
				output("", "PASS\n"), output("", "ok  \texample\t0.1s\n"), event{Action: "pass"}),
			out:      "ok  \texample\t0.1s\n",
			outcomes: []Outcome{{Name: "images.TestA", Action: "pass"}},
		},
		{
			name: "failing tests say everything",
			in: events(output("TestA", "=== RUN   TestA\n"), output("TestA", "    a_test.go:1: broken\n"),
				output("TestA", "--- FAIL: TestA (0.00s)\n"),
				event{Action: "fail", Test: "TestA"}, output("", "FAIL\n"), output("", "FAIL\texample\t0.1s\n"),
				event{Action: "fail"}),
			out:      "    a_test.go:1: broken\n--- FAIL: TestA (0.00s)\nFAIL\texample\t0.1s\n",
			failed:   true,
			outcomes: []Outcome{{Name: "images.TestA", Action: "fail", Reason: "a_test.go:1: broken"}},
		},
		{
			name: "skips give their reason",
			in: events(output("TestA/sub", "=== RUN   TestA/sub\n"),
				output("TestA/sub", "    a_test.go:12: overlay: no\n"), output("TestA/sub", "        EPERM\n"),
				output("TestA/sub", "--- SKIP: TestA/sub (0.00s)\n"), event{Action: "skip", Test: "TestA/sub"},
				event{Action: "pass"}),
			outcomes: []Outcome{{Name: "images.TestA/sub", Action: "skip", Reason: "overlay: no EPERM"}},
		},
		{
			name: "a panic ends the test that never ended",
			in: events(output("TestA", "=== RUN   TestA\n"), output("TestA", "panic: oh\n"),
				output("", "FAIL\texample\t0.1s\n"),
				event{Action: "fail"}),
			out:      "FAIL\texample\t0.1s\npanic: oh\n",
			failed:   true,
			outcomes: []Outcome{{Name: "images.TestA", Action: "fail"}},
		},
		{
			name: "a wait that ran out is late, with its parent",
			in: events(event{Action: "attr", Test: "TestA/sub", Key: testenv.LateAttr, Value: "true"},
				output("TestA/sub", "    a_test.go:1: not within 20s\n"),
				event{Action: "fail", Test: "TestA/sub"}, event{Action: "fail", Test: "TestA"}, event{Action: "fail"}),
			out:    "    a_test.go:1: not within 20s\n",
			failed: true,
			outcomes: []Outcome{{Name: "images.TestA/sub", Action: "fail", Reason: "a_test.go:1: not within 20s",
				Late: true, Output: "    a_test.go:1: not within 20s\n"},
				{Name: "images.TestA", Action: "fail", Late: true}},
		},
		{
			name: "what is left behind is wrong, late or not",
			in: events(event{Action: "attr", Test: "TestA", Key: testenv.LateAttr, Value: "true"},
				event{Action: "attr", Test: "TestA", Key: testenv.WrongAttr, Value: "true"},
				event{Action: "fail", Test: "TestA"}, event{Action: "fail"}),
			failed:   true,
			outcomes: []Outcome{{Name: "images.TestA", Action: "fail"}},
		},
		{
			name: "a race is never late",
			in: events(event{Action: "attr", Test: "TestA", Key: testenv.LateAttr, Value: "true"},
				output("TestA", "    testing.go:1: race detected during execution of test\n"),
				event{Action: "fail", Test: "TestA"}, event{Action: "fail"}),
			out:    "    testing.go:1: race detected during execution of test\n",
			failed: true,
			outcomes: []Outcome{{Name: "images.TestA", Action: "fail",
				Reason: "testing.go:1: race detected during execution of test"}},
		},
		{
			name: "a parent with words of its own is not late",
			in: events(event{Action: "attr", Test: "TestA/sub", Key: testenv.LateAttr, Value: "true"},
				event{Action: "fail", Test: "TestA/sub"},
				output("TestA", "    a_test.go:1: broken\n"), event{Action: "fail", Test: "TestA"},
				event{Action: "fail"}),
			out:    "    a_test.go:1: broken\n",
			failed: true,
			outcomes: []Outcome{{Name: "images.TestA/sub", Action: "fail", Late: true},
				{Name: "images.TestA", Action: "fail", Reason: "a_test.go:1: broken"}},
		},
		{
			name: "what does not build fails",
			in: events(event{Action: "build-output", Output: "a.go:1: undefined: x\n"},
				event{Action: "build-fail"}),
			out:    "a.go:1: undefined: x\n",
			failed: true,
		},
		{
			name: "the go command's own words pass through",
			in:   "go: no such package\n" + events(event{Action: "pass"}),
			out:  "go: no such package\n",
		},
		{
			name: "folders without tests are noise",
			in:   events(output("", "?   \texample\t[no test files]\n"), event{Action: "skip"}),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := NewReader(&out, module, "")
			if err := r.Read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.out {
				t.Errorf("printed %q, want %q", out.String(), tt.out)
			}
			if r.Failed != tt.failed {
				t.Errorf("failed = %v, want %v", r.Failed, tt.failed)
			}
			if len(r.Outcomes) != len(tt.outcomes) {
				t.Fatalf("outcomes %v, want %v", r.Outcomes, tt.outcomes)
			}
			for i := range tt.outcomes {
				if r.Outcomes[i] != tt.outcomes[i] {
					t.Errorf("outcome %v, want %v", r.Outcomes[i], tt.outcomes[i])
				}
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(events(output("TestA", "=== RUN   TestA\n"), event{Action: "skip", Test: "TestA"}))
	f.Add("{}\nnot json\n{\"Action\":\"fail\"}")
	f.Fuzz(func(t *testing.T, in string) {
		cost.Input(t, in, func(in string) {
			r := NewReader(&strings.Builder{}, module, "root")
			if err := r.Read(strings.NewReader(in)); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestUnmet(t *testing.T) {
	list, err := mustrun.Parse(strings.NewReader("^images\\.TestPull$\n^images\\.TestRange$ subuid\n"))
	if err != nil {
		t.Fatal(err)
	}
	pass := func(name string) Outcome { return Outcome{Name: name, Action: "pass"} }
	for _, tt := range []struct {
		name   string
		root   []Outcome
		subuid []Outcome
		want   []string
	}{
		{"all ran", []Outcome{pass("images.TestPull")}, []Outcome{pass("images.TestPull"), pass("images.TestRange")},
			nil},
		{"skipped", []Outcome{{Name: "images.TestPull", Action: "skip", Reason: "no registry"}},
			[]Outcome{pass("images.TestPull"), pass("images.TestRange")},
			[]string{"TestPull$ as root: images.TestPull was skipped: no registry"}},
		{"gone", []Outcome{pass("images.TestPull")}, []Outcome{pass("images.TestPull")},
			[]string{"TestRange$ as subuid: no such test ran"}},
		{"not in the matrix", []Outcome{pass("images.TestPull")}, []Outcome{pass("images.TestRange")}, nil},
		{"skipped in one case of a table",
			[]Outcome{pass("images.TestPull"), {Name: "images.TestPull/x", Action: "skip", Reason: "y"}},
			[]Outcome{pass("images.TestPull"), pass("images.TestRange")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Report
			r.Add(mustrun.Root, tt.root)
			r.Add(mustrun.SubUID, tt.subuid)
			got := r.Unmet(list)
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tt.want[i]) {
					t.Errorf("got %q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
}

func TestSummary(t *testing.T) {
	var r Report
	r.Add(mustrun.Root, []Outcome{{Name: "a.TestX", Action: "pass"},
		{Name: "a.TestY", Action: "skip", Reason: "no crun"}, {Name: "b.TestZ", Action: "skip", Reason: "no crun"},
		{Name: "b.TestF", Action: "fail", Reason: "b_test.go:1: broken\nb_test.go:2: again"}})
	var out strings.Builder
	r.Summary(&out)
	want := "\nas root: 1 passed, 1 failed, 2 cannot run here\n  FAIL b.TestF\n      b_test.go:1: broken\n      b_test.go:2: again\n  no crun\n      a.TestY\n      b.TestZ\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// TestUnmetOrdinary: what an ordinary user has to run may be run by either of them, and has to be by one.
func TestUnmetOrdinary(t *testing.T) {
	list, err := mustrun.Parse(strings.NewReader("^exec\\.TestKill$ root ordinary\n"))
	if err != nil {
		t.Fatal(err)
	}
	kill, other := []Outcome{{Name: "exec.TestKill", Action: "pass"}},
		[]Outcome{{Name: "exec.TestOther", Action: "pass"}}
	for _, tt := range []struct {
		name                   string
		root, subuid, noSubuid []Outcome
		want                   string
	}{
		{"one of them", kill, other, kill, ""},
		{"the other", kill, kill, other, ""},
		{"neither", kill, other, other, "as ordinary: no such test ran"},
		{"not root", other, kill, kill, "as root: no such test ran"},
		{"skipped", kill, other, []Outcome{{Name: "exec.TestKill", Action: "skip", Reason: "x"}},
			"as no-subuid: exec.TestKill was skipped: x"},
	} {
		var r Report
		r.Add(mustrun.Root, tt.root)
		r.Add(mustrun.SubUID, tt.subuid)
		r.Add(mustrun.NoSubUID, tt.noSubuid)
		if got := strings.Join(r.Unmet(list), "; "); !strings.HasSuffix(got, tt.want) ||
			(got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
