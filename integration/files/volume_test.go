package files_test

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// volumeBox makes a sandbox with a volume at /data.
func volumeBox(t testing.TB, c *hutch.Client, name string, mode api.MountMode, l api.Limits) (string, error) {
	t.Helper()
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{
		Image: "host", Limits: l, Mounts: []api.Mount{{Volume: name, Target: "/data", Mode: mode}},
	}}, nil, nil)
	return sb.ID, err
}

// TestNamedVolume: what is written to a volume outlives the sandbox, and is there for the next.
func TestNamedVolume(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.OK(t, "run", "-v", "cache:/data", "host", "--", "sh", "-c",
		"echo kept >/data/f; chmod 755 /data/f; ln -s /etc/passwd /data/link")
	for mode, says := range map[string]string{"ro": "kept\nrefused\n", "overlay": "kept\nchanged\n",
		"rw": "kept\nchanged\n"} {
		got := w.OK(t, "run", "-v", "cache:/data:"+mode, "host", "--", "sh", "-c",
			"cat /data/f; { echo changed >/data/g; } 2>/dev/null && cat /data/g || echo refused; rm -f /data/g")
		if got != says {
			t.Errorf("%s: %q, want %q", mode, got, says)
		}
	}
	if got := w.OK(t, "volume", "ls", "-q"); got != "cache\n" {
		t.Errorf("volumes %q", got)
	}
	w.OK(t, "run", "-v", "other:/data", "host", "--", "sh", "-c", `test -z "$(ls /data)"`) // another name, another volume
	// nothing would ever be in it
	for _, mode := range []string{"ro", "overlay"} {
		w.Run(t, "run", "-v", "none:/data:"+mode, "host", "true").Want(t, 125).
			Says(t, `no volume "none"`, "hutch volume ls")
	}
	w.Run(t, "volume", "create", "cache").Want(t, 125).Says(t, "exists")
	w.Run(t, "volume", "create", "../cache").Want(t, 125).Says(t, "no name of a volume")
	w.Run(t, "volume", "rm", "none").Want(t, 125).Says(t, `no volume "none"`)
	if got := w.OK(t, "volume", "create", "third"); got != "third\n" {
		t.Errorf("created %q", got)
	}

	sb := w.Create(t, "-v", "cache:/data:ro", "host")
	w.Run(t, "volume", "rm", "cache").Want(t, 125).Says(t, "in use", "hutch volume ls")
	list := world.Decode[[]api.Volume](t, w.OK(t, "volume", "ls", "--json", "--size"))
	if len(list) != 3 || list[0].Name != "cache" || len(list[0].Sandboxes) != 1 || list[0].Sandboxes[0] != sb ||
		*list[0].Bytes < 4096 || *list[0].Inodes < 2 || len(list[1].Sandboxes) != 0 {
		t.Errorf("%+v", list)
	}
	w.OK(t, "rm", "-f", sb)
	w.OK(t, "volume", "rm", "cache", "other", "third")
	if got := w.OK(t, "volume", "ls", "-q"); got != "" {
		t.Errorf("left %q", got)
	}
	w.OK(t, "run", "-v", "cache:/data", "host", "--", "sh", "-c", `test -z "$(ls /data)"`) // the name is free, and the files are gone
	w.OK(t, "volume", "rm", "cache")
}

// TestVolumeShared: sandboxes that have the same volume see each other's files, as their users; none but files pass.
func TestVolumeShared(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	a, errA := volumeBox(t, c, "both", api.ModeRW, api.Limits{})
	b, errB := volumeBox(t, c, "both", api.ModeRW, api.Limits{})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	world.Ran(t, c, a, "echo from a >/data/f; mkfifo /data/p; cp /bin/sh /data/sh; chmod 4755 /data/sh")
	if res := world.Ran(t, c, b, "cat /data/f; stat -c %u:%a /data/f"); res.Stdout != "from a\n0:644\n" {
		t.Errorf("%+v", res)
	}
	if res := world.Ran(t, c, b, "grep ' /data ' /proc/self/mountinfo | cut -d' ' -f6"); !strings.Contains(res.Stdout,
		"nosuid,nodev") {
		t.Errorf("mounted %q", res.Stdout)
	}
	w.OK(t, "rm", "-f", a)
	if res := world.Ran(t, c, b, "cat /data/f"); res.Stdout != "from a\n" {
		t.Errorf("%+v", res)
	}
	w.OK(t, "rm", "-f", b)
	w.OK(t, "volume", "rm", "both")
}

// TestVolumeDisk: a volume is no way around the limit of disk space, for the sandbox that fills it and for the next;
// what is over the limit can be removed. Killing hutchd changes nothing of that.
func TestVolumeDisk(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	limits := api.Limits{DiskBytes: 16 * world.MiB}
	toVolume := strings.ReplaceAll(fill, "/tmp/", "/data/")
	sb, err := volumeBox(t, c, "full", api.ModeRW, limits)
	if err != nil {
		t.Fatal(err)
	}
	if res := world.Ran(t, c, sb, "head -c 8000000 /dev/zero >/data/some; sleep 0.1"); res.Verdict != api.VerdictOK ||
		res.Peaks.DiskBytes < 8000000 {
		t.Errorf("within the limit: %+v", res)
	}
	ex := world.StartIn(t, c, sb, "read x; "+toVolume)
	world.Kill(t, w.Daemon(t).Hutchd)
	<-c.Done()
	c = w.Reconnect(t)
	if err := c.RemoveVolume(t.Context(), "full"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("remove: %v", err)
	}
	if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: ex, Data: "go\n"}); err != nil {
		t.Fatal(err)
	}
	res, err := c.ExecWait(t.Context(), api.WaitParams{Exec: ex})
	if err != nil {
		t.Fatal(err)
	}
	world.CheckDisk(t, res, "disk_bytes")
	w.OK(t, "rm", "-f", sb)

	if sb, err = volumeBox(t, c, "full", api.ModeRW, limits); err != nil {
		t.Fatal(err)
	}
	world.CheckDisk(t, world.Ran(t, c, sb, "echo more >/data/more; exit $?"), "disk_bytes")
	if res := world.Ran(t, c, sb, "rm /data/*"); res.Verdict != api.VerdictOK {
		t.Errorf("%+v", res)
	}
	if res := world.Ran(t, c, sb, "echo more >/data/more && cat /data/more"); res.Verdict != api.VerdictOK ||
		res.Stdout != "more\n" {
		t.Errorf("%+v", res)
	}
	w.OK(t, "rm", "-f", sb)
	w.OK(t, "volume", "rm", "full")
}
