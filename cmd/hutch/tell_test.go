package main

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestTellDenials: three lines at most, the most frequent first, each with the flag; nothing behind a command that did
// what it should.
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
	out.Reset()
	res.ExitCode = 0
	if tellDenials(&out, res, "sb_1"); out.Len() > 0 {
		t.Errorf("of a command that did what it should: %s", out.String())
	}
}
