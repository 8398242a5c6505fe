package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		name string
		res  api.ExecResult
		code int
		says string // "": nothing on stderr
	}{
		{"ok", api.ExecResult{Verdict: api.VerdictOK}, 0, ""},
		{"nonzero", api.ExecResult{Verdict: api.VerdictNonzero, ExitCode: 3}, 3, ""},
		{"125 of the command's own", api.ExecResult{Verdict: api.VerdictNonzero, ExitCode: 125}, 125, ""},
		{"signal", api.ExecResult{Verdict: api.VerdictSignal, ExitCode: 143, Signal: "SIGTERM"}, 143, ""},
		{"timeout", api.ExecResult{Verdict: api.VerdictTimeoutWall, ExitCode: 137, TimedOut: true, DurationMS: 5012},
			124, "timeout, after 5s"},
		{"not found", api.ExecResult{Verdict: api.VerdictNotRun, ExitCode: 127, Error: "no such command: x"}, 127,
			"no such command"},
		{"not executable", api.ExecResult{Verdict: api.VerdictNotRun, ExitCode: 126, Error: "x is a folder"}, 126,
			"folder"},
		{"bad user", api.ExecResult{Verdict: api.VerdictNotRun, ExitCode: 125, Error: "no user x"}, 125, "no user"},
		{"not run without a code", api.ExecResult{Verdict: api.VerdictNotRun, Error: "fork"}, 125, "fork"},
		{"out of memory", api.ExecResult{Verdict: api.VerdictOOM, ExitCode: 137}, 137, "out of memory"},
		{"CPU time", api.ExecResult{Verdict: api.VerdictTimeoutCPU, TimedOut: true, Peaks: api.Peaks{CPUMS: 5012}}, 124,
			"CPU time, 5s"},
		{"processes", api.ExecResult{Verdict: api.VerdictPIDs, ExitCode: 2}, 2, "--pids-limit"},
		{"output", api.ExecResult{Verdict: api.VerdictOutput, ExitCode: 137}, 137, "--output-limit"},
		{"disk", api.ExecResult{Verdict: api.VerdictDisk, ExitCode: 153}, 153, "--ulimit fsize"},
		{"denied", api.ExecResult{Verdict: api.VerdictDenied, ExitCode: 159}, 159, "as another architecture does"},
		{"denied by the caller's profile", api.ExecResult{Verdict: api.VerdictDenied, ExitCode: 159, Hint: "x"}, 159,
			"killed by a seccomp filter (SIGSYS)\n"},
		{"sandbox ended", api.ExecResult{Verdict: api.VerdictSandbox}, 125, "ended before"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Outcome(&tt.res)
			if got := ExitCode(err); got != tt.code {
				t.Errorf("exit code %d, want %d", got, tt.code)
			}
			var out bytes.Buffer
			if err != nil {
				PrintError(&out, Style{}, err)
			}
			if tt.says == "" && out.Len() > 0 || !strings.Contains(out.String(), tt.says) {
				t.Errorf("it says %q, want %q", out.String(), tt.says)
			}
		})
	}
}

func TestExitCodeOfErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{errors.New("x"), 125},
		{api.Errorf(api.Unavailable, "x"), 125},
		{&Exit{Code: 1}, 1},
		{fmt.Errorf("wrapped: %w", &Exit{Code: 130}), 130},
		{errors.Join(&Exit{Code: 3}, errors.New("close")), 3},
	} {
		if got := ExitCode(tt.err); got != tt.code {
			t.Errorf("ExitCode(%v) = %d, want %d", tt.err, got, tt.code)
		}
	}
}

func TestPrintError(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&Exit{Code: 3}, ""},
		{errors.New("a\nb"), "hutch: a; b\n"},
		{api.Errorf(api.NotFound, "no image %q", "x").WithOp("pull").WithHint("hutch image ls"),
			"hutch: pull: no image \"x\"\n  try: hutch image ls\n"},
		{fmt.Errorf("outer: %w", api.Errorf(api.NotFound, "inner").WithHint("one\ntwo")),
			"hutch: outer: inner\n  try: one\n       two\n"},
		{errors.New("esc \x1b[31m \u009b bell\a"), "hutch: esc ?[31m ? bell?\n"},
		{Usage("hutch run", errors.New("unknown flag: --x")),
			"hutch: run: unknown flag: --x\n  try: hutch run --help\n"},
	} {
		var out bytes.Buffer
		PrintError(&out, Style{}, tt.err)
		if out.String() != tt.want {
			t.Errorf("PrintError(%v) writes %q, want %q", tt.err, out.String(), tt.want)
		}
	}
}
