package state_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// oddFiles makes files of all kinds, and showOdd tells what there is of them.
const (
	oddFiles = `set -e; mkdir -p /d/e/f; echo one >/d/f; ln /d/f /d/hard; ln -s /etc/shadow /d/link; ln -s ../../../../../.. /d/out; mkfifo /d/pipe
chmod 4711 /d/f; truncate -s 200M /d/sparse; echo end >>/d/sparse; touch -d "2001-02-03 04:05:06" /d/e; chmod 1770 /d/e; rm /etc/hosts
mkdir -p /x/y; echo y >/x/y/z; : >/d/empty; chmod 0 /d/empty`
	showOdd = `cat /d/f; stat -c "%n %a %h %s %Y %F" /d/f /d/e /d/pipe /d/empty /d/sparse; stat -c "%i" /d/f /d/hard | uniq | wc -l; readlink /d/link /d/out; tail -c 4 /d/sparse
du -k /d/sparse | cut -f1 | tr -d '\n' | wc -c; cat /x/y/z`
)

// TestSnapshot: a snapshot is what the files were, whatever became of them; the sandbox gets them again, and forks go
// on from them, each for itself.
func TestSnapshot(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "file"), "mine\n")
	sb := w.Create(t, "--name", "box", "--workspace", dir+":overlay", "-e", "A=b", "-l", "k=v", "--disk",
		"256m", "host")
	ran := func(sandbox, command string) string {
		t.Helper()
		res := world.Ran(t, c, sandbox, command)
		if res.ExitCode != 0 {
			t.Errorf("%s: %+v", command, res)
		}
		return res.Stdout
	}
	ran("box", oddFiles+"; echo changed >>/workspace/file; echo x >/workspace/new")
	want := ran("box", showOdd)
	sleeper := strings.TrimSpace(ran("box", "sleep 1000 >/dev/null 2>&1 & echo $!"))
	id := strings.TrimSpace(w.OK(t, "snapshot", "create", "--name", "before", "box"))
	// By its number: it may not have become sleep yet.
	if got := ran("box", "kill -0 "+sleeper+" && echo runs"); got != "runs\n" {
		t.Errorf("%q", got)
	}
	w.Run(t, "snapshot", "create", "--name", "before", "box").Want(t, 125).Says(t, "belongs to snapshot")
	ran("box", "rm -r /d /x; echo other >/d; mkdir /x; echo later >/workspace/new; rm /workspace/file; echo late >/late")

	t.Run("restore", func(t *testing.T) {
		got := strings.TrimSpace(w.OK(t, "snapshot", "restore", "--workspace", dir+":overlay", "before"))
		if got != sb {
			t.Errorf("%q", got)
		}
		if got := ran("box", showOdd); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := ran("box",
			"cat /workspace/file /workspace/new; ls /late 2>/dev/null; pidof sleep; echo $A"); got != "mine\nchanged\nx\n\nb\n" && got != "mine\nchanged\nx\nb\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("fork", func(t *testing.T) {
		r, err := c.Fork(t.Context(), api.ForkParams{Sandbox: "box", Count: 3, Labels: map[string]string{"n": "m"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range r.Sandboxes {
			if f.Labels["k"] != "v" || f.Labels["n"] != "m" || f.ID == sb || f.Limits.DiskBytes != 256<<20 {
				t.Errorf("%+v", f)
			}
			if got := ran(f.ID, showOdd); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			ran(f.ID, fmt.Sprintf("echo %d >>/d/f; rm -r /x; mkdir /x; echo %d >/workspace/new", i, i))
		}
		for i, f := range r.Sandboxes {
			if got := ran(f.ID, "tail -n 1 /d/f; ls -A /x; cat /workspace/new"); got != fmt.Sprintf("%d\n%d\n", i, i) {
				t.Errorf("%q", got)
			}
		}
		if got := ran("box", showOdd); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		two, err := c.Fork(t.Context(), api.ForkParams{Sandbox: r.Sandboxes[0].ID, Name: "grandchild"})
		if err != nil {
			t.Fatal(err)
		}
		w.OK(t, "rm", "-f", r.Sandboxes[0].ID)
		if got := ran("grandchild",
			"tail -n 1 /d/f; ls -A /x; cat /x/y/z 2>/dev/null; cat /workspace/new"); got != "0\n0\n" {
			t.Errorf("%q", got)
		}
		w.OK(t, "stop", "-t", "0", "grandchild")
		w.OK(t, "rm", "-f", r.Sandboxes[1].ID, r.Sandboxes[2].ID)
		w.OK(t, "start", "--workspace", dir+":overlay", two.Sandboxes[0].ID)
		if got := ran("grandchild", "tail -n 1 /d/f; ls -A /x; readlink /d/link"); got != "0\n/etc/shadow\n" {
			t.Errorf("%q", got)
		}
		w.OK(t, "rm", "-f", "grandchild")
	})
	t.Run("outlives", func(t *testing.T) {
		w.OK(t, "rm", "-f", "box")
		w.Run(t, "snapshot", "restore", "before").Want(t, 125).Says(t, "hutch fork")
		w.Restart(t)
		c = w.Reconnect(t)
		list := world.Decode[[]api.Snapshot](t, w.OK(t, "snapshot", "ls", "--json"))
		if len(list) != 1 || list[0].ID != id || list[0].Name != "before" || list[0].Sandbox != sb ||
			list[0].Bytes <= 0 {
			t.Errorf("%+v", list)
		}
		fork := strings.TrimSpace(w.OK(t, "fork", "--snapshot", "--workspace", dir+":overlay", "before"))
		if got := ran(fork, showOdd); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		world.Kill(t, w.Daemon(t).Hutchd)
		c = w.Reconnect(t)
		w.OK(t, "snapshot", "rm", "before") // the fork needs its files still
		w.OK(t, "gc")
		if got := ran(fork, showOdd+"; echo more >/d/e/more"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		w.OK(t, "rm", "-f", fork)
	})
	for _, args := range [][]string{{"snapshot", "rm", "before"}, {"snapshot", "restore", "../x"}, {"fork", "none"},
		{"fork", "--snapshot", ""}, {"snapshot", "create", "none"}} {
		w.Run(t, args...).Want(t, 125)
	}
	w.ShelfEmpty(t)
}

// TestForkCommit: an image of a fork has what it was forked from, too; also of one that is stopped.
func TestForkCommit(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.Configure(t, "defaults:\n  disk_bytes: 500t\n") // more than there is is no reason to refuse what the origin has
	w.ImportTiny(t, "tiny")
	sb := w.Create(t, "-u", "0", "tiny")
	w.OK(t, "exec", sb, "sh", "-c", "echo one >/one; echo old >/both; mkdir /gone; echo x >/gone/x")
	fork := strings.TrimSpace(w.OK(t, "fork", sb))
	w.OK(t, "exec", fork, "sh", "-c", "echo two >/two; echo new >/both; rm -r /gone")
	w.OK(t, "stop", "-t", "0", fork)
	w.OK(t, "commit", fork, "made:1")
	w.OK(t, "rm", "-f", fork, sb)
	if got := w.OK(t, "run", "-u", "0", "made:1", "sh", "-c",
		"cat /one /two /both; ls -d /gone 2>/dev/null; true"); got != "one\ntwo\nnew\n" {
		t.Errorf("%q", got)
	}
	w.ShelfEmpty(t)
}

// TestForkEarly: where no sandbox waits, the first fork of one that runs is launched while its files are copied, which
// a fork of a snapshot need not wait for; what was launched for a fork that is refused is gone.
func TestForkEarly(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Configure(t, world.NoneAhead)
	c := w.Connect(t)
	sb := w.Create(t, "--name", "box", "host")
	world.Ran(t, c, sb, "echo then >/tmp/f")
	if _, err := c.Fork(t.Context(),
		api.ForkParams{Sandbox: sb, Name: "box"}); api.ErrorCode(err) != api.AlreadyExists {
		t.Errorf("%v", err)
	}
	sn, err := c.CreateSnapshot(t.Context(), api.SnapshotCreateParams{Sandbox: sb})
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[*api.ForkParams]int{{Sandbox: sb, Count: 2}: 1, {Snapshot: sn.ID}: 0} {
		r, err := c.Fork(t.Context(), *p)
		if err != nil {
			t.Fatal(err)
		}
		claimed := 0
		for _, f := range r.Sandboxes {
			if _, ok := f.PhasesMS["launch.claim"]; ok {
				claimed++
			}
			if got := world.Ran(t, c, f.ID, "cat /tmp/f"); got.Stdout != "then\n" {
				t.Errorf("%+v", got)
			}
			w.OK(t, "rm", "-f", f.ID)
		}
		if claimed != want {
			t.Errorf("%+v: %d claimed, want %d", *p, claimed, want)
		}
	}
	w.OK(t, "snapshot", "rm", sn.ID)
	w.OK(t, "rm", "-f", sb)
	w.ShelfEmpty(t)
}

// TestForkQuota: forks past the quota or the limit of one call are refused, and nothing of them is left.
func TestForkQuota(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.Configure(t, "quotas: {sandboxes: 4}\n")
	c := w.Connect(t)
	sb := w.Create(t, "--disk", "16m", "host")
	world.Ran(t, c, sb, "head -c 8000000 /dev/urandom >/tmp/some")
	for want, p := range map[api.Code]api.ForkParams{
		api.ResourceExhausted: {Sandbox: sb, Count: 4}, api.InvalidArgument: {Sandbox: sb, Count: 101},
		api.NotFound: {Snapshot: "none"},
	} {
		if _, err := c.Fork(t.Context(), p); api.ErrorCode(err) != want {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if got := strings.Fields(w.OK(t, "ps", "-aq")); len(got) != 1 {
		t.Errorf("%v", got)
	}
	r, err := c.Fork(t.Context(), api.ForkParams{Sandbox: sb, Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	// What was forked counts in the limit of disk space.
	res := world.Ran(t, c, r.Sandboxes[0].ID, "head -c 12000000 /dev/urandom >/tmp/more; sleep 10")
	world.CheckDisk(t, res, "disk_bytes")
	if res := world.Ran(t, c, r.Sandboxes[1].ID,
		"head -c 6000000 /dev/urandom >/tmp/more; sleep 0.3; cat /tmp/some | wc -c"); res.Stdout != "8000000\n" {
		t.Errorf("%+v", res)
	}
	for _, f := range r.Sandboxes {
		w.OK(t, "rm", "-f", f.ID)
	}
	w.OK(t, "rm", "-f", sb)
	w.ShelfEmpty(t)
}

// TestSnapshotWriters: each file is in a snapshot as it was before or after what a program writes meanwhile.
func TestSnapshotWriters(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := w.Create(t, "host")
	world.StartIn(t, c, sb,
		`mkdir /w; i=0; while :; do i=$((i+1)); for f in a b c; do yes $i | head -n 2000 >/w/.$f; mv /w/.$f /w/$f; done; done`)
	world.Ran(t, c, sb, "until [ -e /w/c ]; do sleep 0.01; done")
	for range 4 {
		sn, err := c.CreateSnapshot(t.Context(), api.SnapshotCreateParams{Sandbox: sb})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Fork(t.Context(), api.ForkParams{Snapshot: sn.ID})
		if err != nil {
			t.Fatal(err)
		}
		if res := world.Ran(t, c, r.Sandboxes[0].ID,
			"for f in /w/?; do sort -u $f | wc -l; wc -l <$f; done | sort -u"); res.Stdout != "1\n2000\n" {
			t.Errorf("%+v", res)
		}
		w.OK(t, "rm", "-f", r.Sandboxes[0].ID)
		w.OK(t, "snapshot", "rm", sn.ID)
	}
	w.OK(t, "rm", "-f", sb)
	w.ShelfEmpty(t)
}

// TestSnapshotFull: snapshots of a sandbox that fills its disk meanwhile are whole, or are refused; it ends with its
// limit, as without them.
func TestSnapshotFull(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := w.Create(t, "--disk", "48m", "host")
	ex := world.StartIn(t, c, sb,
		"i=0; while :; do head -c 1048576 /dev/urandom >/tmp/.f && mv /tmp/.f /tmp/f$i || exit 9; i=$((i+1)); sleep 0.02; done")
	var made []string
	for len(made) < 40 {
		sn, err := c.CreateSnapshot(t.Context(), api.SnapshotCreateParams{Sandbox: sb})
		if err != nil {
			if code := api.ErrorCode(err); code != api.ResourceExhausted && code != api.Unavailable {
				t.Errorf("%v", err)
			}
			break
		}
		made = append(made, sn.ID)
		if r, err := c.ExecRead(t.Context(), api.ReadParams{Exec: ex, Stream: api.Stdout}); err != nil || r.EOF {
			break
		}
	}
	late := world.Patience.Seconds()
	res, err := c.ExecWait(t.Context(), api.WaitParams{Exec: ex, WaitS: &late})
	if api.ErrorCode(err) == api.DeadlineExceeded {
		testenv.Late(t, "the command does not end: %v", err)
	}
	if err != nil || res.ExitCode == 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if len(made) == 0 {
		t.Fatal("no snapshot was made")
	}
	r, err := c.Fork(t.Context(), api.ForkParams{Snapshot: made[len(made)-1]})
	if err != nil {
		t.Fatal(err)
	}
	if got := world.Ran(t, c, r.Sandboxes[0].ID,
		`for f in /tmp/f*; do [ -e "$f" ] && wc -c <"$f"; done | sort -u`); got.Stdout != "1048576\n" &&
		got.Stdout != "" {
		t.Errorf("%+v", got)
	}
	w.OK(t, "rm", "-f", r.Sandboxes[0].ID, sb)
	for _, id := range made {
		w.OK(t, "snapshot", "rm", id)
	}
	w.ShelfEmpty(t)
}

// TestRestoreAfterRestart: another daemon restores what one before has made a snapshot of, and stopped.
func TestRestoreAfterRestart(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "--name", "box", "-l", "k=v", "host")
	w.OK(t, "exec", "box", "sh", "-c", "echo then >/tmp/f; mkdir /srv/d")
	w.OK(t, "snapshot", "create", "--name", "s", "box")
	w.OK(t, "exec", "box", "sh", "-c", "echo now >/tmp/f; rmdir /srv/d")
	w.OK(t, "stop", "-t", "0", "box")
	w.Restart(t)
	if got := strings.TrimSpace(w.OK(t, "snapshot", "restore", "s")); got != sb {
		t.Errorf("%q, want %q", got, sb)
	}
	if got := w.OK(t, "exec", "box", "sh", "-c", "cat /tmp/f; ls -d /srv/d"); got != "then\n/srv/d\n" {
		t.Errorf("%q", got)
	}
	if got := world.Decode[api.Sandbox](t, w.OK(t, "inspect", "box")); got.ID != sb || got.Labels["k"] != "v" ||
		got.State != api.Running {
		t.Errorf("%+v", got)
	}
	w.OK(t, "rm", "-f", "box")
	w.OK(t, "snapshot", "rm", "s")
	w.ShelfEmpty(t)
}

// TestSnapshotDeath: hutchd is killed at any moment of stop, start, snapshot, restore and fork. A sandbox then runs or
// is stopped, with the files of before or after, and nothing is left of the rest.
func TestSnapshotDeath(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	none := 0.0
	for name, act := range map[string]func(context.Context, *hutch.Client, string) error{
		"stop": func(ctx context.Context, c *hutch.Client, sb string) error {
			_, err := c.StopSandbox(ctx, api.StopParams{Sandbox: sb, TimeoutS: &none})
			return err
		},
		"start": func(ctx context.Context, c *hutch.Client, sb string) error {
			_, err := c.StartSandbox(ctx, api.StartParams{Sandbox: sb})
			return err
		},
		"restore": func(ctx context.Context, c *hutch.Client, _ string) error {
			_, err := c.RestoreSnapshot(ctx, api.SnapshotRestoreParams{Snapshot: "s"})
			return err
		},
		"fork": func(ctx context.Context, c *hutch.Client, sb string) error {
			_, err := c.Fork(ctx, api.ForkParams{Sandbox: sb, Count: 2})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.Tolerated = append(w.Tolerated, "take over a sandbox; it is removed")
			c := w.Connect(t)
			sb := w.Create(t, "host")
			world.Ran(t, c, sb, "echo kept >/tmp/f; head -c 3000000 /dev/urandom >/tmp/big")
			if _, err := c.CreateSnapshot(t.Context(), api.SnapshotCreateParams{Sandbox: sb, Name: "s"}); err != nil {
				t.Fatal(err)
			}
			world.Ran(t, c, sb, "echo late >/tmp/late")
			for range 4 { // a daemon whose hutchd dies more often gives up
				if name == "start" {
					w.OK(t, "stop", "-t", "0", sb)
				}
				ended := make(chan error, 1)
				go func() { ended <- act(t.Context(), c, sb) }()
				testenv.RandomMomentOf(ended, 60*time.Millisecond)
				world.Kill(t, w.Daemon(t).Hutchd)
				c = w.Reconnect(t)
				if _, err := c.StartSandbox(t.Context(), api.StartParams{Sandbox: sb}); err != nil {
					t.Fatal(err)
				}
				res := world.Ran(t, c, sb, "cat /tmp/f; wc -c </tmp/big; cat /tmp/late 2>/dev/null; true")
				if res.Stdout != "kept\n3000000\nlate\n" && (name != "restore" || res.Stdout != "kept\n3000000\n") {
					t.Fatalf("%+v", res)
				}
				list, err := c.ListSandboxes(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, other := range list {
					if other.ID != sb {
						w.OK(t, "rm", "-f", other.ID)
					}
				}
			}
			w.OK(t, "rm", "-f", sb)
			w.OK(t, "snapshot", "rm", "s")
			w.Restart(t)
			w.OK(t, "ps")
			w.ShelfEmpty(t)
		})
	}
}
