package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// TestScript runs testdata/script/*.txtar, each in a world of its own, whose
// binaries come first in PATH. Beside testscript's own commands scripts have
//
//	code N PROGRAM [ARG...]    run it; it must end with exit code N
//	json FILE PATH WANT        the value at PATH (a.b.0.c; len is a length) of the
//	                           JSON in FILE, or stdout, matches WANT, a regexp
//	owned FILE...              the files belong to the caller
//	told N                     wait for the event with number N
//
// and the conditions root, subuid and no-subuid, the kinds of user.
func TestScript(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	testenv.Smoke(t)
	bin := filepath.Dir(testenv.Bin(t, "hutch"))
	world.NeedsPython(t)
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if testenv.InMachine() { // what the command line says is the same on each kernel
		files = []string{"testdata/script/run_tour.txtar", "testdata/script/run_user.txtar"}
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			w, err := world.Make(env.T().(world.Reporter), bin)
			if err != nil {
				return err
			}
			env.Defer(w.End)
			env.Vars = append(env.Vars, w.Vars...)
			env.Vars = append(env.Vars, "DIR="+w.Dir, "TMPDIR="+w.Path("tmp"), "UID="+strconv.Itoa(os.Geteuid()))
			// Files of a script may become a workspace: only their own mode decides.
			return os.Chmod(env.WorkDir, 0o755)
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root", "subuid", "no-subuid":
				return cond == string(testenv.CurrentKind()), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "json": cmdJSON, "owned": cmdOwned, "told": cmdTold,
		},
	})
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got, ok := world.ExitCode(err)
	if !ok {
		ts.Fatalf("%s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH WANT")
	}
	var doc any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &doc); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	got := "nothing"
	if v, ok := at(doc, args[1]); ok {
		got = fmt.Sprint(v)
	}
	want, err := regexp.Compile("^(?:" + args[2] + ")$")
	ts.Check(err)
	if want.MatchString(got) == neg {
		ts.Fatalf("%s is %s", args[1], got)
	}
}

// at is the value at a dotted path.
func at(v any, path string) (any, bool) {
	for step := range strings.SplitSeq(path, ".") {
		switch node := v.(type) {
		case map[string]any:
			next, ok := node[step]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			if step == "len" {
				return len(node), true
			}
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(node) {
				return nil, false
			}
			v = node[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func cmdTold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: told N")
	}
	since, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := hutch.Dial(ctx, ts.Getenv("HUTCH_SOCKET"))
	ts.Check(err)
	defer c.Close()
	events, err := c.Subscribe(ctx, api.SubscribeParams{FromSeq: &since})
	ts.Check(err)
	_, err = events.Next(ctx)
	ts.Check(err)
}

func cmdOwned(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		out, err := exec.Command("stat", "-c", "%u:%g", ts.MkAbs(name)).CombinedOutput()
		if err != nil {
			ts.Fatalf("stat %s: %v: %s", name, err, out)
		}
		mine := strings.TrimSpace(string(out)) == fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
		if mine == neg {
			ts.Fatalf("%s belongs to %s", name, out)
		}
	}
}
