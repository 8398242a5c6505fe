package obeyed_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// npmFolder is where make deps-obeyed puts packages of npm's.
const npmFolder = ".cache/obeyed/node_modules"

// program is a program of the host's and names that it obeys in a folder. In texts and arguments MARK is the file that
// is made when it obeys, HERE the folder, NPM the folder of npm's packages and MODULE that of hutch's sources.
type program struct {
	name    string            // of the subtest
	seen    string            // the program and the version with which this was last seen
	rows    []string          // what it proves of internal/guard: names, in the order in which a sandbox tries them
	needs   []string          // programs that it takes
	version []string          // prints the version
	made    map[string]string // the files that are obeyed, at or below those names
	beside  map[string]string // what those files name, and a sandbox can make
	before  map[string]string // what the user has in the folder
	setup   func(*user)       // what the user has done before
	// trust is what the user has told the program so that it does not ask. Without it nothing is run, which is tested,
	// too. Nil: it never asks.
	trust   func(*user)
	run     func(*user) // what the user does
	home    bool        // the folder is the user's home
	account bool        // the program wants its user to have an account
	// ordinary: it takes root's home folder from the accounts, where the tests leave no file.
	ordinary bool
	also     string // a further name that covers what is made: who wants it unguards both
	env      []string
}

// shell is the script that obeys by making the mark.
const shell = "#!/bin/sh\ntouch MARK\n"

// here is where a sandbox finds what it is to bring into the folder.
const here = "/srv/hostile"

// brings is the script of a sandbox that may do it: it brings the names that are its arguments.
const brings = `set -e
cp -r ` + here + `/beside/. .
for name; do
	mkdir -p "$(dirname "$name")"
	cp -rT --remove-destination ` + here + `/made/"$name" "$name"
done`

// tries is the script of a sandbox that may not, and tries each way. It prints a line for each: the way, and what the
// program said, or that it did it.
const tries = `LC_ALL=C; export LC_ALL
try() {
	what=$1; shift
	if said=$("$@" 2>&1); then said=done; fi
	echo "$what: $(echo "$said" | tr '\n' ' ')"
}
cp -r ` + here + `/beside/. . || exit
for name; do
	from=` + here + `/made/$name
	mkdir -p "$(dirname "$name")" || exit
	rm -rf plain
	cp -r "$from" plain || exit
	if [ -e "$name" ]; then
		try "change $name" cp -r "$from" "$(dirname "$name")"
		case $name in
		.git/modules | .git/worktrees) ;; # of what is in there it may remove history
		*) try "remove $name" rm -r "$name" ;;
		esac
		try "move $name away" mv "$name" away
	else
		try "make $name" cp -r "$from" "$name"
		[ -d plain ] || try "link $name" ln plain "$name"
		try "make a symlink of $name" ln -s plain "$name"
	fi
	try "rename to $name" mv -T plain "$name"
done
rm -rf plain`

// sandbox runs a script in a new sandbox that has the folder in mode rw.
func (p program) sandbox(u *user, script string, flags ...string) api.ExecResult {
	u.t.Helper()
	hostile := u.w.Sub(u.t, filepath.Base(filepath.Dir(u.dir))+"/hostile")
	u.write(filepath.Join(hostile, "made"), p.made)
	u.write(filepath.Join(hostile, "beside"), map[string]string{"other": "x\n"})
	u.write(filepath.Join(hostile, "beside"), p.beside)
	c := u.w.Connect(u.t)
	sb := u.w.Create(u.t, append(append([]string{"--workspace", u.dir, "-v", hostile + ":" + here + ":ro"}, flags...),
		"host")...)
	res, err := c.ExecRun(u.t.Context(), api.ExecParams{Sandbox: sb, Argv: append([]string{"sh", "-c", script, "sh"},
		p.rows...)}, nil, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	u.w.OK(u.t, "rm", "-f", sb)
	return res
}

// test shows that the program obeys, and that a sandbox does not get it to.
func (p program) test(t *testing.T, w *world.World) {
	p.require(t)
	p.obeys(newUser(t, w, p, "free"))
	p.refused(newUser(t, w, p, "held"))
}

// require skips t where the machine has not got the program, and says which version it has.
func (p program) require(t *testing.T) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range p.needs {
		if rest, ok := strings.CutPrefix(name, "NPM/"); ok {
			_, err = os.Stat(filepath.Join(root, npmFolder, rest))
		} else {
			_, err = exec.LookPath(name)
		}
		if err != nil {
			testenv.Require(t, probe.Check{Name: filepath.Base(name), Status: probe.No, Detail: err.Error(),
				Remedy: "make deps-obeyed"})
		}
	}
	if p.ordinary {
		testenv.NotRoot(t)
	}
	if p.account {
		if err := exec.Command("id", "-un").Run(); err != nil { // os/user makes one up
			testenv.Require(t, probe.Check{Name: "account", Status: probe.No, Detail: "id -un: " + err.Error(),
				Remedy: "make test, as a user with an account"})
		}
	}
}

// arrange has the user do all that comes before the sandbox.
func (p program) arrange(u *user) {
	u.t.Helper()
	u.write(u.dir, p.before)
	if p.setup != nil {
		p.setup(u)
	}
	if u.obeyed() {
		u.t.Fatalf("%s is there before a sandbox has done something:\n%s", u.mark, strings.Join(u.said, "\n"))
	}
}

