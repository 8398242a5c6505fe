package files_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestWorkspace: the three modes of the caller's folder.
func TestWorkspace(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "work")
	world.Write(t, filepath.Join(dir, "given"), "from the host\n")
	t.Run("rw", func(t *testing.T) {
		got := w.OK(t, "run", "--workspace", dir, "host", "sh", "-c",
			"pwd; cat given; echo made >new; mkdir -p sub/deep; echo x >sub/deep/file; echo more >>given; ln -s given link; mv new renamed; ls -ln renamed | cut -d' ' -f3,4")
		if got != "/workspace\nfrom the host\n0 0\n" {
			t.Errorf("got %q", got)
		}
		if got := world.Read(t, filepath.Join(dir, "given")); got != "from the host\nmore\n" {
			t.Errorf("given: %q", got)
		}
		for _, name := range []string{"renamed", "sub", "sub/deep/file", "link"} {
			st, err := os.Lstat(filepath.Join(dir, name))
			if err != nil {
				t.Error(err)
			} else if world.OwnerOfFile(st) != os.Geteuid() {
				t.Errorf("%s belongs to uid %d, not to the caller", name, world.OwnerOfFile(st))
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
			t.Error(err) // the caller can remove what the sandbox made
		}
		world.Write(t, filepath.Join(dir, "given"), "from the host\n")
	})
	t.Run("ro", func(t *testing.T) {
		r := w.Run(t, "run", "--workspace", dir+":ro", "host", "sh", "-c",
			"cat given; echo x >/tmp/x && echo twin; echo x >x").Want(t, 2)
		if r.Stdout != "from the host\ntwin\n" {
			t.Errorf("got %q", r.Stdout)
		}
		r.Says(t, "Read-only file system")
		w.Run(t, "run", "--workspace", dir+":ro", "host", "mount", "-o", "remount,rw", "/workspace").Want(t, 32)
		w.Run(t, "run", "--workspace", dir+":ro", "host", "rm", "given").Want(t, 1).Says(t, "Read-only")
	})
	t.Run("overlay", func(t *testing.T) {
		got := w.OK(t, "run", "--workspace", dir+":overlay", "host", "sh", "-c",
			"cat given; echo changed >given; rm renamed; echo x >x; cat given; ls")
		if got != "from the host\nchanged\ngiven\nlink\nx\n" {
			t.Errorf("got %q", got)
		}
		if got := world.Read(t, filepath.Join(dir, "given")); got != "from the host\n" {
			t.Errorf("the host sees %q", got)
		}
		if _, err := os.Stat(filepath.Join(dir, "renamed")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
			t.Error("the host sees a file of the overlay")
		}
	})
	t.Run("other users", func(t *testing.T) {
		if testenv.CurrentKind() == mustrun.NoSubUID {
			t.Log("nobody but uid 0 exists")
			return
		}
		r := w.Run(t, "run", "-u", "1000", "--workspace", dir, "host", "sh", "-c", "cat given; echo x >y")
		if r.Stdout != "from the host\n" {
			t.Errorf("got %q", r.Stdout)
		}
		if os.Geteuid() == 0 { // who can map the folder's owner to the user
			r.Want(t, 0)
			return
		}
		// Another user inside is another user on the host: he may read what all may.
		r.Want(t, 2).Says(t, "Permission denied", "/workspace belongs to root inside, and commands run as uid 1000")
	})
	t.Run("relative and dot", func(t *testing.T) {
		if got := w.OK(t, "run", "--workspace", "work:ro", "host", "cat", "given"); got != "from the host\n" {
			t.Errorf("got %q", got)
		}
		cmd := w.Command("run", "--workspace", ".:ro", "host", "cat", "given")
		cmd.Dir = dir
		w.Finish(t, cmd).Want(t, 0)
	})
	t.Run("symlink", func(t *testing.T) {
		if err := os.Symlink(dir, w.Path("alias")); err != nil {
			t.Fatal(err)
		}
		if got := w.OK(t, "run", "--workspace", w.Path("alias")+":ro", "host", "cat",
			"given"); got != "from the host\n" {
			t.Errorf("got %q", got)
		}
		// A link inside the workspace leads into the sandbox's tree, not the host's.
		if err := os.Symlink(w.Root(), filepath.Join(dir, "out")); err != nil {
			t.Fatal(err)
		}
		w.Run(t, "run", "--workspace", dir+":ro", "host", "ls", "out/").Want(t, 2).Says(t, "No such file")
	})
	t.Run("workdir", func(t *testing.T) {
		if got := w.OK(t, "run", "--workspace", dir, "-w", "/etc", "host", "pwd"); got != "/etc\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestWorkspaceRefused: what hutch trusts, and what is not there or not the
// caller's.
func TestWorkspaceRefused(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.Inside(t, "true")
	file := world.Write(t, w.Path("file"), "x")
	if err := os.Symlink(w.Root(), w.Path("innocent")); err != nil {
		t.Fatal(err)
	}
	state, runtime := w.Root(), w.Sub(t, "run/hutch")
	if os.Geteuid() == 0 {
		runtime = "/run/hutch"
	}
	for _, tt := range []struct{ name, path, words string }{
		{"holds the state", w.Dir, state},
		{"is the state", state, state},
		{"in the state", filepath.Join(state, "data"), ""},
		{"links to the state", w.Path("innocent"), state},
		{"everything", "/", ""},
		{"binaries", w.Bin, w.Bin},
		{"runtime folder", runtime, runtime},
		{"not there", w.Path("no-such"), "no-such"},
		{"a file", file, file},
		{"empty", "", ""},
		{"a device", "/dev/null", "/dev/null"},
	} {
		for _, mode := range []string{"ro", "rw", "overlay"} {
			t.Run(tt.name+" "+mode, func(t *testing.T) {
				w.Run(t, "run", "--workspace", tt.path+":"+mode, "host", "true").Want(t, 125).Says(t, tt.words, "try:")
			})
		}
	}
	t.Run("unreadable", func(t *testing.T) {
		dir := w.Sub(t, "closed")
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o700)
		r := w.Run(t, "run", "--workspace", dir+":ro", "host", "ls")
		if os.Geteuid() != 0 && r.Code == 0 {
			t.Errorf("listed an unreadable folder: %q", r.Stdout)
		}
	})
	// The allowed twin.
	w.OK(t, "run", "--workspace", w.Sub(t, "fine"), "host", "true")
}

// TestVolumes: -v with folders and files, several of them.
func TestVolumes(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	a, b := w.Sub(t, "a"), w.Sub(t, "b:c")
	world.Write(t, filepath.Join(a, "file"), "a\n")
	world.Write(t, filepath.Join(b, "file"), "b\n")
	file := world.Write(t, w.Path("one"), "one\n")
	got := w.OK(t, "run", "-v", a+":/data", "-v", b+":/data2:ro", "-v", file+":/etc/one", "host", "sh", "-c",
		"cat /data/file /data2/file /etc/one; echo two >/etc/one; echo x >/data/new; echo x >/data2/new || echo refused")
	if got != "a\nb\none\nrefused\n" {
		t.Errorf("got %q", got)
	}
	if world.Read(t, file) != "two\n" || world.Read(t, filepath.Join(a, "new")) != "x\n" {
		t.Error("the host does not see what was written through rw mounts")
	}
	w.Run(t, "run", "-v", file+":/etc/one:ro", "host", "sh", "-c", "echo three >/etc/one").Want(t, 2).
		Says(t, "Read-only")
	got = w.OK(t, "run", "-v", a+":/data:overlay", "host", "sh", "-c", "rm /data/file; ls /data")
	if got != "new\n" || world.Read(t, filepath.Join(a, "file")) != "a\n" {
		t.Errorf("overlay: %q", got)
	}
	for _, target := range []string{"/proc", "/proc/x", "/dev", "/dev/shm/x", "/sys", "/"} {
		w.Run(t, "run", "-v", a+":"+target, "host", "true").Want(t, 125).Says(t, "try:")
	}
	w.Run(t, "run", "-v", a+":/x", "-v", b+":/x", "host", "true").Want(t, 125)
	w.Run(t, "run", "-v", w.Root()+":/x", "host", "true").Want(t, 125).Says(t, w.Root())
	// Below a symlink of the image.
	if got := w.OK(t, "run", "-v", a+":/bin/../srv/data:ro", "host", "cat", "/srv/data/file"); got != "a\n" {
		t.Errorf("got %q", got)
	}
}

// TestLimits: what cgroups enforce, read off what happens; without cgroups the
// flags are refused with the way out.
func TestLimits(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	world.NeedsPython(t)
	if os.Geteuid() != 0 {
		for _, flag := range [][]string{{"-m", "64m"}, {"--cpus", "0.5"}, {"--pids-limit", "20"}} {
			r := w.Run(t, append(append([]string{"run"}, flag...), "host", "true")...)
			if r.Code == 125 {
				r.Says(t, "cannot be enforced", "try:")
			} else if r.Code != 0 {
				t.Errorf("%v: %+v", flag, r)
			}
		}
		if got := w.OK(t, "doctor", "--json"); !regexp.MustCompile(`cgroup`).MatchString(got) {
			t.Errorf("doctor says nothing of cgroups: %s", got)
		}
		return
	}
	const eat = `
b = bytearray()
for _ in range(400): b += bytes(1 << 20)
print("ate", len(b) >> 20)`
	t.Run("memory", func(t *testing.T) {
		if got := w.Python(t, eat); got != "ate 400" {
			t.Errorf("without a limit: %q", got)
		}
		r := w.Run(t, "run", "-m", "100m", "host", "--", "/usr/bin/python3", "-c", eat)
		if r.Code != 137 || r.Stdout != "" {
			t.Errorf("code %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
		}
		w.OK(t, "run", "-m", "100m", "host", "--", "/usr/bin/python3", "-c", "print(len(bytes(20<<20)))")
	})
	t.Run("pids", func(t *testing.T) {
		const fork = `
import os, time
n = 0
try:
    while n < 200:
        if os.fork() == 0: time.sleep(1000)
        n += 1
except BlockingIOError: pass
print(n)`
		if got := w.Python(t, fork); got != "200" {
			t.Errorf("without a limit: %s", got)
		}
		got := w.Python(t, fork, "--pids-limit", "30")
		if !regexp.MustCompile(`^(2\d|3[01])$`).MatchString(got) {
			t.Errorf("with 30 allowed, %s forks succeeded", got)
		}
		// A bomb: bounded, and its sandbox ends like any other.
		w.Run(t, "run", "--pids-limit", "50", "--timeout", "2", "host", "--", "sh", "-c",
			"(f(){ f|f& }; f) 2>/dev/null & exec sleep infinity").Want(t, 124)
	})
	t.Run("cpus", func(t *testing.T) {
		const spin = `
import resource, time
end = time.monotonic() + 2
while time.monotonic() < end: pass
u = resource.getrusage(resource.RUSAGE_SELF)
print(int((u.ru_utime + u.ru_stime) * 1000))`
		start := time.Now()
		ms := world.Decode[int](t, w.Python(t, spin, "--cpus", "0.2"))
		// 2 s of wall time are 400 ms of a fifth of a CPU; a period more at each end.
		if ms > 700 {
			t.Errorf("used %d ms of CPU in 2 s at 0.2 CPUs (%v)", ms, time.Since(start))
		}
	})
}
