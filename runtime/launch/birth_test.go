package launch

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestBirths: each hierarchy once, v2 behind those of v1, and no group that may be missing keeps a sandbox from
// starting.
func TestBirths(t *testing.T) {
	dir := t.TempDir()
	paths := map[string]string{
		"cpu": "/c/cpu,cpuacct/box", "cpuacct": "/c/cpu,cpuacct/box", "memory": "/c/memory/box",
		"name=systemd": "/c/systemd/box", "misc": "/c/misc/box",
		"": dir + "/missing",
	}
	v1 := []string{"1!/c/cpu,cpuacct/box/tasks", "1!/c/memory/box/tasks", "1?/c/misc/box/tasks",
		"1?/c/systemd/box/tasks"}
	check := func(v2 bool, want ...string) {
		t.Helper()
		got, err := births(paths, v2)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	check(false, v1...)
	check(true, append(slices.Clone(v1), "2!"+dir+"/missing")...) // which the first process says
	paths[""] = dir
	check(false, append(slices.Clone(v1), "2?"+dir)...)
	delete(paths, "")
	check(false, v1...)
	paths["pids"] = "/c/two\nlines"
	if got, err := births(paths, false); err == nil {
		t.Errorf("%q", got)
	}
}

// TestBirth: the first process of hutch-launch joins what it is told before all else, or says what it cannot.
func TestBirth(t *testing.T) {
	for _, c := range []struct{ lines, fails string }{
		{"", ""},
		{"1?/no/such/tasks\n2?/no/such/group", ""},
		{"1?/no/such/tasks\n1!/no/such/box/tasks\n1!/not/reached/tasks",
			"PID 1 cannot join /no/such/box/tasks: no such file or directory"},
		{"2!/no/such/group", "PID 1 cannot join /no/such/group: no such file or directory"},
		{"2!/dev/null", "PID 1 cannot join /dev/null: not a directory"},
		{"2!/", "PID 1 cannot join /: no such file or directory"}, // no cgroup
		{"1!" + strings.Repeat("/long", 2000), "file name too long"},
		{strings.Repeat("x", maxBirth), "bytes of cgroups"},
	} {
		t.Run(c.lines[:min(len(c.lines), 30)], func(t *testing.T) {
			_, err := bearOne(t, "standard", c.lines)
			if err == nil && c.fails != "" || err != nil && (c.fails == "" || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v, want %q", err, c.fails)
			}
		})
	}
}

// TestBirthInside: the one that goes on in a cgroup of v2 is another process, and it is waited for.
func TestBirthInside(t *testing.T) {
	group := ownGroup(t)
	born, err := bearOne(t, "standard", "2!"+group)
	if os.Getuid() != 0 && err != nil {
		if !strings.Contains(err.Error(), "join "+group+": permission denied") {
			t.Error(err)
		}
		return // whose cgroup it is not
	}
	if err != nil || born <= 0 {
		t.Fatalf("child %d, %v", born, err)
	}
	if err := unix.Kill(born, 0); err != unix.ESRCH {
		t.Errorf("process %d: %v, want it to have been waited for", born, err)
	}
}

// TestBirthUnsaid: a first process that does not say that it joined its cgroups, as one of a libcontainer that starts
// it in another way, is none.
func TestBirthUnsaid(t *testing.T) {
	if _, err := bearOne(t, "another", "1?/no/such/tasks"); err == nil ||
		!strings.Contains(err.Error(), "has not said") {
		t.Error(err)
	}
}

// bearOne runs a first process that is told text, and has nothing to do behind that. It returns the pid of the child
// that has gone on, if any, and what is said of a failure to join.
func bearOne(t *testing.T, kind, text string) (born int, err error) {
	t.Helper()
	b := birth{lines: strings.Split(text, "\n")}
	theirs, err := b.send()
	if err != nil {
		return 0, err
	}
	defer b.close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd := exec.Command(testenv.Bin(t, "hutch-launch"), "init")
	cmd.Env = []string{"_LIBCONTAINER_INITTYPE=" + kind}
	cmd.ExtraFiles = []*os.File{null, null, null, theirs}
	err = cmd.Run()
	_ = theirs.Close()
	var reply [8]byte
	if n, _, rerr := unix.Recvfrom(int(b.ours.Fd()), reply[:], unix.MSG_DONTWAIT|unix.MSG_PEEK); rerr == nil &&
		n == len(reply) && reply[0] == 0 {
		born = int(int32(uint32(reply[4]) | uint32(reply[5])<<8 | uint32(reply[6])<<16 | uint32(reply[7])<<24))
	}
	if said := b.end(err); said != err {
		return born, said
	}
	return born, b.check()
}

// ownGroup is the folder of this process' cgroup of v2; it skips t where there is none.
func ownGroup(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for _, mount := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			if _, err := os.Stat(mount + path + "/cgroup.procs"); ok && err == nil {
				return mount + path
			}
		}
	}
	testenv.Require(t, probe.Check{Name: "cgroup2", Status: probe.No, Detail: "not mounted where it usually is",
		Remedy: "mount cgroup2"})
	return ""
}
