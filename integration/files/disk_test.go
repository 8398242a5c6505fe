package files_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// limitedBox is a sandbox with a limit of disk space.
func limitedBox(t testing.TB, c *hutch.Client, l api.Limits) string {
	t.Helper()
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host", Limits: l}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// fill writes files of a MiB each until something stops it.
const fill = `i=0; while :; do head -c 1048576 /dev/zero >/tmp/f$i || exit 9; i=$((i+1)); done`

// diskCases are what reaches the limits of 16 MiB and 1,000 files, and what does not.
var diskCases = []struct {
	name, command string
	target        string // of the denial; "" is allowed
}{
	{"one file", "dd if=/dev/zero of=/tmp/f bs=1M count=1000000", "disk_bytes"},
	{"one file allowed", "dd if=/dev/zero of=/tmp/f bs=1M count=12", ""},
	{"many files", fill, "disk_bytes"},
	{"many files allowed", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do head -c 1048576 /dev/zero >/tmp/f$i || exit; done",
		""},
	{"written and removed", "for i in 1 2 3 4; do head -c 10000000 /dev/zero >/tmp/f || exit; rm /tmp/f; done", ""},
	{"a sparse terabyte", "truncate -s 1T /tmp/f; exit $?", "disk_bytes"},
	{"a sparse file allowed", "truncate -s 16M /tmp/f && truncate -s 16M /tmp/g && truncate -s 16M /tmp/h", ""},
	{"hard links", "head -c 8000000 /dev/zero >/tmp/f; for i in 1 2 3 4 5 6 7 8 9; do ln /tmp/f /tmp/$i || exit; done",
		""},
	{"empty files", "i=0; while [ $i -lt 100000 ]; do : >/tmp/$i || exit; i=$((i+1)); done", "inodes"},
	{"empty files allowed", "i=0; while [ $i -lt 900 ]; do : >/tmp/$i || exit; i=$((i+1)); done", ""},
	// Many at once: an emulated machine starts 15 processes a second. 255 ends xargs.
	{"folders", "cd /tmp && seq 100000 | xargs -n 100 sh -c 'mkdir \"$@\" || exit 255' sh", "inodes"},
	{"links", "cd /tmp && seq 100000 | xargs -n 100 sh -c 'ln -s -t /tmp \"$@\" || exit 255' sh", "inodes"},
}

// TestDisk: what a sandbox may write is bounded, however it does it, and no other one
// suffers.
func TestDisk(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	neighbour := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB})
	for _, tt := range diskCases {
		t.Run(tt.name, func(t *testing.T) {
			sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB, Inodes: 1000})
			world.CheckDisk(t, world.Ran(t, c, sb, tt.command), tt.target)
			w.OK(t, "rm", "-f", sb)
		})
	}
	if res := world.Ran(t, c, neighbour,
		"head -c 8000000 /dev/zero >/tmp/f; sleep 0.1"); res.Verdict != api.VerdictOK || res.Peaks.DiskBytes < 8000000 {
		t.Errorf("the neighbour: %+v", res)
	}
	w.OK(t, "rm", "-f", neighbour)
	out := w.Run(t, "run", "--disk", "50m", "host", "--", "dd", "if=/dev/zero", "of=/tmp/f", "bs=1M", "count=1000")
	if out.Code != 128+int(unix.SIGXFSZ) && out.Code != 137 {
		t.Errorf("exit code %d", out.Code)
	}
	out.Says(t, "limit of disk space", "52428800 bytes", "--disk")
}

