package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestScan: code is parsed in a process of its own. What the parser cannot take is risky, and the daemon goes on.
func TestScan(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	for _, tt := range []struct {
		language, code, rule string
		risky                bool
	}{
		{"python", "import json\nprint(json.dumps(1))", "", false},
		{"python", "import os as x\nx.system('id')", "python.command", true},
		{"python", "getattr(__builtins__, 'ev' + 'al')('1')", "python.eval", true},
		{"javascript", "globalThis['ev' + 'al']('1')", "javascript.eval", true},
		{"shell", "echo aWQ= | base64 -d | sh", "shell.pipe_interpreter", true},
		{"shell", "echo hello", "", false},
		{"python", "def f(", "python.syntax", true},
		{"python", strings.Repeat("(", 100_000), "", true},
		{"javascript", strings.Repeat("[", api.MaxCodeBytes), "", true},
		{"shell", strings.Repeat("$(", api.MaxCodeBytes/2), "", true}, // overflows its stack
		{"shell", strings.Repeat("a", 1000), "shell.command_unknown", true},
	} {
		res, err := c.ScanCode(t.Context(), api.ScanParams{Language: tt.language, Code: tt.code})
		if err != nil {
			t.Fatalf("%s: %.40q: %v", tt.language, tt.code, err)
		}
		found := tt.rule == ""
		for _, f := range res.Findings {
			found = found || f.Rule == tt.rule
		}
		if res.Risky != tt.risky || !found {
			t.Errorf("%s: %.40q: %+v, want %s", tt.language, tt.code, res, tt.rule)
		}
	}
	for _, p := range []api.ScanParams{{Language: "cobol", Code: "x"}, {Language: "python"},
		{Language: "shell", Code: "ls", AllowedImports: []string{"x"}}} {
		if _, err := c.ScanCode(t.Context(), p); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%+v: %v", p, err)
		}
	}
	r := w.Feed(t, "import json\nfrom urllib import request\n", "scan", "--language", "python", "--allow", "json",
		"--json", "-")
	var res api.ScanResult
	if err := json.Unmarshal([]byte(r.Want(t, 1).Stdout), &res); err != nil || len(res.Imports) != 2 ||
		res.Imports[1].Allowed || res.Imports[1].Line != 2 {
		t.Errorf("%+v: %v", res, err)
	}
	if out := w.OK(t, "scan", "--rules"); !strings.Contains(out, "shell.delete") ||
		!strings.Contains(out, "deletes files") || !strings.Contains(out, "harmless in shell: ") {
		t.Errorf("%q", out)
	}
	w.Run(t, "scan").Want(t, 125)
	if r = w.Feed(t, "#!/bin/sh\necho hi\n", "scan", "-").Want(t, 0); !strings.Contains(r.Stdout, "not risky") {
		t.Errorf("%q", r.Stdout)
	}
}
