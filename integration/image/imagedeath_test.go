package image_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// imageDeaths are rounds of killing hutchd at a random moment: after six within a minute
// its monitor gives up.
func imageDeaths() int { return world.Rounds(5) }

// verified fails the test unless every layer of the store is as it was recorded.
func verified(t *testing.T, w *world.World) {
	t.Helper()
	checks := world.Decode[api.Verified](t, w.OK(t, "rpc", "image.verify", "{}"))
	for _, c := range checks.Layers {
		if c.Status != api.LayerGood {
			t.Errorf("layer %+v", c)
		}
	}
}

// killLater kills hutchd within so much time after a command has started, and waits for
// the command.
func killLater(t *testing.T, w *world.World, within time.Duration, args ...string) (code int) {
	t.Helper()
	w.OK(t, "rpc", "system.info")
	d := w.Daemon(t)
	cmd := w.Command(args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.RandomMoment(within)
	world.Kill(t, d.Hutchd)
	return world.Await(t, cmd)
}

// TestCommitDeath: a commit whose hutchd is killed has made the whole image or none, the
// sandbox goes on, and nothing is left.
func TestCommitDeath(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	sb := w.Create(t, "-u", "0", "base:1")
	w.OK(t, "exec", sb, "/bin/sh", "-c", `i=0; while [ $i -lt 2000 ]; do echo $i > /dir/f$i; i=$((i+1)); done`)
	begun := time.Now()
	w.OK(t, "commit", "-q", sb, "whole:1")
	took := time.Since(begun)
	want := w.OK(t, "run", "-u", "0", "--pull", "never", "whole:1", "/bin/sh", "-c", "ls /dir | wc -l")
	w.OK(t, "image", "rm", "whole:1")
	w.OK(t, "image", "prune")
	made := 0
	for range imageDeaths() {
		code := killLater(t, w, took+took/2, "commit", "-q", sb, "made:1")
		list := w.OK(t, "image", "ls", "-q")
		seen := strings.Contains(list, "made:1")
		if code == 0 && !seen {
			t.Errorf("the commit succeeded and there is %q", list)
		}
		verified(t, w)
		if seen {
			made++
			if got := w.OK(t, "run", "-u", "0", "--pull", "never", "made:1", "/bin/sh", "-c",
				"ls /dir | wc -l"); got != want {
				t.Errorf("it has %q files, want %q", got, want)
			}
			w.OK(t, "image", "rm", "made:1")
		}
		if got := w.OK(t, "exec", sb, "/bin/sh", "-c", "cat /dir/f1999"); got != "1999\n" {
			t.Errorf("the sandbox says %q", got)
		}
		w.OK(t, "image", "prune")
		w.NothingHalf(t)
	}
	t.Logf("%d of %d commits were made, one takes %s", made, imageDeaths(), took)
	w.OK(t, "commit", "-q", sb, "made:1")
	w.OK(t, "rm", "-f", sb)
	w.RemoveLayers(t)
}

// TestPushDeath: a push whose hutchd is killed shows the whole image in the registry or none.
func TestPushDeath(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	w.ImportTiny(t, "base:1")
	begun := time.Now()
	w.OK(t, "push", "-q", "base:1", imagetest.Ref(registry, "whole", "1"))
	took := time.Since(begun)
	shown := 0
	for i := range imageDeaths() {
		ref := imagetest.Ref(registry, "round"+string(rune('a'+i)), "1")
		code := killLater(t, w, took+took/2, "push", "-q", "base:1", ref)
		r := w.Run(t, "image", "pull", "-q", ref)
		switch {
		case r.Code == 0:
			shown++
			w.OK(t, "run", "-u", "0", "--pull", "never", ref, "/bin/sh", "-c", "cat /one")
			w.OK(t, "image", "rm", ref)
		case code == 0:
			t.Errorf("the push succeeded and the pull says %s", r.Stderr)
		default:
			r.Says(t, "no such image")
		}
		verified(t, w)
		w.NothingHalf(t)
		w.OK(t, "push", "-q", "base:1", ref)
	}
	t.Logf("%d of %d pushes were seen, one takes %s", shown, imageDeaths(), took)
	w.RemoveLayers(t)
}
