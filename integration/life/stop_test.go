package life_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// TestStop: what is stopped keeps its files, id, name and policy and nothing else, and goes on where it was; also with
// another hutchd and with another daemon.
func TestStop(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "file"), "mine\n")
	w.ImportTiny(t, "tiny")
	args := []string{"--name", "box", "-e", "A=b", "-l", "k=v", "--workspace", dir + ":overlay", "--disk", "64m", "-u",
		"0", "tiny"}
	id := w.Create(t, args...)
	folders := []string{"start", "--workspace", dir + ":overlay", "box"}
	w.OK(t, "exec", "box", "sh", "-c",
		"echo kept >/tmp/f; echo new >>file; mkdir -p /d/e; ln -s f /d/l; rm -rf /etc /opt; sleep 1000 >/dev/null 2>&1 &")
	pid := world.Decode[api.Sandbox](t, w.OK(t, "inspect", "box")).PID

	say := func() {
		t.Helper()
		w.OK(t, "exec", "-d", "box", "sh", "-c", "echo said")
		w.OK(t, "wait", "box")
	}
	say()
	stopped := func() {
		t.Helper()
		if got := w.OK(t, "logs", "box"); got != "said\n" {
			t.Errorf("what it had written is %q", got)
		}
		sb := world.Decode[api.Sandbox](t, w.OK(t, "inspect", "box"))
		if sb.State != api.Stopped || !sb.Kept || sb.PID != 0 || sb.ID != id || sb.Labels["k"] != "v" {
			t.Errorf("%+v", sb)
		}
		w.AwaitNoSandbox(t)
		w.Run(t, "exec", "box", "true").Want(t, 125).Says(t, "stopped", "hutch start")
	}
	started := func() {
		t.Helper()
		got := w.OK(t, "exec", "box", "sh", "-c",
			"cat /tmp/f file; readlink /d/l; ls -d /etc 2>/dev/null; echo $A; pidof sleep || true")
		if got != "kept\nmine\nnew\nf\nb\n" {
			t.Errorf("%q", got)
		}
		sb := world.Decode[api.Sandbox](t, w.OK(t, "inspect", "box"))
		if sb.ID != id || sb.State != api.Running || sb.Limits.DiskBytes != 64<<20 {
			t.Errorf("%+v", sb)
		}
		w.Run(t, "logs", "box").Want(t, 125)
		say()
	}

	w.OK(t, "stop", "-t", "0", "box")
	if !world.Ended(pid, world.Patience) {
		t.Error("PID 1 lives")
	}
	stopped()
	w.OK(t, "stop", "box")
	w.Run(t, "start", "-v", dir+":/elsewhere", "box").Want(t, 125).Says(t, "/elsewhere")
	stopped()
	w.OK(t, folders...)
	w.OK(t, folders...)
	started()
	if got := world.Read(t, filepath.Join(dir, "file")); got != "mine\n" {
		t.Errorf("the folder has %q", got)
	}

	w.OK(t, "stop", "-t", "0", "box")
	world.Kill(t, w.Daemon(t).Hutchd)
	stopped()
	w.OK(t, folders...)
	started()
	if got := w.OK(t, "workspace", "diff", "box"); !strings.Contains(got, "file") {
		t.Errorf("diff %q", got)
	}
	w.OK(t, "kill", "box") // one that has ended otherwise
	w.OK(t, folders...)
	started()

	w.OK(t, "stop", "-t", "0", "box")
	w.Restart(t)
	w.OK(t, "image", "rm", "tiny")
	w.OK(t, "gc")
	w.OK(t, "image", "prune", "-a")
	stopped()
	w.OK(t, folders...)
	started()

	// Another folder under the same path is not the one that it had.
	w.OK(t, "stop", "-t", "0", "box")
	if err := os.Rename(dir, dir+"-old"); err != nil {
		t.Fatal(err)
	}
	w.Sub(t, "project")
	w.Run(t, folders...).Want(t, 125).Says(t, "another folder")
	stopped()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	w.Run(t, folders...).Want(t, 125)
	if err := os.Rename(dir+"-old", dir); err != nil {
		t.Fatal(err)
	}
	w.OK(t, folders...)
	started()
	w.OK(t, "stop", "-t", "0", "box")
	w.OK(t, "rm", "box")
	w.Run(t, "start", "box").Want(t, 125).Says(t, "no sandbox")
	for _, sub := range []string{"boxes", "tmp", "layers"} {
		if left, err := os.ReadDir(filepath.Join(w.Root(), "data/shelf", sub)); err != nil || len(left) > 0 {
			t.Errorf("shelf/%s: %v %v", sub, left, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(w.Root(), "data/images/pins")); len(left) > 0 {
		t.Errorf("pins: %v", left)
	}
}

// TestStopScope: a scope's sandbox that was stopped goes on when somebody asks for the scope, also of another daemon.
func TestStopScope(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	run := func(command string) string {
		t.Helper()
		return w.OK(t, "run", "--scope", "session:chat", "--workspace", dir+":overlay", "host", "--", "sh", "-c",
			command)
	}
	sb := w.Create(t, "--name", "chat", "--scope", "agent:chat", "--workspace", dir+":overlay", "host")
	ask := func(command string) string {
		t.Helper()
		return w.OK(t, "run", "--scope", "agent:chat", "--workspace", dir+":overlay", "host", "--", "sh", "-c", command)
	}
	ask("echo kept >/opt/lib; echo x >new")
	run("true") // a session ends with its connection, as ever
	w.OK(t, "stop", "-t", "0", "chat")
	w.Restart(t)
	if got := w.OK(t, "scope", "ls", "-q"); got != "agent:chat\n" {
		t.Errorf("%q", got)
	}
	if got := ask("cat /opt/lib new"); got != "kept\nx\n" {
		t.Errorf("%q", got)
	}
	if got := strings.TrimSpace(w.OK(t, "create", "--scope", "agent:chat", "host")); got != sb {
		t.Errorf("%q, want %q", got, sb)
	}
	w.OK(t, "scope", "end", "agent:chat")
}

// TestStopEnds: stop says what ended.
func TestStopEnds(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := w.Create(t, "host")
	ex := world.StartIn(t, c, sb, "trap 'echo bye >/tmp/bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
	if up := world.Written(t, c, ex); up != "up\n" { // it has its trap
		t.Fatalf("%q", up)
	}
	sh, err := c.OpenShell(t.Context(), api.ShellParams{Sandbox: sb})
	if err != nil {
		t.Fatal(err)
	}
	late := 5.0
	r, err := c.StopSandbox(t.Context(), api.StopParams{Sandbox: sb, TimeoutS: &late})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Ended.Execs, []string{ex}) || !slices.Equal(r.Ended.Shells, []string{sh.Shell}) ||
		r.Ended.Note == "" {
		t.Errorf("%+v", r.Ended)
	}
	if _, err := c.StartSandbox(t.Context(), api.StartParams{Sandbox: sb}); err != nil {
		t.Fatal(err)
	}
	if res := world.Ran(t, c, sb, "cat /tmp/bye"); res.Stdout != "bye\n" {
		t.Errorf("%+v", res)
	}
	tooLate := 1e6
	if _, err := c.StopSandbox(t.Context(),
		api.StopParams{Sandbox: sb, TimeoutS: &tooLate}); api.ErrorCode(err) != api.InvalidArgument {
		t.Error(err)
	}
	if _, err := c.StartSandbox(t.Context(), api.StartParams{Sandbox: "none"}); api.ErrorCode(err) != api.NotFound {
		t.Error(err)
	}
	// Nor does a caller keep anybody who does not read what a command has written.
	unread(t, w, c, sb)
	w.OK(t, "stop", "-t", "0", sb)
	w.OK(t, "start", sb)
	unread(t, w, c, sb)
	w.OK(t, "rm", "-f", sb)
}

// unread has a command write more to a pipe than is read of it.
func unread(t *testing.T, w *world.World, c *hutch.Client, sb string) {
	t.Helper()
	read, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	t.Cleanup(func() { read.Close() })
	command := "head -c 110000 /dev/zero; echo >/tmp/written; exec sleep 1000" // two pipes take it
	if _, err := c.ExecStart(t.Context(), api.ExecParams{Sandbox: sb, User: "1000", Command: command},
		&hutch.Stdio{Stdout: out}); err != nil {
		t.Fatal(err)
	}
	w.OK(t, "exec", sb, "sh", "-c", "until rm /tmp/written 2>/dev/null; do sleep 0.02; done")
}

// TestStopSignal: commands are asked to end by the signal that the image names, or the sandbox, also when its time is
// over.
func TestStopSignal(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	file := filepath.Join(w.Sub(t, "image"), "shell.tar")
	world.Write(t, file,
		string(imagetest.Tar(imagetest.Dir("tmp"), imagetest.Dir("bin"),
			imagetest.Exec("bin/sh", world.StaticShell(t)))))
	w.OK(t, "image", "import", "-q", "--change", "STOPSIGNAL SIGINT", file, "stops:1")
	w.OK(t, "image", "import", "-q", "--change", "STOPSIGNAL SIGNONE", file, "wrong:1")
	late := 30.0
	for _, tt := range []struct{ want, image, flag string }{
		{"INT", "stops:1", ""}, {"USR1", "stops:1", "--stop-signal=SIGUSR1"},
		{"38", "stops:1", "--stop-signal=RTMIN+4"}, {"TERM", "wrong:1", ""},
	} {
		args := []string{"--pull", "never", tt.image}
		if tt.flag != "" {
			args = append([]string{tt.flag}, args...)
		}
		sb := w.Create(t, args...)
		ex := world.StartIn(t, c, sb,
			`for s in INT TERM USR1 38; do trap "echo $s >/tmp/got; exit 0" $s; done; echo up; while :; do sleep 0.05; done`)
		if up := world.Written(t, c, ex); up != "up\n" {
			t.Fatalf("%q", up)
		}
		if _, err := c.StopSandbox(t.Context(), api.StopParams{Sandbox: sb, TimeoutS: &late}); err != nil {
			t.Fatal(err)
		}
		// what it had written is kept
		for _, args := range [][]string{{"logs", sb}, {"logs", ex}, {"logs", "-f", sb}, {"logs", "-n", "1", sb}} {
			if r := w.Run(t, args...).Want(t, 0); r.Stdout != "up\n" {
				t.Errorf("%q: %+v", args, r)
			}
		}
		if got := w.OK(t, "wait", sb); got != "0\n" {
			t.Errorf("wait says %q", got)
		}
		// nothing of it is left
		if res, err := c.ExecKill(t.Context(), ex); err != nil || res.Stdout != "up\n" || len(res.Killed) > 0 {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := c.StartSandbox(t.Context(), api.StartParams{Sandbox: sb}); err != nil {
			t.Fatal(err)
		}
		if res := world.Ran(t, c, sb, "cat /tmp/got"); res.Stdout != tt.want+"\n" {
			t.Errorf("%s %s: %+v, want %s", tt.image, tt.flag, res, tt.want)
		}
		w.OK(t, "rm", "-f", sb)
	}
	w.Run(t, "create", "--stop-signal", "SIGNONE", "host").Want(t, 125).Says(t, "SIGNONE", "--stop-signal")
	w.RemoveLayers(t)
}
