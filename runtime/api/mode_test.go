package api

import (
	"strings"
	"testing"
)

func TestDecideValidate(t *testing.T) {
	for _, tt := range []struct {
		field string // "" is good
		p     DecideParams
	}{
		{"", DecideParams{Argv: []string{"ls"}}},
		{"", DecideParams{Command: "ls", Mode: ExecModeOff, TimeoutS: new(float64)}},
		{"", DecideParams{Language: "python", Code: "1", Mode: ExecModeSelective}},
		{"mode", DecideParams{Argv: []string{"ls"}, Mode: "OFF"}},
		{"argv", DecideParams{}},
		{"argv", DecideParams{Argv: []string{"ls"}, Command: "ls"}},
		{"argv", DecideParams{Command: "ls", Language: "shell", Code: "ls"}},
		{"argv", DecideParams{Argv: []string{"l\x00s"}}},
		{"argv", DecideParams{Argv: make([]string, MaxDecideArgs+1)}},
		{"argv", DecideParams{Command: strings.Repeat("x", MaxCodeBytes+1)}},
		{"timeout_s", DecideParams{Argv: []string{"ls"}, TimeoutS: new(-1.0)}},
		{"language", DecideParams{Language: "cobol", Code: "1"}},
		{"code", DecideParams{Language: "python"}},
	} {
		err := tt.p.Validate()
		if tt.field == "" && err != nil {
			t.Errorf("%+v: %v", tt.p, err)
		} else if tt.field != "" {
			refused(t, err, InvalidArgument, tt.field)
		}
	}
	for field, p := range map[string]HostEndParams{
		"id": {}, "exit_code": {ID: "hx_1", ExitCode: 256}, "signal": {ID: "hx_1", Signal: "\x1b[2J"},
		"duration_ms": {ID: "hx_1", DurationMS: -1},
		"error":       {ID: "hx_1", Error: strings.Repeat("x", 4097)},
	} {
		refused(t, p.Validate(), InvalidArgument, field)
	}
	if p := (HostEndParams{ID: "hx_1", ExitCode: 162, Signal: "SIGRTMIN+3"}); p.Validate() != nil {
		t.Error(p.Validate())
	}
}

func TestWeaker(t *testing.T) {
	for i, a := range ExecModes {
		for j, b := range ExecModes {
			if a.Weaker(b) != (i > j) {
				t.Errorf("%s weaker than %s", a, b)
			}
		}
	}
}