// TestDiskOver: a sandbox over its limit cannot write any more, but remove files, and then
// write again.
func TestDiskOver(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	a := w.Dial(t)
	sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB})
	world.CheckDisk(t, world.Ran(t, c, sb, fill), "disk_bytes")
	world.CheckDisk(t, world.Ran(t, c, sb, "echo more >/tmp/more; exit $?"), "disk_bytes")
	e := a.Refused("resource_exhausted", "fs.write", world.Params{"sandbox": sb, "path": "/tmp/more", "data": "more"})
	if !strings.Contains(e.Data.Hint, "limits.disk_bytes") {
		t.Errorf("%+v", e)
	}
	a.Call(nil, "fs.read", world.Params{"sandbox": sb, "path": "/tmp/f0", "limit": 10})
	if res := world.Ran(t, c, sb, "rm /tmp/f*"); res.Verdict != api.VerdictOK {
		t.Errorf("%+v", res)
	}
	a.Call(nil, "fs.write", world.Params{"sandbox": sb, "path": "/tmp/more", "data": "more"})
	res := world.Ran(t, c, sb, "cat /tmp/more; echo more >>/tmp/more")
	if res.Verdict != api.VerdictOK || res.Stdout != "more" {
		t.Errorf("%+v", res)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDiskFiles: files come by fs.unpack, too.
func TestDiskFiles(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	from := w.Sub(t, "from")
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(from+"/"+name, bytes.Repeat([]byte{7}, 4*world.MiB), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sb := limitedBox(t, c, api.Limits{DiskBytes: 12 * world.MiB})
	events, err := c.Subscribe(t.Context(), api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventLimitHit}})
	if err != nil {
		t.Fatal(err)
	}
	w.Run(t, "cp", from, sb+":/tmp/to") // it may be done before anybody looks
	world.NextOf(t, events, api.EventLimitHit)
	world.CheckDisk(t, world.Ran(t, c, sb, "echo more >/tmp/more; exit $?"), "disk_bytes")
	w.Run(t, "cp", from, sb+":/tmp/again").Want(t, 125).Says(t, "limit")
	large := limitedBox(t, c, api.Limits{DiskBytes: 64 * world.MiB})
	w.OK(t, "cp", from, large+":/tmp/to")
	big := w.Sub(t, "big") + "/file"
	if err := os.WriteFile(big, make([]byte, 80*world.MiB), 0o644); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "cp", big, large+":/tmp/big").Want(t, 125)
	w.OK(t, "rm", "-f", sb, large)
}

// TestDiskUnlinked: files without a name count as long as they are open.
func TestDiskUnlinked(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	const hide = `for i in 3 4 5 6; do eval "exec $i>/tmp/u"; rm /tmp/u; head -c %d >&$i </dev/zero; done; `
	sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB})
	world.CheckDisk(t, world.Ran(t, c, sb, strings.Replace(hide, "%d", "8000000", 1)+"while :; do :; done"),
		"disk_bytes")
	world.CheckDisk(t, world.Ran(t, c, sb, strings.Replace(hide, "%d", "3000000", 1)), "")
	w.OK(t, "rm", "-f", sb)
}

// TestDiskOverlay: what is written to a workspace in mode overlay counts, too.
func TestDiskOverlay(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.Run(t, "run", "--disk", "16m", "--workspace", w.Sub(t, "work")+":overlay", "host", "--", "sh", "-c",
		strings.ReplaceAll(fill, "/tmp", "/workspace")).Says(t, "limit of disk space")
	w.OK(t, "run", "--disk", "16m", "--workspace", w.Sub(t, "work")+":overlay", "host", "--", "sh", "-c",
		"head -c 8000000 /dev/zero >/workspace/f")
}

// TestDiskLeftBehind: what an exec has left behind is ended when it writes too much.
func TestDiskLeftBehind(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB})
	events, err := c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventLimitHit, api.EventSandboxState}})
	if err != nil {
		t.Fatal(err)
	}
	world.Ran(t, c, sb, "(setsid sh -c '"+fill+"' >/dev/null 2>&1 &)")
	e := world.NextOf(t, events, api.EventLimitHit)
	var hit api.LimitEvent
	if err := json.Unmarshal(e.Data, &hit); err != nil || hit.Limit != api.VerdictDisk || hit.Detail == "" {
		t.Errorf("%+v %v", hit, err)
	}
	if !world.Grouped() { // it cannot be told from anything else
		if end := world.StateOf(t, events); end.State != api.Stopped || !strings.Contains(end.Reason, "disk_bytes") {
			t.Errorf("%+v", end)
		}
	} else if got := countHeads(t, c, sb); got != "0" {
		t.Errorf("%s of what was left behind runs", got)
	}
	w.OK(t, "rm", "-f", sb)
}

