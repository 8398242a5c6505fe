package files_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// filesScript does things to files, each refused one beside its allowed twin, and prints what was refused.
const filesScript = `
import errno, json, os, sys
os.umask(0)
def put(p, mode=0o644):
    os.close(os.open(p, os.O_CREAT|os.O_WRONLY, mode))
    os.chmod(p, mode)
for d in ("/tmp/open", "/tmp/closed", "/tmp/sticky"): os.mkdir(d)
for f in ("/tmp/open/f", "/tmp/open/secret", "/tmp/closed/f", "/tmp/sticky/f", "/tmp/sticky/g", "/tmp/open/r"): put(f)
os.chmod("/tmp/open", 0o777); os.chmod("/tmp/sticky", 0o1777); os.chmod("/tmp/closed", 0o700); os.chmod("/tmp/open/secret", 0o600); os.chmod("/tmp/open/f", 0o666)
os.symlink("/ro", "/tmp/open/to"); os.symlink("/proc/self/status", "/tmp/open/me"); os.symlink("../open/secret", "/tmp/open/link")
uid = int(sys.argv[1])
if uid: os.setgroups([]); os.setgid(uid); os.setuid(uid)
os.execv(sys.executable, [sys.executable, "-ISBc", sys.argv[2]])`

const filesTries = `
import errno, json, os
refused = []
def seen(f, p):
    if f in (os.open, os.chmod, os.chown, os.truncate): return os.path.realpath(p)
    return os.path.join(os.path.realpath(os.path.dirname(p)), os.path.basename(p))
def tried(f, *args):
    try: r = f(*args)
    except OSError as e:
        if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY): refused.append([errno.errorcode[e.errno], *{seen(f, a) for a in (args if f is os.rename else [args[1]] if f in (os.symlink, os.link) else [args[0]])}])
    else:
        if f is os.open: os.close(r)
R, W, C = os.O_RDONLY, os.O_WRONLY, os.O_WRONLY|os.O_CREAT
os.chdir("/tmp/open")
d = os.open("/tmp", os.O_RDONLY)
for args in [
    ("f", R), ("f", os.O_RDWR), ("secret", R), ("link", R), ("/tmp/closed/f", R), ("/tmp/closed/new", C), ("new", C), ("none", R), ("none", W), ("/tmp/none/new", C),
    ("/ro/f", R), ("/ro/f", W), ("to/new", C), ("to/none", R), ("/ro/f", R|os.O_TRUNC), ("/usr/new", C), ("/usr/bin/env", R), ("/usr/bin", W), ("/usr/bin/env", C|os.O_EXCL),
    ("me", R), ("/dev/stdin", R), ("/proc/self/status", R), ("/proc/thread-self/status", R), ("/proc/self/comm", W), ("/proc/self/fd", R), ("/proc/self/cwd/f", R),
    ("/tmp/open", os.O_TMPFILE|os.O_WRONLY), ("/tmp/closed", os.O_TMPFILE|os.O_WRONLY), ("../open/./secret", W), ("secret/", R), ("", R),
    ("/tmp/closed", R), ("/tmp/closed", os.O_PATH), ("/tmp/closed/f", os.O_PATH), ("link", R|os.O_NOFOLLOW),
    ("/workspace/.git/config", R), ("/workspace/.git/config", W), ("/workspace/.git/hooks/x", C), ("/workspace/free", C),
]: tried(os.open, *args)
try: os.close(os.open("closed/f", R, dir_fd=d))
except OSError as e: refused.append([errno.errorcode[e.errno], "/tmp/closed/f"])
tried(os.mkdir, "/tmp/open/d"); tried(os.mkdir, "/tmp/closed/d"); tried(os.mkdir, "/ro/d"); tried(os.mkdir, "/ro"); tried(os.mkdir, "/tmp/none/d")
tried(os.symlink, "x", "/tmp/open/s"); tried(os.symlink, "x", "/ro/s"); tried(os.link, "f", "/tmp/open/l"); tried(os.link, "f", "/tmp/closed/l")
tried(os.unlink, "/ro/f"); tried(os.unlink, "/tmp/open/none"); tried(os.unlink, "/tmp/sticky/f"); tried(os.unlink, "l"); tried(os.rmdir, "d"); tried(os.unlink, "/tmp/closed/f")
tried(os.rename, "f", "f2"); tried(os.rename, "f2", "/tmp/closed/f2"); tried(os.rename, "/tmp/sticky/g", "/tmp/open/g"); tried(os.rename, "/ro/f", "/ro/g")
tried(os.rename, "/workspace/.git", "/workspace/g"); tried(os.rename, "r", "/tmp/open/f2")
tried(os.chmod, "secret", 0o600); tried(os.chmod, "/ro/f", 0o600); tried(os.chmod, "link", 0o600); tried(os.chown, "secret", -1, -1); tried(os.chown, "secret", 0, 0); tried(os.lchown, "s", 0, 0)
tried(os.truncate, "secret", 0); tried(os.truncate, "/ro/f", 0); tried(os.truncate, "none", 0)
print(json.dumps(refused))`

