package program

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/bpf/bpftest"
)

// stray is a daemon with a sandbox.
type stray struct {
	t    *testing.T
	root string
	env  []string
	dir  string // the cgroup that holds its sandboxes
}

// startDaemon has the hutch command start one, by the creation of a sandbox.
func startDaemon(t *testing.T) *stray {
	t.Helper()
	root := t.TempDir()
	d := &stray{t: t, root: root}
	d.env = append(os.Environ(), "HUTCH_ROOT="+root, "HUTCH_SOCKET="+root+"/socket", "HUTCH_CONFIG="+root+
		"/config.yaml", "HOME="+root)
	d.hutch("create", "host")
	mount := bpftest.Cgroup(t, 0) // in the test's own cgroup, which may be below the mount point
	for st, above := inode(t, mount), ""; st != 1; st = inode(t, mount) {
		if above = filepath.Dir(mount); above == mount {
			t.Fatal("no root of the cgroup2 hierarchy")
		}
		mount = above
	}
	for _, pid := range d.processes() {
		if found, _ := filepath.Glob(fmt.Sprintf("%s/hutch-*-%d-*/sandboxes", mount, pid)); len(found) == 1 {
			d.dir = found[0]
		}
	}
	if d.dir == "" {
		t.Fatal("the daemon has no cgroup2 folder for sandboxes")
	}
	return d
}

func (d *stray) hutch(args ...string) string {
	d.t.Helper()
	cmd := exec.Command(testenv.Bin(d.t, "hutch"), args...)
	cmd.Env = d.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("hutch %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// processes are those that have the daemon's folder in their environment, and what they have
// started.
func (d *stray) processes() []int {
	found := map[int]bool{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for again := true; again; {
		again = false
		for _, dir := range all {
			pid := number(filepath.Base(dir))
			environ, _ := os.ReadFile(dir + "/environ") // it may have ended
			status, _ := os.ReadFile(dir + "/status")
			_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
			parent, _, _ := strings.Cut(rest, "\n")
			if !found[pid] && (strings.Contains(string(environ), "HUTCH_ROOT="+d.root+"\x00") || parent != "" &&
				found[number(parent)]) {
				found[pid], again = true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// end sends processes a signal, 0 being none, and waits for their ends.
func end(t *testing.T, signal unix.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		endOne(t, signal, pid)
	}
}

func endOne(t *testing.T, signal unix.Signal, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := 0, error(unix.EINTR)
	// by the runtime's signals
	for late := time.Now().Add(testenv.Patience(20 * time.Second)); errors.Is(err, unix.EINTR); {
		n, err = unix.Poll(fds, int(max(0, time.Until(late)).Milliseconds()))
	}
	if n != 1 {
		t.Fatalf("process %d does not end: %v", pid, err)
	}
}

// TestStray: with everything killed that held them, the programs are still attached; hutch gc
// of another daemon removes their cgroup, and the kernel frees them. What a living daemon
// has, and programs in somebody else's cgroup, stay.
func TestStray(t *testing.T) {
	other := newRig(t, "yes") // somebody else's, by no name of hutch's
	other.sandbox("sb", &bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}})
	living, dead := startDaemon(t), startDaemon(t)
	defer func() {
		all := living.processes()
		living.hutch("rpc", "system.shutdown", `{"mode":"kill"}`)
		end(t, 0, all...)
	}()
	ours, _ := ids(t, living.dir)
	theirs, _ := ids(t, other.dir)
	strays, _ := ids(t, dead.dir)
	if len(ours) != 6 || len(theirs) != 6 || len(strays) != 6 {
		t.Fatalf("programs %v, %v, %v; want 6 of each", ours, theirs, strays)
	}

	end(t, unix.SIGKILL, dead.processes()...)
	group := filepath.Dir(dead.dir)
	testenv.Unpopulated(t, group, 20*time.Second)
	if got, _ := ids(t, dead.dir); !maps.Equal(got, strays) {
		t.Errorf("programs %v after the kills, had %v", got, strays)
	}
	if out := living.hutch("gc"); !strings.Contains(out, group) {
		t.Errorf("gc does not tell of %s: %s", group, out)
	}
	if _, err := os.Stat(group); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after gc: %v", group, err)
	}
	gone(t, "program", strays, func(id ebpf.ProgramID) (interface{ Close() error },
		error) {
		return ebpf.NewProgramFromID(id)
	})
	if got, _ := ids(t, living.dir); !maps.Equal(got, ours) {
		t.Errorf("the living daemon has programs %v, had %v", got, ours)
	}
	if got, _ := ids(t, other.dir); !maps.Equal(got, theirs) {
		t.Errorf("somebody else has programs %v, had %v", got, theirs)
	}
	w := other.worker("sb")
	other.expect(w, "listen", "ok")
	other.expect(w, tcp4+"198.18.0.5:7000", "ok")
	other.expect(w, tcp4+"198.18.0.6:7000", refusal)
}