// countHeads counts the head(1) that run in a sandbox, when the watch is done with them.
func countHeads(t testing.TB, c *hutch.Client, sandbox string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience)
	defer cancel()
	for {
		res := world.Ran(t, c, sandbox,
			`n=0; for f in /proc/[0-9]*/comm; do read -r name <$f && [ "$name" = head ] && n=$((n+1)); done 2>/dev/null; echo $n`)
		if out := strings.TrimSpace(res.Stdout); out == "0" || ctx.Err() != nil {
			return out
		}
	}
}

// TestDiskDeath: the limit holds after the daemon's death.
func TestDiskDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB})
	ex := world.StartIn(t, c, sb, "read x; "+fill)
	world.Kill(t, w.Daemon(t).Hutchd)
	<-c.Done()
	c = w.Connect(t)
	if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: ex, Data: "go\n"}); err != nil {
		t.Fatal(err)
	}
	res, err := c.ExecWait(t.Context(), api.WaitParams{Exec: ex})
	if err != nil {
		t.Fatal(err)
	}
	world.CheckDisk(t, res, "disk_bytes")
	world.CheckDisk(t, world.Ran(t, c, sb, "echo more >/tmp/more; exit $?"), "disk_bytes")
	w.OK(t, "rm", "-f", sb)
}

// TestDiskInMemory: where the state folder is in memory the kernel holds the limit.
func TestDiskInMemory(t *testing.T) {
	testenv.Root(t)
	w := world.New(t)
	state := w.Sub(t, "state")
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=256m,mode=700"); err != nil {
		testenv.Require(t, probe.Check{Name: "mount_tmpfs", Status: probe.No, Detail: err.Error()})
	}
	defer func() {
		w.Shutdown()
		w.WaitGone(time.Now().Add(world.Patience))
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	c := w.Connect(t)
	for _, tt := range diskCases {
		t.Run(tt.name, func(t *testing.T) {
			sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB, Inodes: 1000})
			res := world.Ran(t, c, sb, tt.command)
			world.CheckDisk(t, res, tt.target)
			if res.Peaks.DiskBytes > 16*world.MiB || res.Peaks.Inodes > 1000 {
				t.Errorf("%+v: over the limit", res.Peaks)
			}
			w.OK(t, "rm", "-f", sb)
		})
	}
	changeDisk(t, w, c)
	// It is one file system for both, and is there for the next daemon.
	sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB})
	world.Ran(t, c, sb, "head -c 12000000 /dev/zero >/tmp/f")
	world.Kill(t, w.Daemon(t).Hutchd)
	<-c.Done()
	c = w.Connect(t)
	world.CheckDisk(t, world.Ran(t, c, sb, "head -c 12000000 /dev/zero >/tmp/g"), "disk_bytes")
	w.OK(t, "rm", "-f", sb)
	_ = c.Close()
	w.AwaitNoSandbox(t)
}

// TestDiskUpdate: the limit changes while the sandbox runs.
func TestDiskUpdate(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	changeDisk(t, w, w.Connect(t))
}

