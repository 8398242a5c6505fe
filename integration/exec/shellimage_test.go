package exec_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestShellImages: shells other than bash.
func TestShellImages(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	busybox := world.StaticShell(t)
	registry := imagetest.StartRegistry(t)
	w := world.New(t)
	c := w.Connect(t)
	for name, files := range map[string][]imagetest.File{
		"busybox": {imagetest.Dir("bin"), imagetest.Exec("bin/sh", busybox), imagetest.Exec("bin/sleep", busybox)},
		"dash":    append(dashFiles(t), imagetest.Exec("bin/sleep", busybox)),
	} {
		t.Run(name, func(t *testing.T) {
			ref := world.Push(t, registry, name,
				imagetest.Image{Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(files...), imagetest.Gzip)}})
			sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: ref}}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb.ID})
			s.Says("x='a  b'; f() { echo f $1; }; cd /bin; trap 'echo trapped' TERM; set -- p q", "")
			const state = `echo "$x" $PWD $#; f 1; trap`
			want := s.Run(state).Stdout
			if !strings.HasPrefix(want, "a  b /bin 2\nf 1\n") || !strings.Contains(want, "TERM") {
				t.Errorf("state: %q", want)
			}
			for command, code := range map[string]int{
				"false": 1, "if": 2, "echo 'unbalanced": 2, "no-such-command": 127, "return 5": 5,
				"for i in 1; do\nbreak": 2, "(exit 7)": 7,
				"set -u; echo $nope": 2,
			} {
				r := s.Run(command)
				if name == "busybox" && code == 2 && r.ExitCode == 1 {
					r.ExitCode = 2 // its code of a variable that is not set
				}
				if r.ExitCode != code || r.Closed {
					t.Errorf("%q: %+v", command, r)
				}
			}
			s.Says("set +u; sleep 1000 & bg=$!; read line; echo empty $line", "empty\n")
			for _, command := range []string{"x=1; sleep 1000; echo BAD", "while :; do :; done", "exec sleep 1000",
				"x=1; set -n; exit 4"} {
				if r := s.Within(0.5, command); r.Verdict != api.VerdictTimeoutWall || r.Closed || r.Stdout != "" {
					t.Errorf("%q: %+v", command, r)
				}
				s.Says(state, want)
				s.Says("kill -0 $bg && echo alive", "alive\n")
			}
			if r := s.Run("set -e; false; echo BAD"); r.ExitCode != 1 || !r.Closed || r.Stdout != "" {
				t.Errorf("set -e: %+v", r)
			}
			w.OK(t, "rm", "-f", sb.ID)
		})
	}
	t.Run("none", func(t *testing.T) {
		ref := world.Push(t, registry, "none",
			imagetest.Image{Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(imagetest.Dir("bin")),
				imagetest.Gzip)}})
		sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: ref}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.OpenShell(t.Context(), api.ShellParams{Sandbox: sb.ID}); api.ErrorCode(err) != api.NotFound ||
			!strings.Contains(err.Error(), "no shell") {
			t.Error(err)
		}
		w.OK(t, "rm", "-f", sb.ID)
	})
}

// dashFiles are dash and the libraries that it needs.
func dashFiles(t testing.TB) []imagetest.File {
	t.Helper()
	world.Needs(t, "dash", "ldd")
	path, err := exec.LookPath("dash")
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("ldd", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := []imagetest.File{imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.Read(t, path))}
	made := map[string]bool{}
	for _, lib := range regexp.MustCompile(`/\S+`).FindAllString(string(list), -1) {
		name := strings.TrimPrefix(lib, "/")
		for i, c := range name {
			if dir := name[:i]; c == '/' && !made[dir] {
				made[dir] = true
				files = append(files, imagetest.Dir(dir))
			}
		}
		files = append(files, imagetest.Exec(name, world.Read(t, lib)))
	}
	return files
}
