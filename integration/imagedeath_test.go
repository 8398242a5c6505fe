package integration_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// imageDeaths are rounds of killing hutchd at a random moment: after six within a minute
// its monitor gives up.
func imageDeaths() int { return rounds(5) }

// verified fails the test unless every layer of the store is as it was recorded.
func (w *world) verified(t *testing.T) {
	t.Helper()
	checks := decode[api.Verified](t, w.ok(t, "rpc", "image.verify", "{}"))
	for _, c := range checks.Layers {
		if c.Status != api.LayerGood {
			t.Errorf("layer %+v", c)
		}
	}
}

// killLater kills hutchd within so much time after a command has started, and waits for
// the command.
func (w *world) killLater(t *testing.T, within time.Duration, args ...string) (code int) {
	t.Helper()
	w.ok(t, "rpc", "system.info")
	d := w.daemon(t)
	cmd := w.command(args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-time.After(rand.N(within))
	kill(t, d.hutchd)
	return await(t, cmd)
}

// TestCommitDeath: a commit whose hutchd is killed has made the whole image or none, the
// sandbox goes on, and nothing is left.
func TestCommitDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.importTiny(t, "base:1")
	sb := w.create(t, "-u", "0", "base:1")
	w.ok(t, "exec", sb, "/bin/sh", "-c", `i=0; while [ $i -lt 2000 ]; do echo $i > /dir/f$i; i=$((i+1)); done`)
	begun := time.Now()
	w.ok(t, "commit", "-q", sb, "whole:1")
	took := time.Since(begun)
	want := w.ok(t, "run", "-u", "0", "--pull", "never", "whole:1", "/bin/sh", "-c", "ls /dir | wc -l")
	w.ok(t, "image", "rm", "whole:1")
	w.ok(t, "image", "prune")
	made := 0
	for range imageDeaths() {
		code := w.killLater(t, took+took/2, "commit", "-q", sb, "made:1")
		list := w.ok(t, "image", "ls", "-q")
		seen := strings.Contains(list, "made:1")
		if code == 0 && !seen {
			t.Errorf("the commit succeeded and there is %q", list)
		}
		w.verified(t)
		if seen {
			made++
			if got := w.ok(t, "run", "-u", "0", "--pull", "never", "made:1", "/bin/sh", "-c", "ls /dir | wc -l"); got != want {
				t.Errorf("it has %q files, want %q", got, want)
			}
			w.ok(t, "image", "rm", "made:1")
		}
		if got := w.ok(t, "exec", sb, "/bin/sh", "-c", "cat /dir/f1999"); got != "1999\n" {
			t.Errorf("the sandbox says %q", got)
		}
		w.ok(t, "image", "prune")
		w.nothingHalf(t)
	}
	t.Logf("%d of %d commits were made, one takes %s", made, imageDeaths(), took)
	w.ok(t, "commit", "-q", sb, "made:1")
	w.ok(t, "rm", "-f", sb)
	w.removeLayers(t)
}

// nothingHalf fails the test if a store without work under way has temporary folders.
func (w *world) nothingHalf(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(w.root(), "data/images/tmp/*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestPushDeath: a push whose hutchd is killed shows the whole image in the registry or none.
func TestPushDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	w.importTiny(t, "base:1")
	begun := time.Now()
	w.ok(t, "push", "-q", "base:1", imagetest.Ref(registry, "whole", "1"))
	took := time.Since(begun)
	shown := 0
	for i := range imageDeaths() {
		ref := imagetest.Ref(registry, "round"+string(rune('a'+i)), "1")
		code := w.killLater(t, took+took/2, "push", "-q", "base:1", ref)
		r := w.run(t, "image", "pull", "-q", ref)
		switch {
		case r.code == 0:
			shown++
			w.ok(t, "run", "-u", "0", "--pull", "never", ref, "/bin/sh", "-c", "cat /one")
			w.ok(t, "image", "rm", ref)
		case code == 0:
			t.Errorf("the push succeeded and the pull says %s", r.stderr)
		default:
			r.says(t, "no such image")
		}
		w.verified(t)
		w.nothingHalf(t)
		w.ok(t, "push", "-q", "base:1", ref)
	}
	t.Logf("%d of %d pushes were seen, one takes %s", shown, imageDeaths(), took)
	w.removeLayers(t)
}