// changeDisk changes the limit of disk space of a sandbox, both ways.
func changeDisk(t *testing.T, w *world.World, c *hutch.Client) {
	t.Helper()
	sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB, Inodes: 1000})
	update := func(l api.Limits) error {
		_, err := c.Update(t.Context(), api.UpdateParams{Sandbox: sb, Limits: l})
		return err
	}
	must := func(l api.Limits) {
		t.Helper()
		if err := update(l); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(l api.Limits, code api.Code, field string) {
		t.Helper()
		var e *api.Error
		if err := update(l); !errors.As(err, &e) || e.Code != code || e.Field != field || e.Hint == "" {
			t.Errorf("%+v: %v, want %s about %s with a hint", l, err, code, field)
		}
	}
	world.CheckDisk(t, world.Ran(t, c, sb, fill), "disk_bytes")
	world.Ran(t, c, sb, "rm /tmp/f*")

	must(api.Limits{DiskBytes: 32 * world.MiB})
	world.CheckDisk(t, world.Ran(t, c, sb, "head -c 28000000 /dev/zero >/tmp/f"), "")
	refused(api.Limits{DiskBytes: 16 * world.MiB}, api.FailedPrecondition, "limits.disk_bytes")
	world.CheckDisk(t, world.Ran(t, c, sb, "head -c 1000000 /dev/zero >/tmp/g"), "") // nothing has changed
	must(api.Limits{Inodes: 3000})
	world.CheckDisk(t, world.Ran(t, c, sb, "i=0; while [ $i -lt 1500 ]; do : >/tmp/e$i || exit; i=$((i+1)); done"), "")
	refused(api.Limits{Inodes: 1000}, api.FailedPrecondition, "limits.inodes")
	world.Ran(t, c, sb, "rm -rf /tmp/f* /tmp/g /tmp/e*")

	// With a command that runs.
	ex := world.StartIn(t, c, sb,
		"until [ -e /tmp/go ]; do sleep 0.01; done; head -c 14000000 /dev/zero >/tmp/f || exit 9; exit 0")
	must(api.Limits{DiskBytes: 16 * world.MiB, Inodes: 1000})
	if res := world.Ran(t, c, sb, "touch /tmp/go"); res.Verdict != api.VerdictOK {
		t.Errorf("%+v", res)
	}
	if res, err := c.ExecWait(t.Context(), api.WaitParams{Exec: ex}); err != nil || res.Verdict != api.VerdictOK {
		t.Errorf("%+v %v", res, err)
	}
	world.CheckDisk(t, world.Ran(t, c, sb, fill), "disk_bytes")

	refused(api.Limits{DiskBytes: api.Unlimited}, api.InvalidArgument, "limits.disk_bytes")
	refused(api.Limits{DiskBytes: 1 << 60}, api.InvalidArgument, "limits.disk_bytes")
	if out := w.OK(t, "update", "--disk", "20m", "--inodes", "2000", sb); strings.TrimSpace(out) != sb {
		t.Errorf("%q", out)
	}
	rec, err := c.GetSandbox(t.Context(), sb)
	if err != nil || rec.Limits.DiskBytes != 20*world.MiB || rec.Limits.Inodes != 2000 {
		t.Errorf("%+v %v", rec.Limits, err)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDiskTooMuch: nobody can have more than the file system of the state folder.
func TestDiskTooMuch(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	var st unix.Statfs_t
	if err := unix.Statfs(w.Root(), &st); err != nil {
		t.Fatal(err)
	}
	create := func(l api.Limits) *api.Error {
		sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host", Limits: l}}, nil, nil)
		if err == nil {
			w.OK(t, "rm", "-f", sb.ID)
			return nil
		}
		var e *api.Error
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		return e
	}
	size := int64(st.Blocks) * st.Bsize
	if e := create(api.Limits{DiskBytes: size + 1}); e == nil || e.Code != api.InvalidArgument ||
		e.Field != "limits.disk_bytes" ||
		!strings.Contains(e.Hint, strconv.FormatInt(size, 10)) {
		t.Errorf("%+v, want the bound %d", e, size)
	}
	if e := create(api.Limits{DiskBytes: size}); e != nil {
		t.Errorf("all of it: %v", e)
	}
	if st.Files == 0 {
		return // btrfs counts none
	}
	if e := create(api.Limits{Inodes: int64(st.Files) + 1}); e == nil || e.Code != api.InvalidArgument ||
		e.Field != "limits.inodes" ||
		!strings.Contains(e.Hint, strconv.FormatUint(st.Files, 10)) {
		t.Errorf("%+v, want the bound %d", e, st.Files)
	}
}
