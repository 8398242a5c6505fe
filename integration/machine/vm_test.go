package machine_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// These tests are for the cases of integration/vm, which runs each in the virtual
// machine that it needs; vm-6.12 is the machine of most users.

// doctor runs it and returns what it says of one check.
func doctor(t *testing.T, w *world.World, check string) (status, remedy string) {
	t.Helper()
	r := w.Run(t, "doctor", "--json")
	found := world.Decode[struct {
		Checks []struct{ Name, Status, Detail, Remedy string }
	}](t, r.Stdout)
	for _, c := range found.Checks {
		if c.Name == check {
			t.Logf("doctor: %s: %s: %s", c.Name, c.Status, c.Detail)
			return c.Status, c.Remedy
		}
	}
	t.Fatalf("doctor knows no %s:\n%s", check, r.Stdout)
	return "", ""
}

// sudo runs a command as root, which only virtual machines let the user do.
func sudo(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("sudo", args...).CombinedOutput(); err != nil {
		t.Fatalf("sudo %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// cgroupOf is the v2 cgroup of a process.
func cgroupOf(pid int) string {
	for _, line := range world.Lines("/proc/" + strconv.Itoa(pid) + "/cgroup") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return path
		}
	}
	return ""
}

// TestVMScope: in a login session the daemon gets a scope of its own from the user's
// systemd, with the controllers that it delegates; the scope ends with the daemon, and
// outlives a monitor that was killed.
func TestVMScope(t *testing.T) {
	testenv.Machine(t, "6.12")
	testenv.Smoke(t)
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(world.Params{"limits": world.Params{"memory_bytes": 64 << 20, "pids": 50, "cpus": 0.5}})
	d := w.Daemon(t)
	if !strings.Contains(cgroupOf(d.Monitor), "/user@1000.service/") ||
		!strings.HasSuffix(cgroupOf(d.Monitor), "/daemon") {
		t.Fatalf("the monitor is in %s", cgroupOf(d.Monitor))
	}
	if cgroupOf(d.Launch) != cgroupOf(d.Monitor) || cgroupOf(d.Hutchd) != cgroupOf(d.Monitor) {
		t.Errorf("hutch-launch is in %s, hutchd in %s", cgroupOf(d.Launch), cgroupOf(d.Hutchd))
	}
	own := cgroupOf(os.Getpid())
	if !strings.Contains(own, "/session-") {
		t.Errorf("the test is in %s, no login session", own)
	}
	world.Kill(t, d.Monitor)
	if res := w.Dial(t).
		Exec(sb, "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max"); res.Stdout != "67108864\n50000 100000\n" {
		t.Errorf("behind the next monitor: %+v", res)
	}
}

// TestVMDelegated: started in a delegated scope that somebody else asked for, the
// daemon uses that one.
func TestVMDelegated(t *testing.T) {
	testenv.Machine(t, "6.12")
	testenv.Smoke(t)
	w := world.New(t)
	ready, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	serve := w.Program("systemd-run", "--user", "--scope", "-q", "-p", "Delegate=yes", "--unit=outer.scope",
		"env", "XDG_RUNTIME_DIR="+w.Path("run"), filepath.Join(w.Bin, "hutchd"), "serve", "--ready-fd", "3")
	serve.Path = "/usr/bin/systemd-run"
	serve.Env = append(serve.Env, "XDG_RUNTIME_DIR=/run/user/1000")
	serve.Stderr = os.Stderr
	serve.ExtraFiles = []*os.File{theirs}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if line, err := bufio.NewReader(ready).ReadString('\n'); !strings.Contains(line, `"ready":true`) {
		t.Fatalf("%q, %v", line, err)
	}
	if got := cgroupOf(w.Daemon(t).Hutchd); !strings.Contains(got, "/outer.scope/hutch-") {
		t.Errorf("hutchd is in %s", got)
	}
	w.OK(t, "run", "--memory", "64m", "host", "--", "true")
	w.Shutdown()
	world.Await(t, serve)
}

// TestVMFull: with the drop-in that the doctor writes, systemd delegates io and cpuset,
// too; before, cpu was missing.
func TestVMFull(t *testing.T) {
	testenv.Machine(t, "delegation")
	w := world.New(t)
	status, remedy := doctor(t, w, "cgroups")
	if status != "no" || !strings.Contains(remedy, "Delegate=cpu cpuset io memory pids") {
		t.Fatalf("cgroups: %s, remedy %q", status, remedy)
	}
	w.Run(t, "run", "--cpus", "0.5", "host", "true").Want(t, 125).Says(t, "cpu")
	w.OK(t, "run", "--memory", "64m", "host", "true") // what is delegated holds
	w.Shutdown()
	t.Log(w.OK(t, "doctor", "--fix", "--yes"))
	// Logging out and in again.
	sudo(t, "systemctl", "restart", "user@1000.service")
	if status, _ := doctor(t, w, "cgroups"); status != "yes" {
		t.Errorf("cgroups: %s", status)
	}
	w.OK(t, "run", "--cpus", "0.5", "host", "true")
	if text, _ := os.ReadFile("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers"); !strings.Contains(string(text), "cpuset") || !strings.Contains(string(text), "io") {
		t.Errorf("delegated: %s", text)
	}
}

// TestVMNone: a system service of an ordinary user has neither a cgroup of the user's
// nor a user manager: limits are refused with the reason, everything else works, and
// the doctor's remedy helps.
func TestVMNone(t *testing.T) {
	testenv.Machine(t, "none")
	w := world.New(t)
	status, remedy := doctor(t, w, "cgroups")
	if status != "no" || !strings.Contains(remedy, "loginctl enable-linger dev") {
		t.Fatalf("cgroups: %s, remedy %q", status, remedy)
	}
	w.OK(t, "run", "host", "true")
	w.Run(t, "run", "--memory", "64m", "host", "true").Want(t, 125).
		Says(t, "no bus of a systemd user manager", "enable-linger")
	w.Shutdown()
	t.Log(w.OK(t, "doctor", "--fix", "--yes"))
	w.OK(t, "run", "--memory", "64m", "host", "true")
}

// TestVMSingle: without subordinate ids there is one user inside, and others are emulated; the doctor's remedy
// gives real ones.
func TestVMSingle(t *testing.T) {
	testenv.Machine(t, "single")
	w := world.New(t)
	status, remedy := doctor(t, w, "subordinate_ids")
	if status != "no" || !strings.Contains(remedy, "usermod --add-subuids 100000-165535") {
		t.Fatalf("subordinate ids: %s, remedy %q", status, remedy)
	}
	w.Run(t, "run", "--ids", "real", "--user", "1234", "host", "id", "-u").Want(t, 125)
	who := []string{"run", "--user", "1234", "host", "sh", "-c", "id -u; grep ^Uid: /proc/self/status"}
	if got := w.OK(t, who...); got != "1234\nUid:\t0\t0\t0\t0\n" {
		t.Errorf("emulated: %q", got)
	}
	w.Shutdown()
	t.Log(w.OK(t, "doctor", "--fix", "--yes"))
	if got := w.OK(t, who...); got != "1234\nUid:\t1234\t1234\t1234\t1234\n" {
		t.Errorf("real: %q", got)
	}
}

// TestVMAppArmor: where AppArmor withholds user namespaces, or the capabilities in
// them, the doctor names the profile, and with it everything works, the launcher
// included, which runs from a memfd and so from no path that a profile could name.
func TestVMAppArmor(t *testing.T) {
	testenv.Machine(t, "apparmor")
	for _, profile := range []string{"vm-ubuntu", "vm-no-userns"} {
		t.Run(profile, func(t *testing.T) {
			w := world.New(t)
			confined := func(args ...string) world.Result {
				t.Helper()
				cmd := exec.Command("aa-exec", append([]string{"-p", profile, "--", filepath.Join(w.Bin, "hutch")},
					args...)...)
				cmd.Env = append(w.Vars, "PATH="+os.Getenv("PATH"))
				return w.Finish(t, cmd)
			}
			r := confined("run", "host", "true").Want(t, 125).Says(t, "AppArmor", "apparmor_parser")
			t.Log(r.Stderr)
			if r := confined("doctor").
				Want(t, 1); !strings.Contains(r.Stdout, "sudo apparmor_parser -r /etc/apparmor.d/hutch") {
				t.Errorf("the doctor says:\n%s", r.Stdout)
			}
			t.Cleanup(func() { sudo(t, "apparmor_parser", "-R", "/etc/apparmor.d/hutch") })
			t.Log(world.Abridged(confined("doctor", "--fix", "--yes").Want(t, 0).Stdout))
			confined("run", "host", "--", "cat", "/proc/self/attr/apparmor/current").Want(t, 0)
			if d := w.Daemon(t); cgroupOf(d.Launch) == "" {
				t.Error("no hutch-launch")
			}
			w.Shutdown()
			sandboxProfile(t, w, confined)
		})
	}
}

// sandboxProfile: what the doctor loads next is the profile of sandboxes: each runs under it, with all that it does.
// What only the profile refuses, a change to another one, passes without.
func sandboxProfile(t *testing.T, w *world.World, hutch func(...string) world.Result) {
	hutch("run", "--apparmor", "on", "host", "true").Want(t, 125).Says(t, "apparmor", "hutch doctor")
	change := []string{"run", "host", "--", "python3", "-c",
		"import os; os.write(os.open('/proc/self/attr/apparmor/exec', os.O_WRONLY), b'exec hutch')"}
	hutch(change...).Want(t, 0)
	if status, remedy := doctor(t, w, "apparmor"); status != "no" ||
		!strings.Contains(remedy, "/etc/apparmor.d/hutch-sandbox") {
		t.Errorf("doctor: %s, %q", status, remedy)
	}
	w.Shutdown()
	t.Cleanup(func() { sudo(t, "apparmor_parser", "-R", "/etc/apparmor.d/hutch-sandbox") })
	t.Log(world.Abridged(w.OK(t, "doctor", "--fix", "--yes"))) // not confined by another profile
	hutch("run", "--apparmor", "on", "host", "true").Want(t, 0)
	if r := hutch("run", "host", "--", "cat", "/proc/1/attr/apparmor/current",
		"/proc/self/attr/apparmor/current"); r.Stdout != "hutch-sandbox (enforce)\nhutch-sandbox (enforce)\n" {
		t.Errorf("labels %q: %s", r.Stdout, r.Stderr)
	}
	if r := hutch(change...); r.Code == 0 || !strings.Contains(r.Stderr, "Permission denied") {
		t.Errorf("a change of profile: exit %d: %q %s", r.Code, r.Stdout, r.Stderr)
	}
	for _, args := range [][]string{
		{"run", "host", "--", "python3", "-c",
			"import os, signal, socket, subprocess; subprocess.check_call(['ps', 'ax']); a, b = socket.socketpair(); p = os.fork() or signal.pause(); os.kill(p, 9); os.wait()"},
		{"run", "--seccomp", "browser", "host", "--", "unshare", "-Ur", "true"},
		{"run", "-t", "host", "--", "sh", "-c", "tty; echo x >/tmp/f; mv /tmp/f /tmp/g; cat /tmp/g"},
		{"run", "--network", "allow", "--allow", "nowhere.test", "host", "--", "sh", "-c",
			"getent hosts nowhere.test || true"},
		{"debug", "run", "host", "--", "sh", "-c", "cat /proc/self/status >/dev/null"},
	} {
		hutch(args...).Want(t, 0)
	}
	if iso := hutch("debug", "run", "host", "--", "true"); !strings.Contains(iso.Stderr,
		"profile hutch-sandbox (enforce)") {
		t.Errorf("walls: %s", iso.Stderr)
	}
	w.Shutdown()
}
