package state_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// killed is an operation of which a part of the daemon is killed at random moments.
type killed struct {
	t   *testing.T
	w   *world.World
	c   *hutch.Client // of the daemon that lives
	box string
	i   int // the round

	before func()                      // makes what it needs
	act    func(context.Context) error // with c
	after  func(done bool)             // looks what has become of it; done: it was answered
}

// killRounds is how often: an ordinary user's rounds are the same code by other ways of mounting.
func killRounds() int {
	if os.Geteuid() == 0 {
		return world.Rounds(50)
	}
	return world.Rounds(20)
}

// newKilled makes the world of one, with a sandbox that has files.
func newKilled(t *testing.T, create ...string) *killed {
	w := world.New(t)
	w.LogOnFailure(t)
	w.Tolerated = append(w.Tolerated, "take over a sandbox; it is removed")
	if create == nil {
		create = []string{"host"}
	}
	k := &killed{t: t, w: w, c: w.Connect(t), before: func() {}}
	k.box = w.Create(t, append([]string{"--name", "box"}, create...)...)
	k.run("box", killedFiles)
	return k
}

// killedFiles makes the files of a sandbox, filesSum prints their sum.
const (
	killedFiles = "mkdir /d; cd /d; for i in 1 2 3 4 5 6 7 8 9; do head -c 60000 /dev/urandom >$i; mkdir -p e/$i; echo $i >e/$i/f; done; ln -s 1 link"
	filesSum    = "cd /d; cat [1-9] e/*/f link | cksum"
)

// run runs a command, which must succeed.
func (k *killed) run(sandbox, command string) string {
	k.t.Helper()
	res := world.Ran(k.t, k.c, sandbox, command)
	if res.ExitCode != 0 {
		k.t.Fatalf("round %d: %s: %+v", k.i, command, res)
	}
	return res.Stdout
}

// rounds kills hutchd, the monitor and both in turn.
func (k *killed) rounds() {
	k.t.Helper()
	took, done := time.Duration(0), 0
	for k.i = range 2 { // undisturbed
		k.before()
		start := time.Now()
		if err := k.act(k.t.Context()); err != nil {
			k.t.Fatal(err)
		}
		took = max(took, time.Since(start))
		k.after(true)
	}
	for k.i = range killRounds() {
		k.before()
		d, victim := k.w.OneDaemon(k.t), world.Victims[k.i%len(world.Victims)]
		answered := make(chan error, 1)
		go func() { answered <- k.act(k.t.Context()) }()
		testenv.RandomMoment(took + took/4) // at any moment of it, and of what goes on behind its reply
		world.KillNow(k.t, victim.PIDs(d))
		for _, pid := range victim.PIDs(d) {
			world.Kill(k.t, pid) // and wait
		}
		err := <-answered
		for range 3 { // a call may meet what is just dying
			if k.w.Run(k.t, "rpc", "system.info").Code == 0 {
				break
			}
		}
		k.c = k.w.Reconnect(k.t)
		if now := k.w.OneDaemon(k.t); now.Launch != d.Launch && !world.Ended(d.Launch, world.Patience) {
			k.t.Fatalf("round %d: hutch-launch %d of a monitor that was killed does not end", k.i, d.Launch)
		}
		if err == nil {
			done++
		}
		if k.after(err == nil); k.t.Failed() {
			k.t.Fatalf("round %d, %s was killed; the call: %v", k.i, victim.Name, err)
		}
	}
	k.t.Logf("%d of %d were answered; it takes %s", done, killRounds(), took)
	k.w.OK(k.t, "rm", "-f", "box")
	if k.snapshot("s") != nil {
		k.w.OK(k.t, "snapshot", "rm", "s")
	}
	k.w.Restart(k.t)
	k.w.OK(k.t, "ps")
	k.w.ShelfEmpty(k.t)
}

// layers fails the test unless the shelf has so many, and nothing half done.
func (k *killed) layers(want int) {
	k.t.Helper()
	shelf := filepath.Join(k.w.Root(), "data/shelf")
	world.AwaitEmpty(k.t, filepath.Join(shelf, "tmp"), time.Now().Add(world.Patience))
	if got, err := os.ReadDir(filepath.Join(shelf, "layers")); err != nil || len(got) != want {
		k.t.Errorf("round %d: layers %v, %v; want %d", k.i, got, err, want)
	}
}

// others removes all sandboxes but the one, each of which must show what was asked.
func (k *killed) others(command, want string) (n int) {
	k.t.Helper()
	list, err := k.c.ListSandboxes(k.t.Context(), nil)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range list {
		if s.ID == k.box {
			continue
		}
		n++
		if got := k.run(s.ID, command); got != want {
			k.t.Errorf("round %d: %q, want %q", k.i, got, want)
		}
		if _, err := k.c.Remove(k.t.Context(), s.ID); err != nil {
			k.t.Error(err)
		}
	}
	return n
}

