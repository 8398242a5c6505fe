package main

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestTellDenials: three lines at most, the most frequent first, each with the flag. Behind a command that ended well
// one line, of a system call where one was refused; nothing where only connections have failed, or probes were refused.
func TestTellDenials(t *testing.T) {
	res := &api.ExecResult{ExitCode: 1}
	for _, name := range []string{"once.test", "thrice.test", "never-mind.test"} {
		res.Denials = append(res.Denials, api.Denial{Kind: api.KindNet, Target: name, Why: "the sandbox has no network",
			HowToAllow: "--allow " + name, Count: 1})
	}
	res.Denials[1].Count = 3
	res.Failures = []api.Failure{{Target: "down.test:443", Why: "nothing listens", Hint: "start it", Count: 2}}
	var out strings.Builder
	tellDenials(&out, res, "sb_1")
	want := `hutch: network: thrice.test was refused: the sandbox has no network (--allow thrice.test)
hutch: network: down.test:443 failed: nothing listens (start it)
hutch: network: once.test was refused: the sandbox has no network (--allow once.test)
hutch: refused: 1 more: hutch why sb_1
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	res.ExitCode = 0
	for _, c := range []struct {
		want   string
		change func()
	}{
		{"hutch: network: thrice.test was refused: the sandbox has no network (--allow thrice.test); " +
			"2 more: hutch why sb_1\n", func() {}},
		{"hutch: system call: clone was refused: turn it off; 3 more: hutch why sb_1\n", func() {
			res.Denials = append(res.Denials,
				api.Denial{Kind: api.KindSyscall, Target: "clone", Why: "turn it off", Count: 1})
		}},
		{"hutch: system call: clone was refused: turn it off\n", func() { res.Denials = res.Denials[3:] }},
		{"", func() { res.Denials[0].Probe = true }},
		{"", func() { res.Denials = nil }},
	} {
		c.change()
		out.Reset()
		if tellDenials(&out, res, "sb_1"); out.String() != c.want {
			t.Errorf("of a command that ended well: %q, want %q", out.String(), c.want)
		}
	}
}
