package world

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Memory is a field of /proc/PID/status, in MB.
func Memory(t testing.TB, pid int, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if kb, found := bytes.CutPrefix(line, []byte(field+":")); found {
			n, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(kb), []byte("kB")))))
			if err != nil {
				t.Fatal(err)
			}
			return n / 1000
		}
	}
	t.Fatalf("no %s of process %d", field, pid)
	return 0
}

// Parts are the processes of one daemon.
type Parts struct {
	Monitor, Launch, Hutchd int
	Sandboxes               []int // PID 1 of each, and what runs in them
}

// Daemons finds the daemons of the world.
func (w *World) Daemons() []Parts {
	var found []Parts
	all := w.Processes()
	for _, m := range all {
		if !slices.Contains(m.Args, "serve") || filepath.Base(m.Name()) != "hutchd" {
			continue
		}
		d := Parts{Monitor: m.PID}
		for _, p := range all {
			if p.Name() != "hutch-launch" {
				continue
			}
			if p.ppid == m.PID {
				d.Launch = p.PID
				break
			}
			if p.ppid == os.Getpid() { // its own monitor is dead
				d.Launch = p.PID
			}
		}
		for _, p := range all {
			switch {
			case p.ppid == d.Launch && p.Name() == "hutchd":
				d.Hutchd = p.PID
			case d.Launch != 0 && descends(all, p, d.Launch):
				d.Sandboxes = append(d.Sandboxes, p.PID)
			}
		}
		found = append(found, d)
	}
	return found
}

// descends reports whether p is below the process of that pid.
func descends(all []Process, p Process, pid int) bool {
	for {
		if p.ppid == pid {
			return true
		}
		i := slices.IndexFunc(all, func(q Process) bool { return q.PID == p.ppid })
		if i < 0 {
			return false
		}
		p = all[i]
	}
}

// OneDaemon is daemon, when all others have ended: of two that were started at once one finds the other, and goes.
func (w *World) OneDaemon(t testing.TB) Parts {
	t.Helper()
	for range 10 {
		all := w.Daemons()
		if len(all) < 2 {
			break
		}
		var fds []unix.PollFd
		for _, d := range all {
			if fd, err := unix.PidfdOpen(d.Monitor, 0); err == nil {
				defer unix.Close(fd)
				fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		if len(fds) == len(all) {
			_, _ = unix.Poll(fds, int(Patience.Milliseconds())) // the daemons are looked at again
		}
	}
	return w.Daemon(t)
}

// Daemon is the world's one running daemon.
func (w *World) Daemon(t testing.TB) Parts {
	t.Helper()
	all := w.Daemons()
	if len(all) != 1 || all[0].Hutchd == 0 {
		t.Fatalf("daemons: %+v, want one whole", all)
	}
	return all[0]
}

// KillNow sends SIGKILL to processes at once. One that has ended is no failure: the death of one
// part of a daemon may take the next along.
func KillNow(t testing.TB, pids []int) {
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

// Kill sends SIGKILL and waits for the end.
func Kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatalf("kill %d: %v", pid, err)
	}
	if !Ended(pid, Patience) {
		testenv.Wrong(t, "process %d survives SIGKILL", pid)
		t.FailNow()
	}
}

// SandboxFolders are the folders of the world's sandboxes, whichever daemon's, without those that
// were launched ahead and wait for somebody who asks.
func (w *World) SandboxFolders() []string {
	dirs, _ := filepath.Glob(filepath.Join(w.Root(), "data/daemons/*/sandboxes/*"))
	return slices.DeleteFunc(dirs, waits)
}

// waits says whether the folder is that of a sandbox launched ahead which nobody has claimed.
func waits(dir string) bool {
	_, ahead := os.Stat(filepath.Join(dir, "base"))
	_, unclaimed := os.Stat(filepath.Join(dir, "record.json.tmp")) // becomes the record
	return ahead == nil && unclaimed == nil
}

// AwaitNoSandbox returns when the running daemon has removed its last sandbox: its folder goes
// behind its processes.
func (w *World) AwaitNoSandbox(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	homes, _ := filepath.Glob(filepath.Join(w.Root(), "data/daemons/*/sandboxes"))
	for _, dir := range homes {
		AwaitEmpty(t, dir, deadline)
	}
}

// AWhile is long enough for a command to start and set its traps, and short enough to wait for.
func AWhile() time.Duration { return max(time.Second, testenv.Patience(time.Second/4)) }

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
				fmt.Fprintf(&b, " %v %d bytes, %v old", info.Mode(), info.Size(), time.Since(info.ModTime()).
					Round(time.Millisecond))
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

// AwaitEmpty returns when a folder of sandboxes holds none but those that wait, or is gone.
func AwaitEmpty(t testing.TB, dir string, deadline time.Time) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_DELETE_SELF); errors.Is(err,
		unix.ENOENT) {
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
		// One that is being launched ahead is known as such when a folder in its own is there, which no event here
		// tells.
		n, err := unix.Poll(fds, int(clamp(time.Until(deadline), 0, 100*time.Millisecond).Milliseconds()))
		if n == 0 && err == nil && time.Now().After(deadline) {
			testenv.Wrong(t, "%s still holds %s", dir, describe(dir, entries))
			t.FailNow()
		}
		_, _ = unix.Read(fd, buf)
	}
}