// snapshot is one by name; nil where there is none.
func (k *killed) snapshot(name string) *api.Snapshot {
	k.t.Helper()
	list, err := k.c.Snapshots(k.t.Context(), api.SnapshotListParams{})
	if err != nil {
		k.t.Fatal(err)
	}
	for _, sn := range list {
		if sn.Name == name {
			return &sn
		}
	}
	if len(list) > 0 {
		k.t.Errorf("round %d: %+v", k.i, list)
	}
	return nil
}

// same fails the test unless a snapshot is what the sandbox is.
func (k *killed) same(name string) {
	k.t.Helper()
	diff, err := k.c.DiffSnapshot(k.t.Context(), api.SnapshotDiffParams{Snapshot: name})
	if err != nil || len(diff.Changes) > 0 {
		k.t.Errorf("round %d: %+v, %v", k.i, diff, err)
	}
}

// TestKilledSnapshot: a snapshot that is made or removed by a daemon that is killed is there whole, or not at all, and
// the sandbox goes on.
func TestKilledSnapshot(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		k := newKilled(t)
		k.before = func() { k.run("box", fmt.Sprintf("echo %d >/d/1", k.i)) }
		k.act = func(ctx context.Context) error {
			_, err := k.c.CreateSnapshot(ctx, api.SnapshotCreateParams{Sandbox: "box", Name: "s"})
			return err
		}
		k.after = func(done bool) {
			if got := k.run("box", "cat /d/1"); got != fmt.Sprintln(k.i) {
				t.Errorf("%q", got)
			}
			switch sn := k.snapshot("s"); {
			case sn != nil:
				k.layers(1)
				k.same("s")
				if err := k.c.RemoveSnapshot(t.Context(), "s"); err != nil {
					t.Error(err)
				}
			case done:
				t.Error("there is no snapshot")
			}
			k.layers(0)
		}
		k.rounds()
	})
	t.Run("remove", func(t *testing.T) {
		t.Parallel()
		k := newKilled(t)
		k.before = func() {
			if _, err := k.c.CreateSnapshot(t.Context(),
				api.SnapshotCreateParams{Sandbox: "box", Name: "s"}); err != nil {
				t.Fatal(err)
			}
		}
		k.act = func(ctx context.Context) error { return k.c.RemoveSnapshot(ctx, "s") }
		k.after = func(done bool) {
			if sn := k.snapshot("s"); sn != nil {
				if done {
					t.Error("it is there still")
				}
				k.layers(1)
				k.same("s")
				if err := k.c.RemoveSnapshot(t.Context(), "s"); err != nil {
					t.Error(err)
				}
			}
			k.layers(0)
		}
		k.rounds()
	})
}

// TestKilledRestore: the files of a sandbox are those of before or after, of a snapshot and of a checkpoint.
func TestKilledRestore(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	for _, way := range []string{"snapshot", "checkpoint"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			create := []string{"host"}
			if way == "checkpoint" {
				create = []string{"--undo", "host"}
			}
			k := newKilled(t, create...)
			old := k.run("box", filesSum)
			if way == "snapshot" {
				if _, err := k.c.CreateSnapshot(t.Context(),
					api.SnapshotCreateParams{Sandbox: "box", Name: "s"}); err != nil {
					t.Fatal(err)
				}
			}
			next := ""
			k.before = func() {
				change := "cd /d; for i in 1 2 3 4 5; do echo " + fmt.Sprint(k.i) +
					" >e/$i/f; head -c 70000 /dev/urandom >$i; done; echo x >new"
				if k.act = k.restoreSnapshot; way == "checkpoint" {
					k.act = k.restoreCheckpoint
					b := undoBox{toolbox{k.c, k.box}, t}
					b.tool(api.ToolNameRunCommand, world.Args{"command": change})
				} else {
					k.run("box", change)
				}
				next = k.run("box", filesSum)
			}
			k.after = func(done bool) {
				if _, err := k.c.StartSandbox(t.Context(), api.StartParams{Sandbox: "box"}); err != nil {
					t.Fatal(err)
				}
				want := map[string]string{old: "", next: "new\n"}
				got := k.run("box", filesSum)
				isNew, ok := want[got]
				if rest := k.run("box", "cd /d; ls new 2>/dev/null; true"); !ok || rest != isNew || done && got != old {
					t.Errorf("%q %q, before %q, after %q", got, rest, next, old)
				}
				if way == "snapshot" {
					k.layers(1)
					return
				}
				if got != old { // so that the next round begins with the same
					if err := k.restoreCheckpoint(t.Context()); err != nil {
						t.Error(err)
					}
					if got := k.run("box", filesSum); got != old {
						t.Errorf("%q, want %q", got, old)
					}
				}
			}
			k.rounds()
		})
	}
}

func (k *killed) restoreSnapshot(ctx context.Context) error {
	_, err := k.c.RestoreSnapshot(ctx, api.SnapshotRestoreParams{Snapshot: "s"})
	return err
}

func (k *killed) restoreCheckpoint(ctx context.Context) error {
	_, err := k.c.RestoreCheckpoint(ctx, api.CheckpointRestoreParams{Sandbox: "box"})
	return err
}

