package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestScanHostile: code that is against the parser is risky in bounded time, a caller that goes takes its worker along,
// and code whose imports cannot be told does not run where they matter.
func TestScanHostile(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	for _, tt := range []struct{ name, language, code string }{
		{"substitutions", "shell", strings.Repeat("$(", 400_000)},
		{"blocks", "shell", strings.Repeat("{ ", 500_000)},
		{"arithmetic", "shell", "echo $((" + strings.Repeat("(", 900_000)},
		{"parentheses", "python", strings.Repeat("(", 100_000)},
		{"arrays", "javascript", strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000)},
		{"templates", "javascript", strings.Repeat("`${", 300_000)},
	} {
		start := time.Now()
		res, err := c.ScanCode(t.Context(), api.ScanParams{Language: tt.language, Code: tt.code})
		if err != nil || !res.Risky || time.Since(start) > time.Minute {
			t.Errorf("%s: %+v, %v after %s", tt.name, res, err, time.Since(start))
		}
	}
	slow := api.ScanParams{Language: "javascript", Code: strings.Repeat("a,", 1<<19-1) + "a"} // seconds
	var gone sync.WaitGroup
	for range 4 { // half of them wait for their turn
		gone.Go(func() {
			other := w.Connect(t)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := other.ScanCode(ctx, slow); err == nil {
				t.Error("a call that was canceled has a result")
			}
			_ = other.Close()
		})
	}
	gone.Wait()
	if res, err := c.ScanCode(t.Context(), api.ScanParams{Language: "python", Code: "1"}); err != nil || res.Risky {
		t.Errorf("%+v, %v", res, err)
	}
	for _, p := range w.Processes() { // a caller is gone before its worker is
		if p.Name() == "hutch-scan" && !world.Ended(p.PID, 10*time.Second) {
			t.Errorf("a worker is left: %+v", p)
		}
	}

	world.Needs(t, "python3")
	n := notebook{c, w.Create(t, "host")}
	for _, tt := range []struct{ name, code, want string }{
		{"pieces", "x = 1\n__import__('so' + 'cket')", `line 2 imports "socket"`},
		{"behind many", strings.Repeat("import json\n", 600) + "import socket", `line 601 imports "socket"`},
		{"behind depth", "x = 1\n" + strings.Repeat("[", 3000) + "__import__('socket')" + strings.Repeat("]", 3000),
			"cannot be told"},
	} {
		var e *api.Error
		_, err := c.RunCode(t.Context(), api.CodeParams{Sandbox: n.sandbox, Language: "python", Code: tt.code,
			AllowedImports: []string{"json"}})
		if !errors.As(err, &e) || e.Code != api.PermissionDenied || !strings.Contains(e.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	n.run(t, "python", "x", "NameError") // nothing has run
}
