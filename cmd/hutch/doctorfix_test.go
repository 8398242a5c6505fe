package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
)

// TestFix: every command is shown before it runs, and only a yes runs it.
func TestFix(t *testing.T) {
	checks := []probe.Check{
		{Name: "user_namespaces", Status: probe.No, Remedy: "docker run it", Detail: "advice"},
		{Name: "subordinate_ids", Status: probe.No, Remedy: "add ids", Fixable: true},
		{Name: "cgroups", Status: probe.No, Remedy: "make a folder\nwrite a file", Fixable: true},
		{Name: "exec_cgroups", Status: probe.No, Remedy: "make a folder\nwrite a file", Fixable: true},
	}
	for _, tt := range []struct {
		name, answers string
		yes           bool
		checks        []probe.Check
		command       string // that runs in place of each
		ran           []string
		says          []string
		fails         bool
	}{
		{name: "all by --yes", yes: true, checks: checks, command: "true",
			ran:  []string{"add ids", "make a folder\nwrite a file"},
			says: []string{"subordinate ids:", "    add ids\n", "    make a folder\n    write a file\n"}},
		{name: "one by one", answers: "no\ny\n", checks: checks, command: "true",
			ran: []string{"make a folder\nwrite a file"}},
		{name: "return is no", answers: "\n\n", checks: checks, command: "true"},
		{name: "no answer", answers: "", checks: checks, command: "true", fails: true},
		{name: "ends at a failure", yes: true, checks: checks, command: "false", ran: []string{"add ids"}, fails: true},
		{name: "nothing to fix", yes: true, checks: checks[:1], command: "true",
			says: []string{"nothing that a command could fix"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			var ran []string
			f := fixer{in: strings.NewReader(tt.answers), out: &out, yes: tt.yes,
				command: func(script string) *exec.Cmd {
					if !strings.Contains(out.String(), strings.Split(script, "\n")[0]) {
						t.Errorf("%q runs before it was shown", script)
					}
					ran = append(ran, script)
					return exec.Command(tt.command)
				}}
			did, err := f.fixChecks(t.Context(), tt.checks)
			if (err != nil) != tt.fails {
				t.Errorf("error %v", err)
			}
			if strings.Join(ran, "|") != strings.Join(tt.ran, "|") || did != (tt.ran != nil) {
				t.Errorf("ran %q, want %q", ran, tt.ran)
			}
			for _, text := range tt.says {
				if !strings.Contains(out.String(), text) {
					t.Errorf("does not say %q:\n%s", text, out.String())
				}
			}
			if strings.Contains(out.String(), "docker run it") {
				t.Errorf("offers advice as a command:\n%s", out.String())
			}
		})
	}
}