// TestKilledFork: forks are whole, and what they are forked from goes on.
func TestKilledFork(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	k := newKilled(t)
	sum := k.run("box", filesSum)
	k.act = func(ctx context.Context) error {
		_, err := k.c.Fork(ctx, api.ForkParams{Sandbox: "box", Count: 2})
		return err
	}
	k.after = func(done bool) {
		if n := k.others(filesSum, sum); done && n != 2 {
			t.Errorf("%d forks", n)
		}
		if got := k.run("box", filesSum); got != sum {
			t.Errorf("%q, want %q", got, sum)
		}
		k.layers(0)
	}
	k.rounds()
}

// TestKilledStop: a sandbox that is stopped or started is stopped or runs, with its files.
func TestKilledStop(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	none := 0.0
	stop := func(ctx context.Context, k *killed) error {
		_, err := k.c.StopSandbox(ctx, api.StopParams{Sandbox: "box", TimeoutS: &none})
		return err
	}
	start := func(ctx context.Context, k *killed) error {
		_, err := k.c.StartSandbox(ctx, api.StartParams{Sandbox: "box"})
		return err
	}
	for _, way := range []string{"stop", "start"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			k := newKilled(t)
			sum := k.run("box", filesSum)
			prepare, act, want := start, stop, api.Stopped
			if way == "start" {
				prepare, act, want = stop, start, api.Running
			}
			k.before = func() {
				if err := prepare(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
			k.act = func(ctx context.Context) error { return act(ctx, k) }
			k.after = func(done bool) {
				sb, err := k.c.GetSandbox(t.Context(), "box")
				if err != nil || sb.ID != k.box || done && sb.State != want {
					t.Fatalf("%+v, %v", sb, err)
				}
				if err := start(t.Context(), k); err != nil {
					t.Fatal(err)
				}
				if got := k.run("box", filesSum); got != sum {
					t.Errorf("%q, want %q", got, sum)
				}
			}
			k.rounds()
		})
	}
}

// TestKilledPort: a port that is exposed or closed is reached, or nobody listens there.
func TestKilledPort(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	world.NeedsPython(t)
	free, err := net.Listen("tcp", world.Unlikely+"0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	_ = free.Close()
	for _, way := range []string{"expose", "close"} {
		t.Run(way, func(t *testing.T) { // one after the other: they have the same address
			k := newKilled(t)
			k.w.ServeInside(t, "box", "127.0.0.1", "8000")
			expose := func(ctx context.Context) error {
				_, err := k.c.ExposePort(ctx, api.PortExposeParams{Sandbox: "box", Port: 8000, Address: at}, nil)
				return err
			}
			end := func(ctx context.Context) error {
				_, err := k.c.ClosePort(ctx, api.PortCloseParams{Sandbox: "box", Port: 8000})
				return err
			}
			if k.act = expose; way == "close" {
				k.act = end
				k.before = func() {
					if err := expose(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			k.after = func(done bool) {
				list, err := k.c.Ports(t.Context(), "box")
				if err != nil || done && (len(list) == 1) != (way == "expose") {
					t.Fatalf("%+v, %v", list, err)
				}
				if len(list) > 0 {
					if code, body := world.Get(t, list[0].URL); code != 200 || body != "hello from 127.0.0.1" {
						t.Errorf("%d %q", code, body)
					}
					if err := end(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if c, err := net.Dial("tcp", at); err == nil {
					_ = c.Close()
					t.Error("somebody listens where nothing is exposed")
				}
			}
			k.rounds()
		})
	}
}

// TestKilledCommit: an image is made whole, or not at all.
func TestKilledCommit(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	const fill, sum = "i=0; while [ $i -lt 300 ]; do echo $i >/dir/f$i; i=$((i+1)); done",
		"ls /dir | wc -l; cat /dir/f299"
	k := newKilled(t)
	k.w.OK(t, "rm", "-f", "box")
	k.w.ImportTiny(t, "base:1")
	k.box = k.w.Create(t, "--name", "box", "-u", "0", "base:1")
	k.run("box", fill)
	want := k.run("box", sum)
	k.act = func(ctx context.Context) error {
		_, err := k.c.Commit(ctx, api.CommitParams{Sandbox: "box", Ref: "made:1"}, nil)
		return err
	}
	k.after = func(done bool) {
		seen := strings.Contains(k.w.OK(t, "image", "ls", "-q"), "made:1")
		if done && !seen {
			t.Error("there is no image")
		}
		if seen {
			sb, err := k.c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "made:1", User: "0"}},
				nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n := k.others(sum, want); n != 1 {
				t.Errorf("%d sandboxes, %s", n, sb.ID)
			}
			k.w.OK(t, "image", "rm", "made:1")
		}
		k.w.OK(t, "image", "prune")
		k.w.NothingHalf(t)
		if got := k.run("box", sum); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	k.rounds()
	k.w.RemoveLayers(t)
}
