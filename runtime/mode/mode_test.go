package mode

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
)

// world is a Decider with a real audit log, and answers of a scan that the test chooses: hutch-scan itself is the
// integration tests'.
type world struct {
	*Decider
	logs   *audit.Logs
	dir    string
	found  []api.Finding
	fails  error
	folder *api.Workspace
	events []any
}

func (w *world) Scan(context.Context, api.ScanParams) (api.ScanResult, error) {
	res := api.ScanResult{Findings: w.found}
	for _, f := range w.found {
		res.Risky = res.Risky || f.Severity != api.SeverityLow
	}
	return res, w.fails
}

func (w *world) Command(ctx context.Context, _ []string) (api.ScanResult, error) {
	return w.Scan(ctx, api.ScanParams{})
}

func (w *world) Workspace(ref string) (string, *api.Workspace, error) {
	if ref != "box" {
		return "", nil, api.Errorf(api.NotFound, "no sandbox %s", ref)
	}
	return "sb_box", w.folder, nil
}

func (w *world) Emit(_ api.EventKind, _, _ string, data any) { w.events = append(w.events, data) }

func newWorld(t *testing.T, s Settings) *world {
	w := &world{dir: t.TempDir()}
	var err error
	if w.logs, err = audit.Open(w.dir, api.AuditSettings{Enabled: true, Content: "digest", Connections: "denied",
		MaxBytes: 1 << 20, KeepDays: 1}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.logs.Close() })
	s.Exec = api.ExecBounds{TimeoutS: 30, MaxTimeoutS: 60}
	w.Decider = New(Config{Scanner: w, Boxes: w, Events: w, Audit: w.logs, Settings: s})
	return w
}

// rows are the kinds of the records, with the place or whether the end was reported.
func (w *world) rows(t *testing.T) string {
	t.Helper()
	res, err := w.logs.Read(t.Context(), api.AuditReadParams{Sandbox: api.AuditHost})
	if err != nil && api.ErrorCode(err) != api.NotFound {
		t.Fatal(err)
	}
	var list []string
	for _, line := range res.Records {
		var r api.AuditRecord
		var d struct {
			Decision string
			Reported *bool
		}
		if err := errors.Join(json.Unmarshal(line, &r), json.Unmarshal(r.Data, &d)); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Kind == api.AuditExecDecided:
			list = append(list, d.Decision)
		case d.Reported != nil && *d.Reported:
			list = append(list, "reported")
		case d.Reported != nil:
			list = append(list, "unreported")
		}
	}
	return strings.Join(list, " ")
}

var (
	me      = Caller{Conn: 1}
	allowed = Settings{Mode: api.ExecModeAll, Host: api.HostAllowed}
	low     = []api.Finding{{Rule: "shell.read", Severity: api.SeverityLow}}
	medium  = []api.Finding{{Rule: "shell.read", Severity: api.SeverityLow},
		{Rule: "shell.write", Severity: api.SeverityMedium}}
)

// TestDecideCode: code is decided like commands; of a language that no scan reads nothing is known.
func TestDecideCode(t *testing.T) {
	w := newWorld(t, allowed)
	for language, want := range map[string]api.Where{"python": api.WhereHost, "javascript": api.WhereHost,
		"shell": api.WhereHost, "go": api.WhereSandbox, "ruby": api.WhereSandbox} {
		d, err := w.Decide(t.Context(), me, api.DecideParams{Mode: api.ExecModeSelective, Language: language,
			Code: "1"})
		if err != nil || d.Decision != want {
			t.Errorf("%s, selective: %+v, %v", language, d, err)
		}
		if d, err = w.Decide(t.Context(), me, api.DecideParams{Mode: api.ExecModeOff, Language: language,
			Code: "1"}); err != nil || d.Decision != api.WhereHost {
			t.Errorf("%s, off: %+v, %v", language, d, err)
		}
	}
}

