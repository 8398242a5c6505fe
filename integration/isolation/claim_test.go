package isolation_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// made is a sandbox and how it came to be.
type made struct {
	ID       string             `json:"id"`
	PID      int                `json:"pid"`
	PhasesMS map[string]float64 `json:"phases_ms"`
}

func (m *made) claimed() bool { _, ok := m.PhasesMS["launch.claim"]; return ok }

// prepared tells whether it had its root before it was asked for.
func (m *made) prepared() bool { _, ok := m.PhasesMS["launch.prepared"]; return ok }

// makeClaimed creates sandboxes until one was launched ahead.
func makeClaimed(t *testing.T, w *world.World, args ...string) made {
	t.Helper()
	return makeAhead(t, w, 1, (*made).claimed, args...)
}

// makeAhead creates sandboxes, each when so many wait, until one is as is wanted.
func makeAhead(t *testing.T, w *world.World, waiting int, wanted func(*made) bool, args ...string) made {
	t.Helper()
	w.Inside(t, "true") // none is launched ahead before the first
	c := w.Dial(t)
	defer c.Close()
	var m made
	testenv.Poll(t, world.Limit, "no such sandbox was launched ahead", func() bool {
		if c.Ready() < waiting {
			return false // while none is created one is launched ahead
		}
		m = world.Decode[made](t, w.OK(t, append([]string{"create", "--json"}, args...)...))
		if wanted(&m) {
			return true
		}
		w.OK(t, "rm", "-f", m.ID)
		if waiting > 1 {
			// Those that wait may be of another kind, of which nobody tells; of this one two are launched while no
			// create comes between, the second prepared.
			testenv.Moment(500 * time.Millisecond)
		}
		return false
	})
	return m
}

// lookAround prints all that a sandbox can see of what it is made of, and tries what it may not.
const lookAround = `
for f in status limits uid_map gid_map setgroups cgroup oom_score_adj timerslack_ns environ mounts; do echo "= $f"; cat /proc/self/$f | tr '\0' '\n'; done
echo = pid1; cat /proc/1/status /proc/1/cgroup /proc/1/limits
echo = ids; id; hostname; cat /etc/hostname /etc/hosts /etc/resolv.conf /run/hutch/policy.json
echo = env; env | sort
echo = files; ls -lan / /dev /dev/shm /dev/pts /run /run/hutch /etc/hosts /workspace /tmp 2>&1
echo = net; cat /proc/net/dev | cut -d: -f1; cat /proc/net/route /proc/net/if_inet6
echo = cgroup; ls /sys/fs/cgroup 2>&1; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max /sys/fs/cgroup/cpu.max 2>&1
echo = sys; cat /proc/sys/user/max_user_namespaces /proc/sys/user/max_inotify_instances /proc/sys/kernel/hostname
echo = tries
for f in /proc/sysrq-trigger /proc/sys/kernel/hostname /proc/sys/vm/drop_caches; do (echo x >$f) 2>&1; done
mount -t tmpfs x /tmp 2>&1; umount /proc 2>&1; umount /proc/sys 2>&1; umount /workspace 2>&1; mount -o remount,rw,bind /workspace 2>&1; mount -o remount,suid,dev,bind /run/hutch 2>&1
unshare -m true 2>&1; unshare -U true 2>&1; mknod /tmp/n c 1 3 2>&1; kill -9 1 2>&1; ls /.claim 2>&1
echo x >/workspace/.git/config 2>&1; touch /workspace/new 2>&1 && rm /workspace/new
cat /proc/kcore | head -c 1; cat /proc/cmdline /proc/sys/kernel/random/boot_id; ls /proc/acpi /proc/bus
`