// obeys is the twin: what a sandbox brings that may do it is obeyed.
func (p program) obeys(u *user) {
	u.t.Helper()
	p.arrange(u)
	if len(p.version) > 0 {
		r := u.do(p.version...)
		said, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(r.Stdout, r.Stderr)), "\n")
		u.t.Logf("%s; last seen with %s", said, p.seen)
	}
	flags := []string{"--unguard", "git-new"}
	for _, name := range append(slices.Clone(p.rows), p.also) {
		if name != "" {
			flags = append(flags, "--unguard", name)
		}
	}
	if res := p.sandbox(u, brings, flags...); res.ExitCode != 0 {
		u.t.Fatalf("with %q: exit %d: %s", flags, res.ExitCode, res.Stderr)
	}
	if p.trust != nil {
		if p.run(u); u.obeyed() {
			u.t.Errorf("%s obeys without being trusted:\n%s", p.seen, strings.Join(u.said, "\n"))
			_ = os.Remove(u.mark)
		}
		p.trust(u)
		u.trusting = true
	}
	u.said = nil
	if p.run(u); !u.obeyed() {
		u.t.Errorf("%s does not obey %q:\n%s", p.seen, p.rows, strings.Join(u.said, "\n"))
	}
}

// refused is the denial: each way to bring it ends with an error of the guard's, is reported, and nothing is obeyed.
func (p program) refused(u *user) {
	u.t.Helper()
	p.arrange(u)
	there := map[string]bool{}
	for _, name := range p.rows {
		_, err := os.Lstat(filepath.Join(u.dir, name))
		there[name] = err == nil
	}
	res := p.sandbox(u, tries)
	ways := 0
	for way := range strings.Lines(res.Stdout) {
		ways++
		said := strings.ToLower(way)
		if !strings.Contains(said, "read-only file system") && !strings.Contains(said, "busy") &&
			!strings.Contains(said, "cross-device") {
			u.t.Errorf("a sandbox could %s", way)
		}
	}
	if res.ExitCode != 0 || ways < 3*len(p.rows) || len(res.Unguarded) > 0 {
		u.t.Errorf("%d ways, exit %d, unguarded %+v: %s", ways, res.ExitCode, res.Unguarded, res.Stderr)
	}
	for _, name := range p.rows {
		if !there[name] && !slices.ContainsFunc(res.Denials, func(d api.Denial) bool {
			return d.By == "guard" && d.Errno == "EROFS" &&
				strings.HasPrefix(d.Target+"/", "create /workspace/"+name+"/") &&
				(strings.HasPrefix(d.HowToAllow, "--unguard "+name) || p.also != "" &&
					strings.HasPrefix(d.HowToAllow, "--unguard "+p.also))
		}) {
			u.t.Errorf("%s was refused, and not reported with the flag that allows it: %+v", name, res.Denials)
		}
	}
	if p.trust != nil {
		p.trust(u)
		u.trusting = true
	}
	if p.run(u); u.obeyed() {
		u.t.Errorf("%s obeys a sandbox:\n%s", p.seen, strings.Join(u.said, "\n"))
	}
}

// debian are the programs that make deps-obeyed installs.
func debian() []program {
	return slices.Concat(editors(), shells(), sessions(), versions(), hooks(), folders(), packages(), interpreters())
}

// programs are all.
func programs() []program {
	return slices.Concat(debian(), accounts(), ordinary(), toolchain(), machine())
}

// each tests some of them side by side.
func each(t *testing.T, list []program) {
	t.Helper()
	testenv.Require(t, probe.Landlock())
	w := world.New(t)
	for _, p := range list {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.test(t, w)
		})
	}
}

// TestObeyed: what a sandbox brings under a guarded name, when that is allowed, is obeyed by the program for which the
// name is guarded; otherwise it cannot bring it, and the program runs nothing of it.
func TestObeyed(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "obeyed")
	t.Parallel()
	each(t, debian())
}

// TestObeyedAccount is TestObeyed of programs that refuse users without an account.
func TestObeyedAccount(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "obeyed")
	t.Parallel()
	each(t, accounts())
}

// TestObeyedOrdinary is TestObeyed of programs that are the same for root, but for where they look for root's files.
func TestObeyedOrdinary(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "obeyed")
	t.Parallel()
	each(t, ordinary())
}

// TestObeyedGo is TestObeyed of the toolchain that the tests are built with.
func TestObeyedGo(t *testing.T) {
	testenv.Suite(t, "obeyed")
	t.Parallel()
	each(t, toolchain())
}

// TestObeyedMachine is TestObeyed of what this machine happens to have.
func TestObeyedMachine(t *testing.T) {
	testenv.Suite(t, "obeyed")
	t.Parallel()
	each(t, machine())
}

// TestObeyedSmoke is TestObeyed of a shell and of npm, which each machine has that runs the tests.
func TestObeyedSmoke(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	each(t, slices.DeleteFunc(debian(), func(p program) bool { return p.name != "bashrc" && p.name != "npm" }))
}

// TestReviewed: what the user runs by hand is not guarded, because a look at the diff finds it: a sandbox changes a
// Makefile, and make obeys.
func TestReviewed(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	p := program{name: "make", seen: "GNU Make 4.3", rows: []string{"Makefile"}, needs: []string{"make"},
		made: map[string]string{"Makefile": "all:\n\ttouch MARK\n"}, before: map[string]string{"Makefile": "all:\n"}}
	p.require(t)
	u := newUser(t, world.New(t), p, "free")
	p.arrange(u)
	if res := p.sandbox(u, brings); res.ExitCode != 0 {
		t.Fatalf("exit %d: %s", res.ExitCode, res.Stderr)
	}
	if u.do("make"); !u.obeyed() {
		t.Errorf("make does not obey a Makefile:\n%s", strings.Join(u.said, "\n"))
	}
}