func TestDecide(t *testing.T) {
	rw := &api.Workspace{Path: "/src", Mode: api.ModeRW}
	for name, tt := range map[string]struct {
		settings Settings
		params   api.DecideParams
		found    []api.Finding
		fails    error
		folder   *api.Workspace
		want     api.Where
		rows     string
		code     api.Code
	}{
		"the default": {settings: allowed, want: api.WhereSandbox},
		"all": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeAll},
			want: api.WhereSandbox},
		"all, on the host never": {settings: Settings{Mode: api.ExecModeOff, Host: api.HostAllowed},
			params: api.DecideParams{Mode: api.ExecModeAll}, want: api.WhereSandbox},
		"off": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeOff},
			want: api.WhereHost, rows: "host"},
		"off, configured": {settings: Settings{Mode: api.ExecModeOff, Host: api.HostAllowed},
			want: api.WhereHost, rows: "host"},
		"off, refused": {settings: Settings{Mode: api.ExecModeAll, Host: api.HostRefused},
			params: api.DecideParams{Mode: api.ExecModeOff}, code: api.PermissionDenied, rows: "refused"},
		"off, nothing said": {params: api.DecideParams{Mode: api.ExecModeOff},
			code: api.PermissionDenied, rows: "refused"},
		"selective, refused": {params: api.DecideParams{Mode: api.ExecModeSelective},
			code: api.PermissionDenied, rows: "refused"},
		"harmless": {settings: allowed,
			params: api.DecideParams{Mode: api.ExecModeSelective}, want: api.WhereHost, rows: "host"},
		"risky": {settings: allowed,
			params: api.DecideParams{Mode: api.ExecModeSelective}, found: medium, want: api.WhereSandbox,
			rows: "sandbox"},
		"low, confined": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeSelective,
			ReadOnly: true}, found: low, want: api.WhereHost, rows: "host"},
		"low, not confined": {settings: allowed,
			params: api.DecideParams{Mode: api.ExecModeSelective}, found: low, want: api.WhereSandbox, rows: "sandbox"},
		"the scan fails": {settings: allowed,
			params: api.DecideParams{Mode: api.ExecModeSelective}, fails: errors.New("no memory"),
			want: api.WhereSandbox, rows: "sandbox"},
		"a sandbox with files of its own": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeSelective,
			Sandbox: "box"}, want: api.WhereSandbox, rows: "sandbox"},
		"a sandbox that sees a copy": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeSelective,
			Sandbox: "box"}, folder: &api.Workspace{Path: "/src", Mode: api.ModeOverlay}, want: api.WhereSandbox,
			rows: "sandbox"},
		"a sandbox that works on the folder": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeSelective,
			Sandbox: "box"}, folder: rw, want: api.WhereHost, rows: "host"},
		"off, configured, a sandbox is named": {settings: Settings{Mode: api.ExecModeOff, Host: api.HostAllowed},
			params: api.DecideParams{Sandbox: "box"}, want: api.WhereSandbox, rows: "sandbox"},
		"off, asked for, a sandbox is named": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeOff,
			Sandbox: "box"}, want: api.WhereHost, rows: "host"},
		"no sandbox": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeSelective,
			Sandbox: "none"}, code: api.NotFound},
		"a time that is too long": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeOff,
			TimeoutS: new(61.0)}, code: api.InvalidArgument, rows: "refused"},
		"off, on the sandbox's folder": {settings: allowed, params: api.DecideParams{Mode: api.ExecModeOff,
			Sandbox: "box"}, folder: rw, want: api.WhereHost, rows: "host"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.settings)
			w.found, w.fails, w.folder = tt.found, tt.fails, tt.folder
			tt.params.Argv = []string{"ls"}
			d, err := w.Decide(t.Context(), me, tt.params)
			if d.Decision != tt.want || (tt.code != "" || err != nil) && api.ErrorCode(err) != tt.code ||
				(d.ID != "") != (d.Decision == api.WhereHost) {
				t.Errorf("%+v, %v", d, err)
			}
			if rows := w.rows(t); rows != tt.rows || len(w.events) != len(strings.Fields(rows)) {
				t.Errorf("rows %q, events %+v", rows, w.events)
			}
			if err == nil && d.Decision == api.WhereHost && tt.folder != nil && d.Cwd != "/src" {
				t.Errorf("%+v", d)
			}
		})
	}
	w := newWorld(t, allowed)
	if _, err := w.Decide(t.Context(), Caller{Conn: 1, Private: true},
		api.DecideParams{Mode: api.ExecModeOff, Argv: []string{"ls"}}); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("a private daemon: %v", err)
	}
}

// TestEnds: an end is reported once, on the connection that asked; what a connection leaves is recorded as that.
func TestEnds(t *testing.T) {
	w := newWorld(t, allowed)
	ask := func(c Caller) string {
		d, err := w.Decide(t.Context(), c, api.DecideParams{Mode: api.ExecModeOff, Argv: []string{"ls"}})
		if err != nil {
			t.Fatal(err)
		}
		return d.ID
	}
	one, two := ask(me), ask(me)
	if err := w.Ended(Caller{Conn: 2}, api.HostEndParams{ID: one}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("another's: %v", err)
	}
	if err := w.Ended(me, api.HostEndParams{ID: one, ExitCode: 3}); err != nil {
		t.Error(err)
	}
	if err := w.Ended(me, api.HostEndParams{ID: one}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("twice: %v", err)
	}
	w.Disconnected(2)
	w.Disconnected(1)
	if err := w.Ended(me, api.HostEndParams{ID: two}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("late: %v", err)
	}
	if rows := w.rows(t); rows != "host host reported unreported" {
		t.Error(rows)
	}
	for range api.MaxHostExecs {
		ask(me)
	}
	if _, err := w.Decide(t.Context(), me,
		api.DecideParams{Mode: api.ExecModeOff, Argv: []string{"ls"}}); api.ErrorCode(err) != api.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	ask(Caller{Conn: 2})
}

// TestUnrecorded: what cannot be recorded does not run.
func TestUnrecorded(t *testing.T) {
	w := newWorld(t, allowed)
	p := api.DecideParams{Mode: api.ExecModeOff, Argv: []string{"ls"}}
	if _, err := w.Decide(t.Context(), me, p); err != nil {
		t.Fatal(err)
	}
	// Root may write anywhere: only a folder in the place of the file stops it.
	path := filepath.Join(w.dir, api.AuditHost, "00000000000000000001.jsonl")
	if err := errors.Join(os.Rename(path, path+".aside"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if d, err := w.Decide(t.Context(), me, p); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("%+v, %v", d, err)
	}
	w.Disconnected(1)
	n := 0
	for _, e := range w.events {
		if _, ok := e.(api.HostExitedEvent); ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d ends of one that ran", n)
	}
}
