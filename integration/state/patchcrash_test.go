package state_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// bigPatch changes 60 files from one text to another, each in its own folder; of three one is renamed there and back.
func bigPatch(from, to string) string {
	var b strings.Builder
	b.WriteString("*** Begin Patch\n")
	for i := range 60 {
		switch i % 3 {
		case 0:
			fmt.Fprintf(&b, "*** Update File: %02d/f\n@@\n-%s\n+%s\n", i, from, to)
		case 1:
			fmt.Fprintf(&b, "*** Delete File: %02d/%s\n*** Add File: %02d/%s\n+%s\n", i, from, i, to, to)
		default:
			fmt.Fprintf(&b, "*** Update File: %02d/%s\n*** Move to: %02d/%s\n@@\n-%s\n+%s\n", i, from, i, to, from, to)
		}
	}
	b.WriteString("*** End Patch\n")
	return b.String()
}

const makeBig = `mkdir -p /srv/p; cd /srv/p; for i in $(seq 0 59); do d=$(printf %02d $i); mkdir $d; f=f; [ $((i % 3)) = 0 ] || f=one; echo one >$d/$f; done`

// wholePatch tells which of the texts the files have, all of them, and that nothing else is there.
func wholePatch(t *testing.T, w *world.World, sb string) string {
	t.Helper()
	out := w.OK(t, "exec", "-w", "/srv/p", sb, "sh", "-c",
		`find . -type f -printf '%f '; echo; cat */* | sort | uniq -c; find . -name '.*' -mindepth 1`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) == 2 {
		fields := strings.Fields(lines[1])
		if text := fields[len(fields)-1]; fields[0] == "60" && strings.Count(lines[0], "f ") == 20 &&
			strings.Count(lines[0], text+" ") == 40 {
			return text
		}
	}
	t.Fatalf("a part of a patch:\n%s", out)
	return ""
}

// killWorker ends the files workers of a sandbox as soon as a new file of a patch is there, and a moment later.
const killWorker = `cd /srv/p; n=0; until set -- [0-9]*/.hutch-*; [ -e "$1" ] || [ $n -gt 3000 ]; do n=$((n + 1)); done; n=0; while [ $n -lt $1 ]; do n=$((n + 1)); done
for p in /proc/[0-9]*; do read -r name <$p/comm && [ "$name" = hutch-files ] && kill -9 ${p#/proc/}; done 2>/dev/null; exit 0`

// TestPatchKilled: a worker that is killed anywhere in a patch leaves all of it or nothing, and no file of its own; the
// caller is told which.
func TestPatchKilled(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "host")
	b := toolbox{w.Connect(t), sb}
	w.OK(t, "exec", sb, "sh", "-euc", makeBig)
	now, killed := "one", 0
	for round := range 40 {
		to := map[string]string{"one": "two", "two": "one"}[now]
		arguments, _ := json.Marshal(map[string]any{"path": "/srv/p", "patch": bigPatch(now, to)})
		b.call(t, api.ToolNameReadFile, `{"path":"/etc/hostname"}`) // there is a worker, if the last one was not killed just now
		var killer sync.WaitGroup
		delay := fmt.Sprint(rand.IntN(8000))
		killer.Go(func() {
			if _, err := b.c.ExecRun(t.Context(),
				api.ExecParams{Sandbox: sb, Command: strings.ReplaceAll(killWorker, "-lt $1", "-lt "+delay)}, nil,
				nil); err != nil {
				t.Error(err)
			}
		})
		r := b.call(t, api.ToolNameApplyPatch, string(arguments))
		got := wholePatch(t, w, sb)
		killer.Wait()
		switch {
		case !r.IsError && got != to:
			t.Fatalf("round %d: applied, and all is %q", round, got)
		case r.IsError && got != now:
			t.Fatalf("round %d: all is %q: %s", round, got, r.Content[0].Text)
		case r.IsError && strings.Contains(r.Content[0].Text, "taken back"):
			killed++
		case r.IsError && !strings.Contains(r.Content[0].Text, "is gone"): // before anything was changed
			t.Errorf("round %d: %s", round, r.Content[0].Text)
		}
		now = got
	}
	t.Logf("%d of 40 patches were interrupted", killed)
	if killed == 0 {
		t.Error("no patch was interrupted")
	}
}

// TestPatchHutchdKilled: a hutchd that is killed, and with it the worker, leaves nothing half done for whoever uses the
// sandbox next.
func TestPatchHutchdKilled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "host")
	w.OK(t, "exec", sb, "sh", "-euc", makeBig)
	now := "one"
	for range 4 { // more crashes in a minute end the daemon
		to := map[string]string{"one": "two", "two": "one"}[now]
		arguments, _ := json.Marshal(map[string]any{"path": "/srv/p", "patch": bigPatch(now, to)})
		c := w.Reconnect(t)
		var caller sync.WaitGroup
		caller.Go(func() { // its connection may be lost
			_, _ = c.CallTool(t.Context(), api.ToolCallParams{Sandbox: sb, Name: api.ToolNameApplyPatch,
				Arguments: arguments}, nil)
		})
		testenv.RandomMoment(25 * time.Millisecond)
		if err := unix.Kill(w.Daemon(t).Hutchd, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		caller.Wait()
		w.Reconnect(t)
		now = wholePatch(t, w, sb)
	}
}

// TestPatchStopped: a sandbox that is stopped in the middle of a patch goes on with all of it or nothing.
func TestPatchStopped(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "host")
	b := toolbox{w.Connect(t), sb}
	w.OK(t, "exec", sb, "sh", "-euc", makeBig)
	now := "one"
	for range 6 {
		to := map[string]string{"one": "two", "two": "one"}[now]
		arguments, _ := json.Marshal(map[string]any{"path": "/srv/p", "patch": bigPatch(now, to)})
		var caller sync.WaitGroup
		caller.Go(func() { _ = b.call(t, api.ToolNameApplyPatch, string(arguments)) })
		testenv.RandomMoment(20 * time.Millisecond)
		w.OK(t, "stop", "-t", "0", sb)
		caller.Wait()
		w.OK(t, "start", sb)
		now = wholePatch(t, w, sb)
	}
}
