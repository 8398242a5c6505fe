package probe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/outer"
)

// scenarioVar makes the test binary a host of some kind: it runs in a user
// namespace of its own, takes something away, and prints what the probes find.
const scenarioVar = "HUTCH_PROBE_SCENARIO"

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVar); name != "" {
		runScenario(name, os.Getenv(scenarioVar+"_DIR"))
		return
	}
	os.Exit(m.Run())
}

type finds = map[string]probe.Status // by check

// scenario is a host in small, and what the probes must say there.
type scenario struct {
	name   string
	set    func(dir string) error
	canRun bool
	want   finds
	// detail and remedy must hold these texts, by check.
	detail, remedy map[string]string
}

// The first takes nothing away: it is the twin that shows that the others'
// findings come from what they took.
var scenarios = []scenario{
	{
		name: "nothing", set: func(string) error { return nil }, canRun: true,
		want: finds{"user_namespaces": probe.Yes, "namespaces": probe.Yes, "overlay": probe.Yes, "proc": probe.Yes,
			"state_folder": probe.Yes},
	},
	{
		name: "no-user-namespaces", set: sysctl("user/max_user_namespaces", "0"),
		want: finds{"user_namespaces": probe.No, "namespaces": probe.No, "overlay": probe.Inconclusive,
			"proc": probe.Inconclusive},
		detail: map[string]string{"user_namespaces": "user.max_user_namespaces is 0"},
		remedy: map[string]string{"user_namespaces": "sysctl -w user.max_user_namespaces="},
	},
	{
		name: "no-net-namespaces", set: sysctl("user/max_net_namespaces", "0"),
		want:   finds{"user_namespaces": probe.Yes, "namespaces": probe.No, "overlay": probe.Inconclusive},
		detail: map[string]string{"namespaces": "user.max_net_namespaces is 0"},
		remedy: map[string]string{"namespaces": "sysctl -w user.max_net_namespaces="},
	},
	{
		name: "container-seccomp", set: func(string) error { return outer.RefuseUserNamespaces() },
		want:   finds{"user_namespaces": probe.No, "namespaces": probe.No},
		detail: map[string]string{"user_namespaces": "seccomp filter"},
		remedy: map[string]string{"user_namespaces": "seccomp=unconfined"},
	},
	{
		name: "container-masked-proc", set: func(string) error { return outer.MaskProc() },
		want:   finds{"user_namespaces": probe.Yes, "overlay": probe.Yes, "proc": probe.No},
		remedy: map[string]string{"proc": "systempaths=unconfined"},
	},
	{
		name: "chroot", set: enterChroot,
		want:   finds{"user_namespaces": probe.No},
		detail: map[string]string{"user_namespaces": "chroot"},
		remedy: map[string]string{"user_namespaces": "pivot_root"},
	},
	{
		name: "state-on-overlay", set: stateOnOverlay, canRun: true,
		want:   finds{"overlay": probe.Yes, "state_folder": probe.No},
		detail: map[string]string{"state_folder": "overlayfs"},
		remedy: map[string]string{"state_folder": "HUTCH_ROOT="},
	},
}

func TestScenarios(t *testing.T) {
	// Without user namespaces no scenario can be set up, and TestAll shows why.
	testenv.Require(t, probe.Namespaces(t.Context()))
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			checks := inScenario(t, s.name)
			if got := probe.CanRun(checks); got != s.canRun {
				t.Errorf("CanRun = %v, want %v", got, s.canRun)
			}
			for name, want := range s.want {
				c := find(checks, name)
				if c.Status != want {
					t.Errorf("%s: %s (%s), want %s", name, c.Status, c.Detail, want)
				}
				if !strings.Contains(c.Detail, s.detail[name]) {
					t.Errorf("%s: detail %q does not say %q", name, c.Detail, s.detail[name])
				}
				if !strings.Contains(c.Remedy, s.remedy[name]) {
					t.Errorf("%s: remedy %q does not say %q", name, c.Remedy, s.remedy[name])
				}
			}
		})
	}
}

func find(checks []probe.Check, name string) probe.Check {
	if i := slices.IndexFunc(checks, func(c probe.Check) bool { return c.Name == name }); i >= 0 {
		return checks[i]
	}
	return probe.Check{Name: name, Status: "missing"}
}

// inScenario re-executes the test binary as uid 0 of new namespaces.
func inScenario(t *testing.T, name string) []probe.Check {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), scenarioVar+"="+name, scenarioVar+"_DIR="+dir, "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  probe.SandboxLike,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var checks []probe.Check
	if err := json.Unmarshal(out, &checks); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return checks
}

// runScenario is the re-executed side.
func runScenario(name, dir string) {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "")
	}
	if err == nil {
		err = scenarios[i].set(dir)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "scenario %s: %v\n", name, err)
		os.Exit(2)
	}
	checks := probe.All(context.Background(), probe.Options{StateFolder: filepath.Join(dir, "state")})
	if err := json.NewEncoder(os.Stdout).Encode(checks); err != nil {
		os.Exit(2)
	}
}

func sysctl(name, value string) func(string) error {
	return func(string) error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }
}

// enterChroot enters a folder that is no mount point and shows the whole host.
func enterChroot(dir string) error {
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"proc", "tmp", "etc", "dev"} {
		target := filepath.Join(root, name)
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("/"+name, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// stateOnOverlay makes the state folder part of an overlay, as the folders of
// most containers are.
func stateOnOverlay(dir string) error {
	if err := probe.Folders(dir, "lower", "upper", "work", "merged"); err != nil {
		return err
	}
	if err := probe.MountOverlay(dir); err != nil {
		return err
	}
	return os.Symlink("merged", filepath.Join(dir, "state"))
}
