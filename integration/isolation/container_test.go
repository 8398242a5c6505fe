package isolation_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/outer"
)

// outerVar makes the test binary an outer container that runs its arguments: as the
// user of an unprivileged user namespace, with a /proc of its own, and what the value takes away.
const outerVar = "HUTCH_TEST_OUTER"

// outerUID is the one user there is in the container: root of one that has few ids is
// told to be somebody else.
const outerUID = 1234

// Outer containers.
const (
	outerPlain   = "plain"   // takes nothing: the allowed twin
	outerSeccomp = "seccomp" // no user namespaces
	outerMasked  = "masked"  // parts of /proc are covered
	outerOverlay = "overlay" // the state folder is on overlayfs
	outerBare    = "bare"    // no cgroup file system, as with ip netns exec: root's alone
)

// outerMain is the container's first process. It does not return.
func outerMain(kind string) {
	runtime.LockOSThread()
	err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err == nil {
		switch kind {
		case outerSeccomp:
			err = outer.RefuseUserNamespaces()
		case outerBare:
			err = unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH)
		case outerMasked:
			err = outer.MaskProc()
		case outerOverlay:
			dir := os.Getenv("HUTCH_ROOT")
			below := filepath.Dir(dir)
			err = unix.Mount("overlay", dir, "overlay", 0,
				fmt.Sprintf("userxattr,lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", below))
		}
	}
	if err == nil {
		err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	if err == nil {
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "outer container:", err)
	os.Exit(2)
}

// inContainer runs hutch in an outer container, whose end ends its daemon.
func inContainer(t *testing.T, w *world.World, kind string, args ...string) world.Result {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{filepath.Join(w.Bin, "hutch")}, args...)...)
	cmd.Env = append(w.Vars, outerVar+"="+kind)
	cmd.Dir = w.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// not root, it would lose them on exec
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER},
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: outerUID, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: outerUID, HostID: os.Getegid(), Size: 1}},
	}
	if kind == outerBare { // what a user namespace inherits it cannot unmount
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	}
	return w.Finish(t, cmd)
}

// TestNoCgroups: where no cgroup file system is mounted sandboxes run without limits, which are refused, or shown as
// what stands in for them.
func TestNoCgroups(t *testing.T) {
	testenv.Axes(t, testenv.Cgroup)
	testenv.Root(t)
	t.Parallel()
	w := world.New(t)
	run := func(args ...string) world.Result {
		return inContainer(t, w, outerBare, append([]string{"run", "--private"}, args...)...)
	}
	if r := run("host", "--", "echo", "inside").Want(t, 0); r.Stdout != "inside\n" {
		t.Errorf("%+v", r)
	}
	run("-m", "100m", "host", "--", "true").Want(t, 125).Says(t, "no cgroup file system is mounted", "mount -t cgroup2")
	if r := run("-m", "100m", "--best-effort", "host", "--", "cat", "/sys/fs/cgroup/memory.max").
		Want(t, 0); r.Stdout != "104857600\n" {
		t.Errorf("%+v", r)
	}
	if doctor := inContainer(t, w, outerBare, "doctor").
		Want(t, 0); !strings.Contains(doctor.Stdout, "no cgroup file system is mounted") {
		t.Errorf("the doctor says nothing of it:\n%s", doctor.Stdout)
	}
}

// TestInContainer: inside an unprivileged outer container hutch either works or says
// which of the container's flags keeps it from it. It never makes do with less.
func TestInContainer(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Cgroup)
	t.Parallel()
	testenv.Require(t, probe.Namespaces(t.Context()), probe.Proc(t.Context()))
	for _, tt := range []struct {
		kind string
		code int
		says []string
	}{
		{outerPlain, 0, nil},
		{outerSeccomp, 125, []string{"seccomp", "--security-opt seccomp=unconfined", "apparmor=unconfined",
			"systempaths=unconfined"}},
		{outerMasked, 125, []string{"/proc", "systempaths=unconfined"}},
		{outerOverlay, 0, nil},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			w := world.New(t)
			for _, sub := range []string{"state", "lower", "upper", "work"} {
				w.Sub(t, sub)
			}
			r := inContainer(t, w, tt.kind, "run", "--private", "host", "--", "sh", "-c",
				"echo inside; echo x >/etc/written; cat /etc/written").Want(t, tt.code).Says(t, tt.says...)
			if tt.code == 0 && r.Stdout != "inside\nx\n" {
				t.Errorf("stdout %q", r.Stdout)
			}
			doctor := inContainer(t, w, tt.kind, "doctor")
			if (doctor.Code == 0) != (tt.code == 0) {
				t.Errorf("the doctor disagrees: %d\n%s", doctor.Code, doctor.Stdout)
			}
			for _, text := range tt.says {
				if !strings.Contains(doctor.Stdout, text) {
					t.Errorf("the doctor does not say %q:\n%s", text, doctor.Stdout)
				}
			}
			if tt.kind == outerOverlay && !strings.Contains(doctor.Stdout, "what sandboxes write is kept in memory") {
				t.Errorf("the doctor does not say where things are written:\n%s", doctor.Stdout)
			}
		})
	}
}
