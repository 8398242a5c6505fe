package launch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/launch"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// insideSignals sends hutch-launch what a service manager or a shell would.
func insideSignals(t *testing.T, d *hutchd) {
	var sent uint64 // as the mask in /proc/PID/status has them
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		must(t, unix.Kill(os.Getppid(), sig))
		sent |= 1 << (sig - 1)
	}
	sb := d.create(t, "sb_signals")
	// hutchd must not have inherited that they are ignored. Others may be, as
	// whoever runs the tests left them.
	_, rest, _ := strings.Cut(readFile(t, fmt.Sprintf("/proc/%d/status", os.Getpid())), "SigIgn:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	if ignored, err := strconv.ParseUint(mask, 16, 64); err != nil || ignored&sent != 0 {
		t.Errorf("hutchd was started with ignored signals: SigIgn %s, %v", mask, err)
	}
	sb.Close()
	d.destroy(t, "sb_signals")
}

// insideOrphans leaves children to hutch-launch: one that ends, which it must
// reap, and one that does not, which must not survive it.
func insideOrphans(t *testing.T, d *hutchd) {
	busybox := filepath.Join(d.world.Mount, "layers", "base", "bin", "busybox")
	// hutch-launch is our subreaper, so a grandchild becomes its child.
	run := func(command string) int {
		out, err := exec.Command(busybox, "sh", "-c", command).Output()
		must(t, err)
		var pid int
		_, err = fmt.Sscan(string(out), &pid)
		must(t, err)
		return pid
	}
	pid := run(busybox + " sleep 1000 >/dev/null 2>&1 & echo $!")
	fd, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
	// POLLHUP says that it was reaped (Linux 6.9).
	fds := []unix.PollFd{{Fd: int32(fd)}}
	for {
		n, err := unix.Poll(fds, 10_000)
		if err == unix.EINTR {
			continue
		}
		must(t, err)
		if n == 0 {
			t.Errorf("orphan %d was not reaped", pid)
		}
		break
	}
	d.checkNoChildren(t)
	fmt.Fprintf(os.Stderr, "%s%d\n", reportPID, run(busybox+" setsid "+busybox+" sleep 1000 >/dev/null 2>&1 & echo $!"))
}

// insideOverlay mounts the same overlay by both interfaces of the kernel.
func insideOverlay(t *testing.T, d *hutchd) {
	for name, mount := range map[string]func(launchapi.Overlay) error{
		"fsconfig": launch.MountOverlay, "mount": launch.MountOverlayData,
	} {
		t.Run(name, func(t *testing.T) {
			f := d.folders("ov_" + name)
			o := d.request(t, "ov_"+name).Overlay
			must(t, mount(o))
			if got := readFile(t, f.root+"/layer"); got != "top" {
				t.Errorf("/layer holds %q", got)
			}
			must(t, os.WriteFile(f.root+"/written", nil, 0o644))
			if _, err := os.Stat(f.upper + "/written"); err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(readFile(t, "/proc/self/mountinfo")) {
				before, after, _ := strings.Cut(line, " - ")
				if !strings.Contains(before, f.root) {
					continue
				}
				if !strings.Contains(after, "userxattr") || !strings.Contains(after, "volatile") ||
					strings.Contains(after, d.world.Mount) {
					t.Errorf("options %q", after)
				}
			}
			must(t, sys.Detach(f.root))
			must(t, sys.Detach(f.root)) // nothing there is no error
			d.checkGone(t, "ov_"+name)
		})
	}
}

// insideOverlayGone removes the image of a mounted overlay at which nobody looks any more, and makes another under its
// names, as behind the reply to a removal: the end of the mount changes nothing of that one.
func insideOverlayGone(t *testing.T, d *hutchd) {
	for i := range 20 {
		id := fmt.Sprint("ov_gone", i)
		f := d.folders(id)
		o := d.request(t, id).Overlay
		o.Dir, o.Lower = filepath.Join(d.world.Mount, id), []string{"top", "bottom"}
		defer os.RemoveAll(o.Dir)
		write := func(text string) {
			t.Helper()
			for _, layer := range o.Lower {
				must(t, os.MkdirAll(filepath.Join(o.Dir, layer, "deep/er"), 0o755))
				must(t, os.WriteFile(filepath.Join(o.Dir, layer, "deep/er/in_"+layer), []byte(text), 0o644))
			}
		}
		write("old")
		must(t, launch.MountOverlay(o))
		if got := readFile(t, f.root+"/deep/er/in_bottom"); got != "old" {
			t.Errorf("the image has %q", got)
		}
		must(t, os.WriteFile(f.root+"/deep/er/in_top", []byte("changed"), 0o644))
		for _, layer := range o.Lower {
			must(t, rmtree.Path(filepath.Join(o.Dir, layer)))
		}
		if i%2 == 0 {
			write("new")
		}
		must(t, sys.Detach(f.root))
		d.checkGone(t, id)
		if i%2 == 0 {
			for _, layer := range o.Lower {
				if got := readFile(t, filepath.Join(o.Dir, layer, "deep/er/in_"+layer)); got != "new" {
					t.Errorf("the image that was made again has %q", got)
				}
			}
		}
	}
}

// insideLeave ends hutchd and leaves sandboxes, one with commands.
func insideLeave(t *testing.T, d *hutchd) {
	for i := range 3 {
		d.create(t, fmt.Sprintf("sb_%d", i))
	}
	sb := d.create(t, "sb_busy")
	d.sh(t, sb.Guest, sb.Filter, "(setsid sleep 1000 &) >/dev/null 2>&1")
}

// insideDie ends hutchd the hard way.
func insideDie(t *testing.T, d *hutchd) {
	d.create(t, "sb_orphaned")
	must(t, unix.Kill(os.Getpid(), unix.SIGKILL))
	select {}
}

// waiting is what insideWait says when the test may end it.
const waiting = "waiting for the end\n"

// insideWait makes sandboxes and waits to be killed.
func insideWait(t *testing.T, d *hutchd) {
	for i := range 2 {
		d.create(t, fmt.Sprintf("sb_%d", i))
	}
	fmt.Fprint(os.Stderr, waiting)
	select {}
}
