package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// quotaVar names a folder on a file system with project quotas in force, of which few
// kernels for development have any: integration/vm makes one.
const quotaVar = "HUTCH_TEST_QUOTA"

// TestDiskQuota: started by root on a file system with project quotas, the kernel holds
// the limit, and nothing of it is left.
func TestDiskQuota(t *testing.T) {
	testenv.Root(t)
	disk := os.Getenv(quotaVar)
	if disk == "" {
		testenv.Require(t, probe.Check{Name: "project_quota", Status: probe.No, Detail: quotaVar + " names no folder",
			Remedy: "make test-vm CASE=quota"})
	}
	w := world.New(t)
	state := w.Sub(t, "state")
	from := filepath.Join(disk, filepath.Base(w.Dir))
	if err := errors.Join(os.Mkdir(from, 0o700), unix.Mount(from, state, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.Shutdown()
		w.WaitGone(time.Now().Add(world.Patience))
		if err := errors.Join(unix.Unmount(state, unix.MNT_DETACH), os.RemoveAll(from)); err != nil {
			t.Error(err)
		}
	}()
	c := w.Connect(t)
	for _, tt := range diskCases {
		t.Run(tt.name, func(t *testing.T) {
			sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB, Inodes: 1000})
			if n := projectsLimited(t, disk); n != 1 {
				t.Errorf("%d projects have limits, want 1", n)
			}
			res := world.Ran(t, c, sb, tt.command)
			world.CheckDisk(t, res, tt.target)
			if res.Peaks.DiskBytes > 16*world.MiB || res.Peaks.Inodes > 1000 {
				t.Errorf("%+v: over the limit", res.Peaks)
			}
			w.OK(t, "rm", "-f", sb)
			w.AwaitNoSandbox(t) // limits go behind the reply
			if n := projectsLimited(t, disk); n != 0 {
				t.Errorf("%d projects have limits, want none", n)
			}
		})
	}
	changeDisk(t, w, c)

	// Nobody inside can leave the project, nor make it another.
	sb := limitedBox(t, c, api.Limits{DiskBytes: 16 * world.MiB})
	for _, change := range []string{"x[12:16] = b'\\0' * 4", "x[0:4] = b'\\0' * 4", "x[12:16] = b'\\7\\0\\0\\0'"} {
		res := world.Ran(t, c, sb, `mkdir -p /tmp/d && exec /usr/bin/python3 -c "
import fcntl, os
fd = os.open('/tmp/d', os.O_RDONLY)
x = bytearray(fcntl.ioctl(fd, 0x801c581f, bytes(28)))
assert x[12:16] != bytes(4), 'no project'
`+change+`
try: fcntl.ioctl(fd, 0x401c5820, bytes(x))
except OSError as e: print(e.errno)
else: print('changed')
"`)
		if res.Stdout != "22\n" && res.Stdout != "1\n" { // EINVAL, EPERM
			t.Errorf("%s: %+v", change, res)
		}
	}
	// The next daemon keeps the limit.
	world.Ran(t, c, sb, "head -c 12000000 /dev/zero >/tmp/f")
	world.Kill(t, w.Daemon(t).Hutchd)
	<-c.Done()
	c = w.Connect(t)
	world.CheckDisk(t, world.Ran(t, c, sb, "head -c 12000000 /dev/zero >/tmp/g"), "disk_bytes")
	// One that is killed with all its parts leaves it to the next to take it away.
	d := w.Daemon(t)
	_ = c.Close()
	for _, pid := range []int{d.Monitor, d.Launch, d.Hutchd} {
		world.Kill(t, pid)
	}
	w.OK(t, "gc")
	w.Shutdown()
	w.OK(t, "ps")
	if n := projectsLimited(t, disk); n != 0 {
		t.Errorf("%d projects have limits, want none", n)
	}
}

// projectsLimited counts the projects of a file system that have limits.
func projectsLimited(t *testing.T, disk string) (n int) {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for next := uint32(1); ; next++ {
		q, id, err := sys.NextProjectQuota(f, next)
		if errors.Is(err, unix.ENOENT) || id < next {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if next = id; q.LimitBytes+q.LimitInodes > 0 {
			n++
		}
	}
}
