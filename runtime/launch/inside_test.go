package launch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// inside are tests that run in hutchd's place, by name.
var inside = map[string]func(t *testing.T, d *hutchd){
	"nothing":  func(*testing.T, *hutchd) {},
	"identity": insideIdentity,
	"sandbox":  insideSandbox,
	"failing":  insideFailing,
	"faults":   insideFaults,
	"parallel": insideParallel,
	"killed":   insideKilled,
	"canceled": insideCanceled,
	"signals":  insideSignals,
	"orphans":  insideOrphans,
	"overlay":  insideOverlay,
	"gone":     insideOverlayGone,
	"badinit":  insideBadInit,
	"leave":    insideLeave,
	"die":      insideDie,
	"wait":     insideWait,
	"bench":    insideBench,
	"churn":    insideChurn,

	"claim": insideClaim, "claim-binds": insideClaimBinds, "claim-hostile": insideClaimHostile,
	"claim-fails":  insideClaimFails,
	"claim-faults": insideClaimFaults, "claim-waits": insideClaimWaits,
}

// insideIdentity checks what hutchd finds itself to be.
func insideIdentity(t *testing.T, d *hutchd) {
	status := readFile(t, "/proc/self/status")
	for _, want := range []string{"Uid:\t0\t0\t0\t0\n", "Gid:\t0\t0\t0\t0\n", "CapInh:\t0000000000000000\n",
		"CapAmb:\t0000000000000000\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	if strings.Contains(status, "CapEff:\t0000000000000000") {
		t.Errorf("no capabilities:\n%s", status)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if strings.Contains(target, "memfd") || strings.HasPrefix(target, d.world.Bins) {
			t.Errorf("inherited fd %s -> %s", e.Name(), target)
		}
	}
	if _, err := unix.FcntlInt(4, unix.F_GETFD, 0); err != nil {
		t.Errorf("fd 4 is not the monitor's channel: %v", err)
	}
	if err := os.WriteFile(d.world.Mount+"/probe", nil, 0o600); err != nil {
		t.Errorf("state folder is not writable: %v", err)
	}
	if sid, err := unix.Getsid(0); err != nil || sid != os.Getppid() {
		t.Errorf("session %d, %v; want hutch-launch's, %d", sid, err, os.Getppid())
	}
}

// insideSandbox checks the walls of a sandbox from outside, then runs a command
// in it.
func insideSandbox(t *testing.T, d *hutchd) {
	sb := d.create(t, "sb_one")
	proc := fmt.Sprintf("/proc/%d/", sb.PID)
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} {
		ours, err1 := os.Readlink("/proc/self/ns/" + ns)
		theirs, err2 := os.Readlink(proc + "ns/" + ns)
		if err1 != nil || err2 != nil || ours == theirs {
			t.Errorf("%s namespace %q (ours %q), %v, %v", ns, theirs, ours, err1, err2)
		}
	}
	if got := strings.Fields(readFile(t, proc+"uid_map")); len(got) < 3 || got[0] != "0" || got[1] != "0" {
		t.Errorf("uid_map %q, want one that begins with our uid 0", got)
	}
	if mounts := readFile(t, proc+"mountinfo"); strings.Contains(mounts, filepath.Base(filepath.Dir(d.world.Mount))) {
		t.Errorf("a path of the host is in mountinfo:\n%s", mounts)
	}
	for _, phase := range []string{"overlay", "libcontainer_create", "libcontainer_start", "cgroup_check", "exec"} {
		if _, ok := sb.Phases[phase]; !ok {
			t.Errorf("phase %s is missing in %v", phase, sb.Phases)
		}
	}
	if got := d.sh(t, sb.Guest, sb.Filter,
		"cat /layer; id -u; cat /proc/1/comm; tty; ls /dev/pts"); !strings.HasPrefix(got, "top0\n") {
		t.Errorf("command in the sandbox printed %q", got)
	}
	checkInit(t, proc)
	master, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", sb.Ptmx.Fd()), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("open a pty by the sandbox's ptmx: %v", err)
	}
	defer master.Close()
	if n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN); err != nil || n != 0 {
		t.Errorf("first pty is number %d, %v", n, err)
	}
	d.destroy(t, "sb_one")
	select {
	case <-d.exitOf("sb_one"):
	default:
		t.Error("destroy returned before the exit event was delivered")
	}
}

// checkInit checks what PID 1 has, after its setup.
func checkInit(t *testing.T, proc string) {
	t.Helper()
	status := readFile(t, proc+"status")
	for _, want := range []string{
		"CapInh:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
		fmt.Sprintf("CapBnd:\t%016x\n", testCapMask), "NoNewPrivs:\t1\n", "Seccomp:\t2\n",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	if cwd, err := os.Readlink(proc + "cwd"); err != nil || cwd != "/" {
		t.Errorf("working directory %q, %v", cwd, err)
	}
	fds, err := os.ReadDir(proc + "fd")
	must(t, err)
	for _, fd := range fds {
		target, err := os.Readlink(proc + "fd/" + fd.Name())
		if errors.Is(err, fs.ErrNotExist) || err == nil && strings.HasPrefix(target, "/proc/") {
			continue // it is just looking at what a command has left
		}
		must(t, err)
		kind, _, _ := strings.Cut(target, ":")
		if target != os.DevNull && !slices.Contains([]string{"socket", "anon_inode", "pipe", "/memfd"}, kind) {
			t.Errorf("PID 1 has fd %s on %s", fd.Name(), target)
		}
	}
}

// sh sets a sandbox up, which consumes guest, and runs a shell command.
func (d *hutchd) sh(t *testing.T, guest, filter *os.File, command string) string {
	t.Helper()
	g := setUp(t, guest, filter)
	defer g.Close()
	return run(t, g, command)
}

// setUp sets a sandbox up, which consumes guest.
func setUp(t testing.TB, guest, filter *os.File) *guestapi.Client {
	t.Helper()
	g, err := guestapi.NewClient(guest)
	must(t, err)
	must(t, g.Setup(context.Background(), filter, nil, "", 0, nil))
	return g
}

// run runs a shell command in a sandbox that is set up.
func run(t *testing.T, g *guestapi.Client, command string) string {
	t.Helper()
	ctx := context.Background()
	out, err := os.CreateTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ex, err := g.Start(ctx, guestapi.Request{Argv: []string{"/bin/sh", "-c", command}, Env: []string{"PATH=/bin"}},
		[]*os.File{null, out, out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ex.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return readFile(t, out.Name())
}