// Victims are the parts of a daemon whose death its sandboxes survive.
var Victims = []struct {
	Name string
	PIDs func(Parts) []int
}{
	{"hutchd", func(p Parts) []int { return []int{p.Hutchd} }},
	{"monitor", func(p Parts) []int { return []int{p.Monitor} }},
	{"both", func(p Parts) []int { return []int{p.Hutchd, p.Monitor} }},
}

// AwaitReady waits until so many sandboxes are launched ahead, which they are while none is created. They are no
// sandboxes yet, so there are no events of them.
func (w *World) AwaitReady(t *testing.T, n int) {
	t.Helper()
	c := w.Dial(t)
	defer c.Close()
	testenv.Poll(t, Limit, fmt.Sprintf("not %d sandboxes were launched ahead", n),
		func() bool { return c.Ready() >= n })
}

// Ready is how many sandboxes wait that were launched ahead.
func (c *Conn) Ready() int {
	c.T.Helper()
	var info api.Info
	c.Call(&info, "system.info", nil)
	return info.Counts.Ready
}

// AwaitRemovals returns when ok says so, which it asks whenever something goes in one of the folders, cgroups for
// example; after Patience it says no.
func AwaitRemovals(t testing.TB, dirs []string, ok func() bool) bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE); err != nil {
			t.Fatalf("watch %s: %v", dir, err)
		}
	}
	if err := events.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); !ok(); {
		switch _, err := events.Read(buf); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case err != nil:
			t.Fatal(err)
		}
	}
	return true
}

// HeldAgain repeats work until the daemon holds no more than when it was idle. An
// answer may be here before the daemon has closed its last file; what leaks only
// gets more.
func (w *World) HeldAgain(t *testing.T, what string, idle Resources, work func()) {
	t.Helper()
	var now Resources
	for range HeldTries {
		work()
		if now = w.Resources(t); !now.above(idle) {
			return
		}
	}
	testenv.Wrong(t, "%s: the daemon held %+v, now %+v", what, idle, now)
}

// NetworksAhead is how many network namespaces hutchd keeps for sandboxes to come, with the
// one that it makes to find that there are enough.
const NetworksAhead = 4 + 1

// HeldTries bounds HeldAgain.
const HeldTries = 10

// Resources are what a daemon could leak.
type Resources struct {
	processes, Mounts, Cgroups int
	Hutchd, Launch             int // open fds
	Networks                   int // of hutchd's

	files string // that are open, for who reads of a leak
}

// above reports whether there is more of anything.
func (r Resources) above(idle Resources) bool {
	return r.processes > idle.processes || r.Mounts > idle.Mounts || r.Cgroups > idle.Cgroups ||
		r.Hutchd > idle.Hutchd || r.Launch > idle.Launch
}

// Resources counts what the world's daemon holds.
func (w *World) Resources(t *testing.T) Resources {
	t.Helper()
	d := w.Daemon(t)
	networks := 0
	var files []string
	fds := func(pid int) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		n, watching := 0, false
		for _, e := range entries {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
			if strings.HasPrefix(to, "net:") && pid == d.Hutchd {
				networks++
			}
			switch {
			case strings.HasPrefix(to, "socket:"): // connections come and go
			case to == "anon_inode:[pidfd]", strings.HasPrefix(to, "/sys/fs/cgroup/"):
				// What libcontainer leaves to the garbage collector.
			case to == "anon_inode:inotify" && !watching:
				watching = true // the host: not while it changes, as when another test makes an account
			default:
				n++
				files = append(files, to)
			}
		}
		return n
	}
	groups := 0
	for _, tree := range w.LeftCgroups() {
		dirs, _ := filepath.Glob(filepath.Join(tree, "sandboxes", "*", "cgroup.procs"))
		groups += len(dirs)
	}
	mounts := 0
	for _, line := range Lines(fmt.Sprintf("/proc/%d/mountinfo", d.Hutchd)) {
		// Others are the machine's: what another test mounts there comes here, too. And a daemon gets another view of
		// the host when something changes there, as an account that is made.
		_, own, found := strings.Cut(strings.Fields(line)[4], "/daemons/")
		if found && !strings.Contains(own, "/view") {
			mounts++
		}
	}
	hutchd, launch := fds(d.Hutchd), fds(d.Launch)
	slices.Sort(files)
	return Resources{
		files:    strings.Join(files, " "),
		Networks: networks, Hutchd: hutchd, Launch: launch,
		processes: len(d.Sandboxes), Mounts: mounts,
		Cgroups: groups,
	}
}
