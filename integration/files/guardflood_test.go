package files_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// flood has what PID 1 refuses, and what it makes, in numbers.
const flood = `
import os, socket, threading
def tries(f, *args):
    try: return f(*args)
    except OSError as e: return e.errno
def refusals(n, name=".vscode"):
    os.makedirs("flood", exist_ok=True)
    for i in range(n):
        tries(os.mkdir, "flood/%d" % i); assert tries(os.mkdir, "flood/%d/%s" % (i, name)) == 30
def write(p):
    with open(p, "w") as f: f.write("x")
`

// floods are what a sandbox does, and the repositories that are reported then, whatever else it has done.
var floods = []struct {
	name, script string
	want         []string
}{
	{"number", "refusals(400); os.makedirs('number/.git'); refusals(400)", []string{"/workspace/number/.git"}},
	{"rate", `
threads = [threading.Thread(target=refusals, args=(200, n)) for n in (".envrc", ".mcp.json", ".idea", ".zed")]
[t.start() for t in threads]; os.makedirs("rate/.git"); [t.join() for t in threads]`, []string{"/workspace/rate/.git"}},
	// Names of which JSON makes three times as much.
	{"long names", `
for i in range(15): os.mkdir(b"\xff\xfe" * 127); os.chdir(b"\xff\xfe" * 127)
assert tries(os.mkdir, ".vscode") == 30
os.mkdir(".git")`, []string{"/workspace/" + strings.Repeat("\ufffd/", 15) + ".git"}},
	{"it was reported before", "os.rmdir('number/.git'); os.mkdir('number/.git')", []string{"/workspace/number/.git"}},
	{"as git writes it", "os.mkdir('number/.git/refs'); os.mkdir('number/.git/objects'); write('number/.git/HEAD')",
		[]string{"/workspace/number/.git"}},
	{"a HEAD that replaces another one", "write('number/.git/x'); os.rename('number/.git/x', 'number/.git/HEAD')", nil},
	{"sockets", `
os.mkdir("bare"); write("bare/HEAD"); write("bare/config")
for n in "objects", "refs": socket.socket(socket.AF_UNIX).bind("bare/" + n)`, []string{"/workspace/bare"}},
	{"moved", "os.makedirs('here/.git'); os.rename('here', 'there')", []string{"/workspace/here/.git"}},
	{"a few", "[os.makedirs('few/%d/.git' % i) for i in range(3)]",
		[]string{"/workspace/few/0/.git", "/workspace/few/1/.git", "/workspace/few/2/.git"}},
	{"at the top", "write('HEAD'); os.mkdir('hooks')", []string{"/workspace"}},
}

// TestGuardFlood: no number of refusals keeps a new repository out of the result, nor what was reported before, nor
// what it is called. Where there are more than can be listed, the result says so, and where to look.
func TestGuardFlood(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	world.NeedsPython(t)
	w := world.New(t)
	dir := w.Sub(t, "work")
	sb := w.Create(t, "--workspace", dir, "--unguard", "git-new", "host")
	c := w.Connect(t)
	run := func(script string) (told []string, rest []api.Unguarded) {
		t.Helper()
		res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Cwd: "/workspace",
			Argv: []string{"python3", "-ISBc", flood + script}}, nil, nil)
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%v %+v", err, res)
		}
		for _, u := range res.Unguarded {
			if strings.Contains(u.Hint, "find ") {
				rest = append(rest, u)
			}
			told = append(told, u.Path)
		}
		slices.Sort(told)
		return told, rest
	}
	for _, f := range floods {
		told, rest := run(f.script)
		if !slices.Equal(told, f.want) {
			testenv.Wrong(t, "%s: reported %q, want %q", f.name, told, f.want)
		}
		if moved := f.name == "moved"; len(rest) > 0 != moved || moved &&
			!strings.Contains(rest[0].Why, "moved or removed") {
			t.Errorf("%s: %+v", f.name, rest)
		}
	}
	told, rest := run("[os.makedirs('many/%d/.git' % i) for i in range(1000)]; refusals(100)")
	if len(told) < 100 || len(told) > 300 || len(rest) != 1 || rest[0].Path != "/workspace" ||
		!strings.Contains(rest[0].Why, "more repositories were made") ||
		!strings.Contains(rest[0].Hint, fmt.Sprintf("find %s -iname .git", dir)) {
		testenv.Wrong(t, "%d reported, and %+v", len(told), rest)
	}
	if told, rest := run("os.makedirs('after/.git')"); !slices.Equal(told, []string{"/workspace/after/.git"}) ||
		len(rest) > 0 {
		t.Errorf("afterwards: %q, %+v", told, rest)
	}
	r := w.Run(t, "exec", "-w", "/workspace", sb, "--", "sh", "-c", "mkdir -p shown/.git").Want(t, 0)
	r.Says(t, "/workspace/shown/.git is not guarded", "it is a new repository")
}
