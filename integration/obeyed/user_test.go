package obeyed_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// user is somebody on the host who has a folder and works in it with programs of the host's.
type user struct {
	t        *testing.T
	w        *world.World
	dir      string // the folder; a program that is started is started here
	home     string
	mark     string // the file that a program makes when it obeys
	env      []string
	words    *strings.Replacer
	trusting bool     // program.trust has been done
	said     []string // by the programs
}

// newUser makes a user of p with an empty folder. kind tells the users of one program apart.
func newUser(t *testing.T, w *world.World, p program, kind string) *user {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	at := p.name + "-" + kind
	u := &user{t: t, w: w, dir: w.Sub(t, at+"/work"), mark: w.Path(at + "/obeyed")}
	if u.home = u.dir; !p.home {
		u.home = w.Sub(t, at+"/home")
	}
	u.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + u.home, "TMPDIR=" + w.Path("tmp"), "XDG_RUNTIME_DIR=" + w.Path("run"),
		"LANG=C.UTF-8", "LC_ALL=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=x",
		"GIT_AUTHOR_EMAIL=x@example.com",
		"GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.com",
	}, p.env...)
	u.words = strings.NewReplacer("MARK", u.mark, "HERE", u.dir, "NPM", filepath.Join(root, npmFolder), "MODULE", root)
	for i := range u.env {
		u.env[i] = u.words.Replace(u.env[i])
	}
	u.write(u.dir, map[string]string{"file": "words\n"})
	return u
}

// write makes files below dir. A text that names its interpreter is a program.
func (u *user) write(dir string, files map[string]string) {
	u.t.Helper()
	for name, text := range files {
		at, mode := filepath.Join(dir, name), os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			u.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(u.words.Replace(text)), mode); err != nil {
			u.t.Fatal(err)
		}
	}
}

// copied copies a file of the system into the home folder, as useradd does.
func (u *user) copied(from, to string) {
	u.t.Helper()
	u.write(u.home, map[string]string{to: world.Read(u.t, from)})
}

// command is a program as the user starts it in the folder.
func (u *user) command(argv []string) *exec.Cmd {
	args := make([]string, len(argv))
	for i, arg := range argv {
		args[i] = u.words.Replace(arg)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = u.dir, u.env
	return cmd
}

// do runs a program to its end, which may be a failure.
func (u *user) do(argv ...string) world.Result {
	u.t.Helper()
	r := finish(u.t, u.command(argv))
	u.said = append(u.said, fmt.Sprintf("%s: exit %d\n%s%s", strings.Join(r.Args, " "), r.Code,
		world.Abridged(r.Stdout), world.Abridged(r.Stderr)))
	return r
}

// patience bounds the wait for a program to end: some take a second of a processor's time only to start.
var patience = testenv.Patience(2 * time.Minute)

// finish runs a program to its end. Its stdin is empty.
func finish(t *testing.T, cmd *exec.Cmd) world.Result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	code := await(t, cmd)
	return world.Result{Args: cmd.Args, Code: code, Stdout: out.String(), Stderr: errs.String()}
}

// await waits for a program that was started, and returns its exit code.
func await(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		testenv.Late(t, "%s did not end within %v", strings.Join(cmd.Args, " "), patience)
	}
	code, ok := world.ExitCode(err)
	if !ok {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return code
}

// must runs a program that must succeed.
func (u *user) must(argv ...string) {
	u.t.Helper()
	u.do(argv...).Want(u.t, 0)
}

// terminal runs a program on a terminal to its end. talk is what the user does there.
func (u *user) terminal(talk func(p *world.PTY), argv ...string) {
	u.t.Helper()
	p := world.OpenPTY(u.t)
	p.Resize(24, 80)
	cmd := u.command(argv)
	p.Give(cmd)
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	p.Started()
	if talk != nil {
		talk(p)
	}
	code := await(u.t, cmd)
	u.said = append(u.said, fmt.Sprintf("%s: exit %d\n%q", strings.Join(cmd.Args, " "), code, world.Abridged(p.Rest())))
}

// obeyed reports whether a program has made the mark.
func (u *user) obeyed() bool {
	_, err := os.Lstat(u.mark)
	return err == nil
}

// runs is what a user does who starts one program.
func runs(argv ...string) func(*user) { return func(u *user) { u.do(argv...) } }

// shows is runs on a terminal.
func shows(argv ...string) func(*user) { return func(u *user) { u.terminal(nil, argv...) } }

// types is runs on a terminal for a program that ends by keys: they are pressed when it has shown a text.
func types(seen, keys string, argv ...string) func(*user) {
	return func(u *user) {
		u.terminal(func(p *world.PTY) {
			p.Sees(seen)
			p.Write(keys)
		}, argv...)
	}
}

// did is runs for what must succeed.
func did(argv ...string) func(*user) { return func(u *user) { u.must(argv...) } }

// has is what a user has done who has files in the home folder.
func has(name, text string) func(*user) {
	return func(u *user) { u.write(u.home, map[string]string{name: text}) }
}

// all does one thing after the other.
func all(steps ...func(*user)) func(*user) {
	return func(u *user) {
		for _, do := range steps {
			do(u)
		}
	}
}