// varies are parts that differ from one sandbox to the next however they were made: ids, times,
// how many processes the machine has, and signals of the moment: Go blocks all while it forks. (What a
// command has blocked is asserted by TestPrivileges.)
var varies = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`(?m)^(State|Pid|Tgid|NStgid|NSpid|NSpgid|NSsid|PPid|Ngid|Vm\w+|Rss\w+|\w*ctxt_switches|Threads|SigQ|SigBlk|SigPnd|ShdPnd|Hugetlb\w+|Mems_allowed\w*|Cpus_allowed\w*|StaTime):.*\n`), ""},
	{regexp.MustCompile(`(lowerdir\+?|upperdir|workdir)=[0-9:]+`), "$1=N"},
	{regexp.MustCompile(`lowerdir\+=N(,lowerdir\+=N)*`), "lowerdir+=N"},
	{regexp.MustCompile(`\d\d:\d\d|\bex_[a-z0-9]+|[A-Z][a-z]{2} +\d+ `), "T"},
	{regexp.MustCompile(`\b([ug]id)=\d{9,}`), "$1=N"}, // of mounts: each daemon of root's has ids of its own
	{regexp.MustCompile(`(?m)^(dr-xr-xr-x) +\d+ (.* proc)$`), "$1 N $2"},
	{regexp.MustCompile(`(?m)^total \d+$`), "total"},
	{regexp.MustCompile(` {2,}`), " "}, // columns are as wide as the links of /proc, one for each process of the machine
}

// settled is text without what varies, and without the ids of m. Lines of mounts are sorted:
// the order in which they were made is another.
func settled(text string, m made) string {
	text = strings.ReplaceAll(text, strings.TrimPrefix(m.ID, "sb_"), "ID")
	for _, v := range varies {
		text = v.what.ReplaceAllString(text, v.by)
	}
	before, mounts, found := strings.Cut(text, "= mounts\n")
	if !found {
		return text
	}
	mounts, after, _ := strings.Cut(mounts, "= pid1\n")
	lines := slices.Sorted(strings.Lines(mounts))
	return before + "= mounts\n" + strings.Join(lines, "") + "= pid1\n" + after
}

// TestClaimed: a sandbox that was launched ahead is, once it has been claimed, the one that a launch
// makes, line by line, from inside and from outside.
func TestClaimed(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	direct, ahead := world.New(t), world.New(t)
	ahead.LogOnFailure(t)
	direct.Configure(t, world.NoneAhead)
	dir := direct.Sub(t, "work")
	if err := os.Mkdir(dir+"/.git", 0o755); err != nil {
		t.Fatal(err)
	}
	world.Write(t, dir+"/.git/config", "of the host\n")
	files := []imagetest.File{imagetest.Dir("bin"), imagetest.Dir("etc"), imagetest.Symlink("proc", "etc"),
		imagetest.Exec("bin/sh", world.StaticShell(t))}
	for _, name := range strings.Fields("cat ls id hostname env sort tr cut head mount umount mknod touch rm unshare kill true") {
		files = append(files, imagetest.Symlink("bin/"+name, "sh"))
	}
	image := world.Push(t, imagetest.StartRegistry(t), "small", imagetest.Image{
		Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(files...), imagetest.Gzip)},
	})
	for _, args := range [][]string{
		{"host"},
		{image},
		{"--workspace", dir, image},
		{"--workspace", dir, "host"},
		{"--workspace", dir + ":ro", "host"},
		{"--workspace", dir + ":overlay", "--hostname", "box", "--env", "A=b", "host"},
		{"--volume", dir + ":/a/new/place:ro", "--workdir", "/tmp", "host"},
		{"--allow", "a.test", "host"},
		{"--network", "open", image},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args, " "), direct.Dir, ""), func(t *testing.T) {
			want := world.Decode[made](t, direct.OK(t, append([]string{"create", "--json"}, args...)...))
			if want.claimed() {
				t.Fatal("claimed, with none launched ahead")
			}
			seen := settled(direct.Run(t, "exec", want.ID, "--", "sh", "-c", lookAround).Stdout, want)
			kinds := map[string]made{"claimed": makeAhead(t, ahead, 1,
				func(m *made) bool { return m.claimed() && !m.prepared() }, args...)}
			if flags := strings.Join(args, " "); !strings.Contains(flags, "--workspace") &&
				!strings.Contains(flags, "--volume") {
				kinds["prepared"] = makeAhead(t, ahead, 2, (*made).prepared, args...)
			}
			for kind, got := range kinds {
				t.Log(kind)
				compare(t, "inside", seen, settled(ahead.Run(t, "exec", got.ID, "--", "sh", "-c", lookAround).
					Stdout, got))
				compareMounts(t, direct.OK(t, "exec", want.ID, "--", "cat", "/proc/self/mountinfo"),
					ahead.OK(t, "exec", got.ID, "--", "cat", "/proc/self/mountinfo"))
				compare(t, "outside", outside(t, want), outside(t, got))
				ahead.OK(t, "rm", "-f", got.ID)
			}
			direct.OK(t, "rm", "-f", want.ID)
		})
	}
}

