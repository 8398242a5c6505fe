package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// parts are the processes of one daemon.
type parts struct {
	monitor, launch, hutchd int
	sandboxes               []int // PID 1 of each, and what runs in them
}

// daemons finds the daemons of the world.
func (w *world) daemons() []parts {
	var found []parts
	all := w.processes()
	for _, m := range all {
		if !slices.Contains(m.args, "serve") || filepath.Base(m.name()) != "hutchd" {
			continue
		}
		d := parts{monitor: m.pid}
		for _, p := range all {
			if p.name() != "hutch-launch" {
				continue
			}
			if p.ppid == m.pid {
				d.launch = p.pid
				break
			}
			if p.ppid == os.Getpid() { // its own monitor is dead
				d.launch = p.pid
			}
		}
		for _, p := range all {
			switch {
			case p.ppid == d.launch && p.name() == "hutchd":
				d.hutchd = p.pid
			case d.launch != 0 && descends(all, p, d.launch):
				d.sandboxes = append(d.sandboxes, p.pid)
			}
		}
		found = append(found, d)
	}
	return found
}

// descends reports whether p is below the process of that pid.
func descends(all []process, p process, pid int) bool {
	for {
		if p.ppid == pid {
			return true
		}
		i := slices.IndexFunc(all, func(q process) bool { return q.pid == p.ppid })
		if i < 0 {
			return false
		}
		p = all[i]
	}
}

// oneDaemon is daemon, when all others have ended: of two that were started at once one finds the other, and goes.
func (w *world) oneDaemon(t testing.TB) parts {
	t.Helper()
	for range 10 {
		all := w.daemons()
		if len(all) < 2 {
			break
		}
		var fds []unix.PollFd
		for _, d := range all {
			if fd, err := unix.PidfdOpen(d.monitor, 0); err == nil {
				defer unix.Close(fd)
				fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		if len(fds) == len(all) {
			_, _ = unix.Poll(fds, int(patience.Milliseconds())) // the daemons are looked at again
		}
	}
	return w.daemon(t)
}

// daemon is the world's one running daemon.
func (w *world) daemon(t testing.TB) parts {
	t.Helper()
	all := w.daemons()
	if len(all) != 1 || all[0].hutchd == 0 {
		t.Fatalf("daemons: %+v, want one whole", all)
	}
	return all[0]
}

// strike sends SIGKILL to processes at once. One that has ended is no failure: the death of one
// part of a daemon may take the next along.
func strike(t testing.TB, pids []int) {
	t.Helper()
	for _, pid := range pids {
		switch err := unix.Kill(pid, unix.SIGKILL); {
		case errors.Is(err, unix.ESRCH):
			t.Logf("%d of %v has ended before it could be killed", pid, pids)
		case err != nil:
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

// kill sends SIGKILL and waits for the end.
func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatalf("kill %d: %v", pid, err)
	}
	if !ended(pid, patience) {
		t.Fatalf("process %d survives SIGKILL", pid)
	}
}

// sandboxFolders are the folders of the world's sandboxes, whichever daemon's, without those that
// were launched ahead and wait for somebody who asks.
func (w *world) sandboxFolders() []string {
	dirs, _ := filepath.Glob(filepath.Join(w.root(), "data/daemons/*/sandboxes/*"))
	return slices.DeleteFunc(dirs, waits)
}

// waits says whether the folder is that of a sandbox launched ahead which nobody has claimed.
func waits(dir string) bool {
	_, ahead := os.Stat(filepath.Join(dir, "base"))
	_, unclaimed := os.Stat(filepath.Join(dir, "record.json.tmp")) // becomes the record
	return ahead == nil && unclaimed == nil
}

// awaitNoSandbox returns when the running daemon has removed its last sandbox: its folder goes
// behind its processes.
func (w *world) awaitNoSandbox(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(patience)
	homes, _ := filepath.Glob(filepath.Join(w.root(), "data/daemons/*/sandboxes"))
	for _, dir := range homes {
		awaitEmpty(t, dir, deadline)
	}
}

// aWhile is long enough for a command to start and set its traps, and short enough to wait for.
func aWhile() time.Duration { return max(time.Second, testenv.Patience(time.Second/4)) }

func clamp(d, low, high time.Duration) time.Duration { return max(low, min(d, high)) }

// describe tells what is in folders of sandboxes that should be gone, and how old that is.
func describe(dir string, entries []os.DirEntry) string {
	var b strings.Builder
	for _, e := range entries {
		_ = filepath.WalkDir(filepath.Join(dir, e.Name()), func(path string, d fs.DirEntry, err error) error {
			fmt.Fprintf(&b, "\n%s", path)
			if d == nil {
				return nil // it has gone
			}
			if info, ierr := d.Info(); ierr == nil {
				fmt.Fprintf(&b, " %v %d bytes, %v old", info.Mode(), info.Size(), time.Since(info.ModTime()).Round(time.Millisecond))
			}
			if err != nil {
				fmt.Fprintf(&b, ": %v", err)
			}
			return nil
		})
		if record, err := os.ReadFile(filepath.Join(dir, e.Name(), "record.json")); err == nil {
			fmt.Fprintf(&b, "\n%s", record)
		}
	}
	return b.String()
}

// awaitEmpty returns when a folder of sandboxes holds none but those that wait, or is gone.
func awaitEmpty(t testing.TB, dir string, deadline time.Time) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_DELETE_SELF); errors.Is(err, unix.ENOENT) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); ; {
		entries, err := os.ReadDir(dir)
		entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return waits(filepath.Join(dir, e.Name())) })
		if len(entries) == 0 && (err == nil || errors.Is(err, os.ErrNotExist)) {
			return
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		// One that is being launched ahead is known as such when a folder in its own is there, which no event here tells.
		n, err := unix.Poll(fds, int(clamp(time.Until(deadline), 0, 100*time.Millisecond).Milliseconds()))
		if n == 0 && err == nil && time.Now().After(deadline) {
			t.Fatalf("%s still holds %s", dir, describe(dir, entries))
		}
		_, _ = unix.Read(fd, buf)
	}
}
