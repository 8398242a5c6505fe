package world

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// AuditOf is what hutch audit prints of a sandbox, by kind.
func (w *World) AuditOf(t testing.TB, sandbox string) map[api.AuditKind][]api.AuditRecord {
	t.Helper()
	records := map[api.AuditKind][]api.AuditRecord{}
	for line := range strings.Lines(w.OK(t, "audit", sandbox, "--json")) {
		r := Decode[api.AuditRecord](t, line)
		records[r.Kind] = append(records[r.Kind], r)
	}
	return records
}

// MiB is a mebibyte.
const MiB = 1 << 20

// Ran runs a shell command to its end.
func Ran(t testing.TB, c *hutch.Client, sandbox, command string) api.ExecResult {
	t.Helper()
	late := 60.0
	res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sandbox, Command: command, TimeoutS: &late}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Written is what a command has written to stdout, when there is something, or when it has ended.
func Written(t testing.TB, c *hutch.Client, exec string) string {
	t.Helper()
	r, err := c.ExecRead(t.Context(), api.ReadParams{Exec: exec, Stream: api.Stdout, WaitS: Patience.Seconds()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Data == "" && !r.EOF {
		testenv.Late(t, "exec %s writes nothing", exec)
	}
	return r.Data
}

// CheckDisk looks at how a command ended that was to reach a limit, or not.
func CheckDisk(t testing.TB, res api.ExecResult, target string) {
	t.Helper()
	if target == "" {
		if res.Verdict != api.VerdictOK || len(res.Denials) > 0 {
			t.Errorf("%+v, want ok", res)
		}
		return
	}
	if res.Verdict != api.VerdictDisk || len(res.Denials) != 1 {
		t.Errorf("%+v, want disk", res)
		return
	}
	limit := int64(16 * MiB)
	if target == "inodes" {
		limit = 1000
	}
	if l := res.Limit; l == nil || l.Name != target || l.Of != "sandbox" || l.Limit != limit && l.Limit != 12*MiB ||
		l.Peak <= 0 || l.Hint == "" {
		t.Errorf("limit %+v, want one of %s", l, target)
	}
	if d := res.Denials[0]; d.Kind != "limit" || d.Target != target || d.Rule == "" || d.Why == "" ||
		!strings.Contains(d.HowToAllow, "limits."+target) {
		t.Errorf("%+v, want one about %s", d, target)
	}
}

// Grouped says whether execs have cgroups of their own here: as root, and where
// systemd delegates some to an ordinary user.
var Grouped = sync.OnceValue(func() bool { return probe.Cgroups().Status == probe.Yes })

// Configure writes the configuration file of the world's daemon, which must not
// have started yet.
func (w *World) Configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(w.Path("home/config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Approve(t, w.Path("home/config.yaml"))
}

// Approve approves all of a configuration, as its user does at a terminal. One that is not understood has nothing to
// approve.
func (w *World) Approve(t testing.TB, file string) {
	t.Helper()
	c, err := config.Load(file, yamlread.Parse)
	if err != nil {
		return
	}
	if err := os.MkdirAll(w.Root(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.Approve(filepath.Join(w.Root(), "approved.json")); err != nil {
		t.Fatal(err)
	}
}

// NoneAhead is the configuration of tests that count what a daemon holds: no sandbox is launched
// before somebody asks.
const NoneAhead = "ready: none\n"

// Args are the arguments of a tool.
type Args = map[string]any

// StateOf is the next state of a sandbox that events tell of.
func StateOf(t testing.TB, events *hutch.Events) (data api.StateEvent) {
	t.Helper()
	if err := json.Unmarshal(NextOf(t, events, api.EventSandboxState).Data, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// Filled returns when so many wait in a pool.
func (w *World) Filled(t testing.TB, pool string, n int) api.Pool {
	t.Helper()
	c := w.Dial(t)
	defer c.Close()
	c.Call(nil, "events.subscribe", Params{"kinds": []string{"sandbox.state"}})
	for {
		var p api.Pool
		if c.Call(&p, "pool.status", Params{"pool": pool}); p.Available == n {
			return p
		}
		if p.Error != "" {
			t.Fatalf("%+v", p)
		}
		c.Note()
	}
}

// ShelfEmpty checks that nothing is left of what was stopped, kept or forked.
func (w *World) ShelfEmpty(t testing.TB) {
	t.Helper()
	AwaitEmpty(t, filepath.Join(w.Root(), "data/shelf/tmp"), time.Now().Add(Patience)) // behind the replies
	for _, sub := range []string{"shelf/boxes", "shelf/tmp", "shelf/layers", "shelf/snapshots", "images/pins"} {
		if left, _ := os.ReadDir(filepath.Join(w.Root(), "data", sub)); len(left) > 0 {
			testenv.Wrong(t, "%s: %v", sub, left)
		}
	}
}

// Restart ends the daemon of a world; the next command starts another.
func (w *World) Restart(t testing.TB) {
	t.Helper()
	d := w.Daemon(t)
	w.OK(t, "rpc", "system.shutdown", `{"mode":"kill"}`)
	AwaitEnd(t, d.Hutchd, "hutchd")
	AwaitEnd(t, d.Launch, "hutch-launch")
}