// TestFileDenied: each file that a process is refused is reported in debug mode, with the errno that it gets, and
// nothing else is: not what is allowed, not what is missing or is there already. Root and another user.
func TestFileDenied(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	ro, work := filepath.Join(w.Dir, "ro"), filepath.Join(w.Dir, "work")
	for _, dir := range []string{ro, filepath.Join(work, ".git", "hooks")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{filepath.Join(ro, "f"), filepath.Join(work, ".git", "config")} {
		if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	uids := []int{0}
	if fields := strings.Fields(w.Inside(t, "cat", "/proc/self/uid_map")); len(fields) > 3 || fields[2] != "1" {
		uids = append(uids, 1000)
	}
	for _, uid := range uids {
		r := w.Run(t, "debug", "run", "--json", "-v", ro+":/ro:ro", "--workspace", work+":rw", "--guard-new", "tell",
			"host", "--",
			"python3", "-ISBc", filesScript, fmt.Sprint(uid), filesTries)
		var all struct {
			Events []api.Event
			Result api.ExecResult
		}
		if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || all.Result.ExitCode != 0 {
			t.Fatalf("uid %d: %v: %s %s", uid, err, r.Stderr, all.Result.Stderr)
		}
		var refused [][]string
		if err := json.Unmarshal([]byte(all.Result.Stdout), &refused); err != nil {
			t.Fatal(err)
		}
		told := map[string]api.FileEvent{}
		for _, e := range all.Events {
			if e.Kind == api.EventFileDenied {
				f := world.Decode[api.FileEvent](t, string(e.Data))
				told[f.Errno+" "+f.Path] = f
				if f.Why == "" || f.Rule == "" || f.By == "" || f.Process == nil || f.Process.PID == 0 ||
					e.Exec != all.Result.Exec {
					t.Errorf("uid %d: %s", uid, e.Data)
				}
			}
		}
		got := map[string]bool{}
		for _, x := range refused {
			i := slices.IndexFunc(x[1:], func(path string) bool { return told[x[0]+" "+path].Path != "" })
			if i < 0 {
				t.Errorf("uid %d: not told: %q", uid, x)
				continue
			}
			got[x[0]+" "+x[1+i]] = true
		}
		for key, f := range told {
			if !got[key] {
				t.Errorf("uid %d: told, and not refused: %+v", uid, f)
			}
		}
		if uid == 1000 && (len(got) < 10 || !strings.Contains(told["EACCES /tmp/open/secret"].Why,
			"the process is uid 1000") || told["EACCES /tmp/open/secret"].HowToAllow == "") || len(got) < 6 {
			t.Errorf("uid %d: %+v", uid, told)
		}
		if f := told["EROFS /workspace/.git/hooks/x"]; uid == 0 &&
			(f.HowToAllow != "--unguard .git/hooks" || f.Op != "create" || f.By != "mount") {
			t.Errorf("%+v", f)
		}
	}
	if r := w.Run(t, "debug", "run", "-v", ro+":/ro:ro", "host", "--", "sh", "-c", "echo x >/ro/f"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "write /ro/f, by mount EROFS") || !strings.Contains(r.Stderr, "to allow it: -v "+ro+
		":/ro:rw") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	// Without debug nobody looks.
	sb := w.Create(t, "-v", ro+":/ro:ro", "host")
	w.Run(t, "exec", sb, "--", "sh", "-c", "echo x >/ro/f")
	if events := w.OK(t, "events", "-n", "--kind", "file.denied", "--sandbox", sb); events != "" {
		t.Errorf("events: %s", events)
	}
}
