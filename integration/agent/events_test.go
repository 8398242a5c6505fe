package agent_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestEvents: an event is pushed to who subscribed, once, with the data of its
// kind, and nothing secret is in the log.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	live, err := c.Subscribe(t.Context(), api.SubscribeParams{})
	if err != nil {
		t.Fatal(err)
	}
	sb := world.Box(t, c)
	only, err := c.Subscribe(t.Context(), api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventExecExited}})
	if err != nil {
		t.Fatal(err)
	}
	other := world.Box(t, c)
	world.StartIn(t, c, other, "true")
	exec := world.StartIn(t, c, sb, "echo the-secret; exit 4")
	if _, err := c.ExecWait(t.Context(), api.WaitParams{Exec: exec}); err != nil {
		t.Fatal(err)
	}
	var data api.ExitedEvent
	e := world.NextOf(t, only, api.EventExecExited)
	if err := json.Unmarshal(e.Data, &data); err != nil || e.Exec != exec || e.Sandbox != sb || data.ExitCode != 4 ||
		data.Verdict != api.VerdictNonzero {
		t.Errorf("%+v %s", e, e.Data)
	}
	seq := live.Seq() - 1
	for e, err := range live.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != seq+1 {
			t.Errorf("%d after %d", e.Seq, seq)
		}
		if seq = e.Seq; e.Kind == api.EventExecExited && e.Exec == exec {
			break
		}
	}
	files, _ := filepath.Glob(filepath.Join(w.Root(), "data/events/*/*.log"))
	if len(files) != 1 {
		t.Fatalf("logs %q", files)
	}
	if text, err := os.ReadFile(files[0]); err == nil && strings.Contains(string(text), "the-secret") {
		t.Error("the log holds what a command was given")
	}
	w.OK(t, "rm", "-f", sb, other)
}

// TestEventsRestart: a subscriber whose daemon was killed goes on where it was.
func TestEventsRestart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	events, err := c.Subscribe(t.Context(), api.SubscribeParams{})
	if err != nil {
		t.Fatal(err)
	}
	sb := world.Box(t, c)
	seen := world.NextOf(t, events, api.EventSandboxState)
	if seen.Sandbox != sb {
		t.Fatalf("%+v", seen)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	w.Inside(t, "true")
	again := w.Connect(t)
	from := events.Seq()
	rest, err := again.Subscribe(t.Context(), api.SubscribeParams{FromSeq: &from})
	if err != nil {
		t.Fatal(err)
	}
	if rest.Subscribed().Log != events.Subscribed().Log {
		t.Error("another log")
	}
	first, err := rest.Next(t.Context())
	if err != nil || first.Seq != from {
		t.Errorf("%+v %v, want %d", first, err, from)
	}
	world.NextOf(t, rest, api.EventExecExited)
	before, err := again.Subscribe(t.Context(), api.SubscribeParams{FromSeq: &seen.Seq})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := before.Next(t.Context()); err != nil || e.Seq != seen.Seq || e.Sandbox != sb ||
		!e.Time.Equal(seen.Time) {
		t.Errorf("%+v %v, was %+v", e, err, seen)
	}
}

// TestEventsFollow: hutch events prints what happens as it happens.
func TestEventsFollow(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Inside(t, "true")
	cmd := w.Command("events", "--since", "1", "--kind", "exec.exited", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() {
			t.Fatal("no line")
		}
		if e := world.Decode[api.Event](t, lines.Text()); e.Kind != api.EventExecExited {
			t.Errorf("%+v", e)
		}
		w.Inside(t, "true")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := world.Await(t, cmd); code != 130 {
		t.Errorf("exit code %d after an interrupt", code)
	}
}
