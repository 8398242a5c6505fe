package isolation_test

import (
	"encoding/json"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
)

// TestNothingTold looks at all that can be read in /proc, /dev, /etc and the environment for what
// would tell which machine this is: its ids, names, disks, command line and folders. The
// same words in a file of the sandbox's own are found, so the search works.
func TestNothingTold(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	world.NeedsPython(t)
	words := map[string]string{"state folder": w.Dir}
	read := func(path string) string {
		text, _ := os.ReadFile(path) // not every host has each
		return strings.TrimSpace(string(text))
	}
	words["boot id"] = read("/proc/sys/kernel/random/boot_id")
	words["machine id"] = read("/etc/machine-id")
	words["command line"] = read("/proc/cmdline")
	words["host name"], _ = os.Hostname()
	if u, err := user.Current(); err == nil && len(u.Username) > 5 { // root and the like would be found anywhere
		words["user"] = u.Username
	}
	for _, m := range regexp.MustCompile(`(?m)^ +\d+ +\d+ +\d+ ([a-z]+[a-z0-9]*)$`).
		FindAllStringSubmatch(read("/proc/partitions"), -1) {
		words["disk "+m[1]] = m[1]
	}
	for what, word := range words {
		// would be found anywhere
		if len(word) < 3 || slices.Contains([]string{"localhost", "host", "linux", "debian"}, word) {
			delete(words, what)
		}
	}
	wanted, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	const script = `
import json, os, re, stat, sys
words = {k: re.compile(rb"(?<![\w-])" + re.escape(v.encode()) + rb"(?![\w-])") for k, v in json.loads(sys.argv[1]).items()}
open("/etc/control", "w").write(sys.argv[1])
seen = 0
def look(where, text):
    for what, r in words.items():
        if r.search(text): print(what + ": " + where)
def walk(dir):
    global seen
    for e in os.scandir(dir):
        look(e.path + " (its name)", e.name.encode())
        try:
            if e.is_dir(follow_symlinks=False):
                if not re.fullmatch("/proc/[0-9]+", e.path) or e.path == "/proc/1": walk(e.path)
            elif e.is_symlink():
                look(e.path + " (its target)", os.readlink(e.path).encode())
            elif stat.S_ISREG(e.stat().st_mode) and e.name not in ("kmsg", "pagemap", "mem", "kpagecount", "kpageflags", "kpagecgroup", "clear_refs"):
                with open(e.path, "rb") as f:
                    look(e.path, f.read(1 << 20))
                seen += 1
        except OSError: pass
for dir in ("/proc", "/proc/self/", "/dev", "/etc", "/run", "/tmp", "/var"):
    try: walk(dir)
    except OSError: pass
look("environ", json.dumps(dict(os.environ)).encode())
look("uname", repr(os.uname()).encode())
look("argv of others", b"".join(open(f"/proc/{p}/cmdline", "rb").read() for p in os.listdir("/proc") if p == "1"))
if seen < 200: print("only", seen, "files read")
`
	got := w.OK(t, "run", "host", "--", "/usr/bin/python3", "-c", script, string(wanted))
	for line := range strings.Lines(got) {
		what, where, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case where == "/etc/control":
			delete(words, what)
		case strings.HasSuffix(where, "/cmdline") && strings.Contains(where, "/self/"),
			strings.HasPrefix(where, "/proc/thread-self/"):
			// this script's own argument
		default:
			t.Errorf("%s is told by %s", what, where)
		}
	}
	for what, word := range words {
		t.Errorf("the search does not find the %s %q in its own file", what, word)
	}
}