func compare(t *testing.T, what, want, got string) {
	t.Helper()
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	if len(w) < 20 {
		t.Fatalf("%s: only\n%s", what, want)
	}
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			t.Errorf("%s: claimed %q, launched %q, behind\n%s", what, g[i], w[i], strings.Join(w[max(0, i-3):i], "\n"))
			return
		}
	}
	if len(w) != len(g) {
		t.Errorf("%s: %d lines, launched %d", what, len(g), len(w))
	}
}

// compareMounts compares by mount point, with what a mount is mounted on.
func compareMounts(t *testing.T, want, got string) {
	t.Helper()
	table := func(text string) map[string]string {
		all, points := map[string]string{}, map[string]string{}
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			points[f[0]] = f[4]
		}
		for i, l := range mountLines(t, text) {
			f := strings.Fields(strings.Split(text, "\n")[i])
			options := settled(l.options, made{ID: "sb_none"})
			all[l.point] += fmt.Sprintf("on %s: %s %s %v %s %s %s;", points[f[1]], l.root, l.flags, l.optional,
				l.fstype, l.source, options)
		}
		return all
	}
	w, g := table(want), table(got)
	for _, at := range slices.Sorted(maps.Keys(w)) {
		if w[at] != g[at] {
			t.Errorf("mount %s: %q, launched %q", at, g[at], w[at])
		}
		delete(g, at)
	}
	if len(w) < 10 || len(g) > 0 {
		t.Errorf("%d mounts, and too many: %v", len(w), g)
	}
}

// outside is what the host sees of PID 1.
func outside(t *testing.T, m made) string {
	t.Helper()
	text := ""
	for _, file := range []string{"status", "limits", "cgroup", "uid_map", "gid_map", "setgroups", "oom_score_adj",
		"comm", "cmdline"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", m.PID, file))
		if err != nil {
			t.Fatal(err)
		}
		text += "= " + file + "\n" + string(data)
	}
	// Each daemon's cgroup and range of ids are its own.
	text = regexp.MustCompile(`(?m)^(\d+:[^:]*:).*/`).ReplaceAllString(text, "$1")
	text = regexp.MustCompile(`\b\d{9,}\b`).ReplaceAllString(text, "N")
	return settled(text, m)
}

// TestClaimedAfterDeath: sandboxes that wait go with hutchd, and no claim that was under way is left.
func TestClaimedAfterDeath(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	// It has no record yet when hutchd is killed before it is answered for.
	w.Tolerated = append(w.Tolerated, "take over a sandbox; it is removed")
	for round := range world.Rounds(5) { // a daemon that crashes more often in a minute gives up
		got := makeClaimed(t, w, "host")
		w.OK(t, "exec", got.ID, "--", "true")
		if round%2 == 0 {
			w.AwaitReady(t, 1) // the next one waits
		} else {
			testenv.RandomMoment(100 * time.Millisecond) // or is being launched
		}
		d := w.Daemon(t)
		c := w.Launch(t, "run", "host", "true")
		testenv.RandomMoment(world.RunTime)
		p, err := os.FindProcess(d.Hutchd)
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.End(t)
		// What was claimed and answered for lives on.
		w.OK(t, "exec", got.ID, "--", "true")
		w.OK(t, "rm", "-f", got.ID)
	}
}
