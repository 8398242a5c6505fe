package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestInFlags: an error names the flag that was typed, as it was; a field that was not given by a flag, from a template
// say, keeps its name, and so do words that are no fields.
func TestInFlags(t *testing.T) {
	for _, tt := range []struct {
		args, field, text, hint string
		want, wantHint          string
	}{
		{"-m 1 host", "limits.memory_bytes", "limits.memory_bytes: 1 is too small", "use more", "-m: 1 is too small",
			"use more"},
		{"--memory=1 host", "limits.memory_bytes", "limits.memory_bytes: 1 is too small", "",
			"--memory: 1 is too small", ""},
		{"host -- x -m", "limits.memory_bytes", "limits.memory_bytes: 1 is too small", "",
			"limits.memory_bytes: 1 is too small", ""},
		{"-m 1m --memory-high 2m host", "limits.memory_high_bytes",
			"limits.memory_high_bytes: 2 is above memory_bytes, 1", "", "--memory-high: 2 is above -m, 1", ""},
		{"--pids-limit 1 host", "", "start: no process", "end some, or raise limits.pids", "start: no process",
			"end some, or raise --pids-limit"},
		{"host", "limits.pids", "limits.pids: 0", "allow more: limits.pids", "limits.pids: 0",
			"allow more: --pids-limit"},
		{"--ulimit nofile=9 host", "limits.rlimits.nofile", "limits.rlimits.nofile: above the limit", "",
			"--ulimit nofile: above the limit", ""},
		{"-v /a:/b host", "mounts[1].target", "mounts[1].target: /x is mounted twice", "",
			"-v: /x is mounted twice", ""},
		{"--mount type=bind,src=/a,dst=/b host", "mounts[0].target", "mounts[0].target: /proc is hutch's own", "",
			"--mount: /proc is hutch's own", ""},
		{"--name x host", "name", "name: x is no name", "its name", "--name: x is no name", "its name"},
		{"-u x host", "user", "user: no user x; the user is there", "", "-u: no user x; the user is there", ""},
		{"--timeout 9 host", "limits.timeout_s", "limits.timeout_s: 9 is too much",
			"or raise exec.max_timeout_s or exec.timeout_s",
			"--timeout: 9 is too much", "or raise exec.max_timeout_s or exec.timeout_s"},
		{"--cpus 3 host", "limits.cpus", "limits.cpus cannot be enforced", "allow limits.best_effort (--best-effort)",
			"--cpus cannot be enforced", "allow --best-effort"},
		{"--seccomp strict host", "seccomp_profile", "seccomp_profile: line 3: no", "", "--seccomp: line 3: no", ""},
	} {
		cmd := newRun()
		args := strings.Fields(tt.args)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		err := inFlags(cmd, args, &cli.Exit{Code: 7, Err: api.Errorf(api.InvalidArgument, "%s", tt.text).
			WithField(tt.field).WithHint("%s", tt.hint)})
		var known *api.Error
		if !errors.As(err, &known) || err.Error() != tt.want || known.Hint != tt.wantHint || cli.ExitCode(err) != 7 {
			t.Errorf("%s: %q, %q; want %q, %q", tt.args, err, known.Hint, tt.want, tt.wantHint)
		}
	}
	plain := errors.New("limits.pids")
	if err := inFlags(&cobra.Command{}, nil, plain); err != plain {
		t.Error(err)
	}
	if inFlags(nil, nil, nil) != nil {
		t.Error("an error out of nothing")
	}
}
