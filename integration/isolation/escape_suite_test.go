package isolation_test

import (
	_ "embed"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

//go:embed testdata/escape.py
var escapes string

// TestEscapeSuite: well over a hundred attempts, as sandbox root and as another user. Each is
// refused inside; outside, in namespaces that the caller makes himself, the same program gets
// through, or what it is after is there.
func TestEscapeSuite(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	testenv.Arch(t, "amd64") // whose numbers these are
	world.NeedsPython(t)
	world.Needs(t, "unshare")
	w := world.New(t)
	ws, secret := w.Sub(t, "ws"), world.Write(t, w.Path("secret"), "of the host\n")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	name := "hutch-escape-" + filepath.Base(w.Dir)
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	program := func(world, workspace string) []string {
		return []string{"/usr/bin/python3", "-c", escapes, world, secret, port, name, workspace}
	}

	// With namespaces of every kind, and with the host's network and processes.
	outside := map[[2]string][]string{}
	for _, namespaces := range []string{"-UrmnpiuC --fork --mount-proc", "-Urm"} {
		cmd := exec.Command("unshare", append(strings.Fields(namespaces), program("outside", ws)...)...)
		cmd.Env, cmd.Dir = w.Vars, w.Dir
		for key, outcome := range escapeOutcomes(t, w.Finish(t, cmd).Want(t, 0).Stdout) {
			outside[key] = append(outside[key], outcome)
		}
	}

	sb := w.Create(t, "--workspace", ws+":rw", "host")
	users := []string{"0"}
	if testenv.CurrentKind() != mustrun.NoSubUID {
		users = append(users, "1000")
	}
	for _, user := range users {
		inside := escapeOutcomes(t,
			w.OK(t, append([]string{"exec", "-u", user, sb, "--"}, program("inside", "/workspace")...)...))
		kinds, shown := map[string]int{}, 0
		for key, outcome := range inside {
			kinds[key[0]]++
			if outcome == "done" || outcome == "" || strings.HasPrefix(outcome, "broken") {
				t.Errorf("user %s, %s: %s: %q", user, key[0], key[1], outcome)
			}
			switch found := outside[key]; {
			case slices.Contains(found, "done"), slices.Contains(found, "there"):
				shown++
			case slices.Contains(found, "absent"):
				t.Logf("this host has none: %s: %s", key[0], key[1])
			default:
				t.Errorf("%s: %s: inside %s, but outside, too: %v", key[0], key[1], outcome, outside[key])
			}
		}
		for _, kind := range []string{"mounts", "fds", "namespaces", "sockets", "tty", "workspace", "told", "init",
			"image", "cgroup", "ids", "kernel"} {
			if kinds[kind] < 5 {
				t.Errorf("user %s: %d attempts at %s", user, kinds[kind], kind)
			}
		}
		if shown < 100 {
			t.Errorf("only %d attempts of %d were shown to matter", shown, len(inside))
		}
		t.Logf("user %s: %d attempts, %d shown", user, len(inside), shown)
	}
	if got := w.OK(t, "exec", sb, "--", "echo", "alive"); got != "alive\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// escapeOutcomes reads what the program prints.
func escapeOutcomes(t testing.TB, text string) map[[2]string]string {
	t.Helper()
	found := map[[2]string]string{}
	for line := range strings.Lines(text) {
		f := world.Decode[[3]string](t, line)
		if _, twice := found[[2]string{f[0], f[1]}]; twice {
			t.Errorf("two attempts are called %s: %s", f[0], f[1])
		}
		found[[2]string{f[0], f[1]}] = f[2]
	}
	return found
}
