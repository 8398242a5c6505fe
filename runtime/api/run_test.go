package api

import (
	"errors"
	"slices"
	"testing"
)

func TestRunParams(t *testing.T) {
	none, sh := "", "/bin/sh"
	spec := &Spec{Image: "host"}
	exec := ExecParams{Argv: []string{"true"}}
	for _, tt := range []struct {
		field  string // at fault; "" for none
		params RunParams
	}{
		{"", RunParams{Sandbox: spec, Exec: exec}},
		{"", RunParams{Sandbox: spec}}, // the image's own command
		{"", RunParams{Sandbox: spec, Exec: ExecParams{Command: "true"}}},
		{"", RunParams{Acquire: &AcquireParams{Pool: "p"}, Exec: exec, Entrypoint: &sh}},
		{"", RunParams{Sandbox: spec, Exec: exec, Progress: true, ProgressGate: new(int)}},
		{"progress_gate", RunParams{Sandbox: spec, Exec: exec, ProgressGate: new(int)}},
		{"sandbox", RunParams{Exec: exec}},
		{"acquire", RunParams{Sandbox: spec, Acquire: &AcquireParams{Pool: "p"}, Exec: exec}},
		{"exec.sandbox", RunParams{Sandbox: spec, Exec: ExecParams{Sandbox: "box"}}},
		{"exec.background", RunParams{Sandbox: spec, Exec: ExecParams{Background: true}}},
		{"exec", RunParams{Sandbox: spec, Exec: ExecParams{FDs: 1}}},
		{"exec", RunParams{Sandbox: spec, Exec: ExecParams{Progress: true}}},
		{"entrypoint", RunParams{Sandbox: spec, Exec: ExecParams{Command: "true"}, Entrypoint: &none}},
		{"sandbox.scope", RunParams{Sandbox: &Spec{Image: "host", Scope: &Scope{Kind: "agent", Key: "k"}}, Exec: exec}},
		{"sandbox.owner", RunParams{Sandbox: &Spec{Image: "host", Owner: OwnerConnection}, Exec: exec}},
		{"acquire.owner", RunParams{Acquire: &AcquireParams{Pool: "p", Owner: OwnerConnection}, Exec: exec}},
	} {
		err := tt.params.Validate()
		var e *Error
		if errors.As(err, &e); tt.field == "" && err != nil || tt.field != "" &&
			(e == nil || e.Field != tt.field || e.Code != InvalidArgument || e.Hint == "") {
			t.Errorf("%+v: %v, want field %q", tt.params, err, tt.field)
		}
	}
	bad := RunParams{Sandbox: spec, Exec: ExecParams{Argv: []string{"a\x00b"}}}
	if err := bad.Validate(); ErrorCode(err) != InvalidArgument {
		t.Errorf("%v", err)
	}
}

func TestArgv(t *testing.T) {
	none, sh := "", "/bin/sh"
	sb := &Sandbox{Entry: []string{"entry"}, Command: []string{"entry", "cmd"}}
	for _, tt := range []struct {
		entrypoint *string
		args, want []string
	}{
		{nil, nil, []string{"entry", "cmd"}},
		{nil, []string{"a"}, []string{"entry", "a"}},
		{&sh, nil, []string{"/bin/sh"}},
		{&sh, []string{"a"}, []string{"/bin/sh", "a"}},
		{&none, []string{"a"}, []string{"a"}},
		{&none, nil, nil},
	} {
		if got := sb.Argv(tt.entrypoint, tt.args); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt, got, tt.want)
		}
	}
}
