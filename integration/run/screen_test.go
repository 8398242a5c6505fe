package run_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestScreen: what commands write stays on the terminal on which they showed a download, and nothing of the download
// does.
func TestScreen(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	ref := world.Push(t, registry, "tiny", world.TinyImage(t))
	base := world.Push(t, registry, "base", world.TinyImage(t))
	file := world.Write(t, w.Path("template.yaml"), "name: steps\nimage: "+base+"\nsteps:\n  - run: echo from a step\n")
	for _, tt := range []struct{ name, script, want string }{
		{"run", `hutch run --pull always IMAGE sh -c 'echo one; echo two >&2; echo three'`, "one|two|three"},
		{"run ends at once", `hutch run --pull always IMAGE sh -c :`, ""},
		{"run writes no line's end", `hutch run --pull always IMAGE sh -c 'printf word'; echo`, "word"},
		{"run with a terminal", `hutch run -t --pull always IMAGE sh -c 'echo one; echo two; tty'`,
			"one|two|/dev/pts/0"},
		{"run fails", `hutch run --pull always IMAGE nosuchprogram`, "hutch: .*nosuchprogram.*(\\|.*)*"},
		{"run in the background", `hutch run -d --pull always IMAGE sh -c : | sed 's/_.*//'`, "(sb|ex)"},
		{"create", `hutch create --pull always IMAGE | sed 's/_.*//'`, "sb"},
		{"pull", `hutch image pull BASE && hutch image rm BASE >/dev/null`, ".+"},
		{"push", `hutch push IMAGE OTHER`, "sha256:[0-9a-f]{64}"},
		{"commit", `sb=$(hutch create IMAGE) && hutch commit $sb mine:1`, ".*mine:1.*(\\|.*)*"},
		{"template", `hutch template create -f FILE && hutch template build steps`, ".*from a step.*"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script := strings.NewReplacer("IMAGE", ref, "BASE", base, "OTHER", imagetest.Ref(registry, "other", "1"),
				"FILE", file).Replace(tt.script)
			p := world.OpenPTY(t)
			p.Resize(24, 80)
			cmd := exec.Command("/bin/sh", "-c", "echo before; "+script+"; echo after")
			cmd.Env, cmd.Dir = w.Vars, w.Dir
			p.Give(cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p.Started()
			raw := p.Rest()
			got := strings.Join(p.Screen(), "|")
			world.Await(t, cmd)
			if want := "^before\\|" + tt.want + "\\|?after$"; !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("on the screen: %q, want %s\n%q", got, want, raw)
			}
			if strings.ContainsAny(got, "━─") {
				t.Errorf("the download is still on the screen: %q", got)
			}
		})
	}
}
