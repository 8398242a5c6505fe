package launch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

func init() { runtime.LockOSThread() }

// hutchd is the daemon's place in a test: uid 0 of the new user namespace, with
// a client of hutch-launch.
type hutchd struct {
	world  world
	client *launchapi.Client

	mu     sync.Mutex
	events map[string]chan int // wait status of a sandbox; made by exitOf
}

func newHutchd(w world) (*hutchd, error) {
	d := &hutchd{world: w, events: map[string]chan int{}}
	if err := d.fillStore(); err != nil {
		return nil, err
	}
	var err error
	d.client, err = launchapi.NewClient(os.NewFile(launchapi.DaemonLaunchFD, "launch"),
		func(e launchapi.Exited) { d.exitOf(e.ID) <- e.Status })
	return d, err
}

// exitOf is where the exit event of id arrives.
func (d *hutchd) exitOf(id string) chan int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events[id] == nil {
		d.events[id] = make(chan int, 4)
	}
	return d.events[id]
}

// fillStore makes two layers: busybox below, a file above.
func (d *hutchd) fillStore() error {
	base := filepath.Join(d.world.Mount, "layers", "base")
	top := filepath.Join(d.world.Mount, "layers", "top")
	for _, dir := range []string{top, filepath.Join(d.world.Mount, "sandboxes")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "proc", "dev", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			return err
		}
	}
	if err := copyFile(d.world.Busybox, filepath.Join(base, "bin", "busybox")); err != nil {
		return err
	}
	return errors.Join(
		os.Symlink("busybox", filepath.Join(base, "bin", "sh")),
		os.WriteFile(filepath.Join(top, "layer"), []byte("top"), 0o644),
	)
}

// folders are those of one sandbox.
type folders struct{ dir, root, upper, work, run, pts string }

func (d *hutchd) folders(id string) folders {
	dir := filepath.Join(d.world.Mount, "sandboxes", id)
	return folders{dir, filepath.Join(dir, "root"), filepath.Join(dir, "upper"),
		filepath.Join(dir, "work"), filepath.Join(dir, "run"), filepath.Join(dir, "pts")}
}

// request makes the folders of a sandbox and a create for it.
func (d *hutchd) request(t testing.TB, id string) launchapi.Create {
	t.Helper()
	f := d.folders(id)
	for _, dir := range []string{f.root, f.upper, f.work, f.run, f.pts} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config, err := json.Marshal(testConfig(t, id, f))
	if err != nil {
		t.Fatal(err)
	}
	return launchapi.Create{
		Config: config, RunDir: f.run, PtsDir: f.pts,
		Overlay: launchapi.Overlay{
			Dir: filepath.Join(d.world.Mount, "layers"), Lower: []string{"top", "base"},
			Upper: f.upper, Work: f.work, Target: f.root, Volatile: true,
		},
	}
}

// create makes a sandbox that the test destroys, or leaves to hutch-launch.
func (d *hutchd) create(t testing.TB, id string) *launchapi.Created {
	t.Helper()
	netns := newNetns(t)
	defer netns.Close()
	sb, err := d.client.Create(context.Background(), id, d.request(t, id), netns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	fmt.Fprintf(os.Stderr, "%s%d\n", reportPID, sb.PID)
	return sb
}

// destroy ends a sandbox and checks what is left of it.
func (d *hutchd) destroy(t testing.TB, id string) {
	t.Helper()
	if err := d.client.Destroy(context.Background(), id); err != nil {
		t.Error(err)
	}
	d.checkGone(t, id)
}

// checkGone finds mounts and state of a sandbox that should not be, and removes
// its folders.
func (d *hutchd) checkGone(t testing.TB, id string) {
	t.Helper()
	f := d.folders(id)
	for line := range strings.Lines(readFile(t, "/proc/self/mountinfo")) {
		if strings.Contains(line, f.dir+"/") {
			t.Errorf("mount left: %s", line)
		}
	}
	entries, err := os.ReadDir(f.run)
	if err != nil || len(entries) > 0 {
		t.Errorf("run folder: %v, %v; want it empty", entries, err)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		t.Errorf("folder of %s cannot be removed: %v", id, err)
	}
}

// newNetns makes a network namespace of this user namespace.
func newNetns(t testing.TB) *os.File {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	done := make(chan result)
	go func() {
		// Never unlocked: the thread ends in its namespace. It is not the main one,
		// which init reserves, and which would stay in it.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		done <- result{f, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.f
}

// testCaps is the bounding set of test sandboxes, testCapMask the same as a mask.
var testCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETPCAP"}

const testCapMask = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID |
	1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP

// testConfig is a small but whole sandbox.
func testConfig(t testing.TB, id string, f folders) *configs.Config {
	t.Helper()
	caps := testCaps
	const nosuid = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	c := &configs.Config{
		Rootfs: f.root, RootPropagation: unix.MS_PRIVATE | unix.MS_REC, Hostname: id,
		NoNewPrivileges: true, NoNewKeyring: true, RootlessCgroups: true,
		Capabilities: &configs.Capabilities{Bounding: caps, Effective: caps, Permitted: caps},
		Cgroups:      &cgroups.Cgroup{Name: id, Rootless: true, Resources: &cgroups.Resources{}},
		MaskPaths:    []string{"/proc/kcore", "/proc/keys"},
		Mounts: []*configs.Mount{
			{Source: "proc", Destination: "/proc", Device: "proc", Flags: nosuid},
			{Source: "tmpfs", Destination: "/dev", Device: "tmpfs", Flags: unix.MS_NOSUID, Data: "mode=755"},
			{Source: f.pts, Destination: "/dev/pts", Device: "bind", Flags: unix.MS_BIND},
			{Source: "tmpfs", Destination: "/tmp", Device: "tmpfs", Flags: nosuid, Data: "mode=1777"},
		},
	}
	for _, ns := range []configs.NamespaceType{configs.NEWUSER, configs.NEWPID, configs.NEWNS,
		configs.NEWIPC, configs.NEWUTS, configs.NEWCGROUP} {
		c.Namespaces.Add(ns, "")
	}
	c.Devices = append(c.Devices, specconv.AllowedDevices...)
	c.UIDMappings = []configs.IDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	c.GIDMappings = c.UIDMappings
	if len(strings.Fields(readFile(t, "/proc/self/uid_map"))) > 3 ||
		strings.HasSuffix(readFile(t, "/proc/self/uid_map"), " 65536\n") {
		c.UIDMappings = append(c.UIDMappings, configs.IDMap{ContainerID: 1, HostID: 1, Size: 65535})
		c.GIDMappings = c.UIDMappings
	}
	return c
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
