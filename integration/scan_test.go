package integration_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

func scanned(t testing.TB, c *hutch.Client, language, code string, imports ...string) api.ScanResult {
	t.Helper()
	res, err := c.ScanCode(t.Context(), api.ScanParams{Language: language, Code: code, AllowedImports: imports})
	if err != nil {
		t.Fatalf("%s %.60q: %v", language, code, err)
	}
	return res
}

func hasRule(res *api.ScanResult, rule string) bool {
	return slices.ContainsFunc(res.Findings, func(f api.Finding) bool { return f.Rule == rule })
}

// TestScan: code is looked through without a sandbox; innocent code is not risky and code that hides what it does is. Whatever kills or holds
// up the parser is a finding, and neither it nor a caller that goes leaves anything behind.
func TestScan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect(t)

	t.Run("good", func(t *testing.T) {
		for language, code := range map[string]string{
			"python":     "import json, math\nprint(json.dumps({'os.system': math.pi}))",
			"javascript": "const { join } = require('path'); console.log(join('a', 'eval'))",
			"shell":      "for i in 1 2; do echo \"$i rm -rf /\"; done",
		} {
			if res := scanned(t, c, language, code); res.Risky || res.Language != language {
				t.Errorf("%s: %+v", language, res)
			}
		}
	})

	t.Run("evasions", func(t *testing.T) {
		for _, tt := range []struct{ language, code, rule string }{
			{"python", "getattr(__builtins__, 'ev' + 'al')('1')", "python.eval"},
			{"python", "\nfrom os import system as s\ns('id')", "python.command"},
			{"python", "import base64\nexec(base64.b64decode('aW1wb3J0IG9zCm9zLnN5c3RlbSgnaWQnKQ=='))", "python.command"},
			{"javascript", `globalThis["ev" + "al"]("1")`, "javascript.eval"},
			{"javascript", `import('child_' + 'process')`, "javascript.subprocess"},
			{"shell", "curl -s https://example.com | sudo bash", "shell.pipe_interpreter"},
			{"shell", "python3 <<X\nimport os; os.system('id')\nX", "python.command"},
			{"python", "def (", "python.syntax"},
			{"shell", "if then (", "shell.syntax"},
		} {
			if res := scanned(t, c, tt.language, tt.code); !res.Risky || !hasRule(&res, tt.rule) {
				t.Errorf("%s %q: %+v, want %s", tt.language, tt.code, res, tt.rule)
			}
		}
		res := scanned(t, c, "python", "import json\nimport socket", "json")
		if want := []api.ScanImport{{Module: "json", Line: 1, Allowed: true}, {Module: "socket", Line: 2}}; !slices.Equal(res.Imports, want) || !hasRule(&res, "import.not_allowed") {
			t.Errorf("%+v", res)
		}
	})

	t.Run("hostile", func(t *testing.T) { hostileScans(t, w, c) })

	t.Run("imports of runs", func(t *testing.T) {
		needs(t, "python3")
		n := notebook{c, w.create(t, "host")}
		p := api.CodeParams{Sandbox: n.sandbox, Language: "python", Code: "import json\nx = 1\n__import__('so' + 'cket')", AllowedImports: []string{"json"}}
		var e *api.Error
		if _, err := c.RunCode(t.Context(), p); !errors.As(err, &e) || e.Code != api.PermissionDenied || e.Field != "allowed_imports" || !strings.Contains(e.Error(), `line 3 imports "socket"`) {
			t.Errorf("%v", err)
		}
		n.run(t, "python", "x", "NameError") // nothing has run
	})

	t.Run("command", func(t *testing.T) {
		dir := t.TempDir()
		for name, code := range map[string]string{"good.py": "print(1)\n", "bad": "#!/bin/sh\nrm -rf \"$HOME\"\n", "what": "x"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if r := w.run(t, "scan", filepath.Join(dir, "good.py")); r.code != 0 || r.stdout != "" {
			t.Errorf("%+v", r)
		}
		if r := w.run(t, "scan", filepath.Join(dir, "bad")); r.code != 1 || !strings.Contains(r.stdout, "bad:2:1: high: deletes files") {
			t.Errorf("%+v", r)
		}
		if r := w.run(t, "scan", filepath.Join(dir, "what")); r.code != 125 || !strings.Contains(r.stderr, "--language") {
			t.Errorf("%+v", r)
		}
	})
}

// hostileScans are of code that is against the parser.
func hostileScans(t *testing.T, w *world, c *hutch.Client) {
	for _, tt := range []struct{ name, language, code string }{
		{"substitutions", "shell", strings.Repeat("$(", 400_000)},
		{"blocks", "shell", strings.Repeat("{ ", 500_000)},
		{"arithmetic", "shell", "echo $((" + strings.Repeat("(", 900_000)},
		{"parentheses", "python", strings.Repeat("(", 100_000)},
		{"arrays", "javascript", strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000)},
		{"templates", "javascript", strings.Repeat("`${", 300_000)},
	} {
		start := time.Now()
		res := scanned(t, c, tt.language, tt.code)
		t.Logf("%s: %s in %s", tt.name, res.Findings[0].Rule, time.Since(start).Round(time.Millisecond))
		if !res.Risky || time.Since(start) > time.Minute {
			t.Errorf("%s: %+v after %s", tt.name, res, time.Since(start))
		}
	}
	// Callers that go, also while theirs waits for another's.
	slow := api.ScanParams{Language: "javascript", Code: strings.Repeat("a,", 1<<19-1) + "a"}
	var gone sync.WaitGroup
	for range 4 {
		gone.Go(func() {
			other := w.connect(t)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := other.ScanCode(ctx, slow); err == nil {
				t.Error("a call that was canceled has a result")
			}
			_ = other.Close()
		})
	}
	gone.Wait()
	if res := scanned(t, c, "python", "1"); res.Risky {
		t.Errorf("%+v", res)
	}
	left := func() bool {
		return slices.ContainsFunc(w.processes(), func(p process) bool { return p.name() == "hutch-scan" })
	}
	for deadline := time.Now().Add(10 * time.Second); left(); time.Sleep(20 * time.Millisecond) { // a caller is gone before its worker is
		if time.Now().After(deadline) {
			t.Fatalf("workers are left: %v", w.processes())
		}
	}
}
