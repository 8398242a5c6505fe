package changes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// steps find and apply apart, so that something can happen between.
func (o *overlaid) steps(between string, in string) (done []string, failed []Failure) {
	o.t.Helper()
	upper, lower := o.open()
	found, err := Find(o.t.Context(), upper, lower, &o.applied)
	if err != nil {
		o.t.Fatal(err)
	}
	o.tick()
	o.sh(in, between)
	done, failed, err = Apply(o.t.Context(), upper, lower, found, &o.applied, false)
	if err != nil {
		o.t.Fatal(err)
	}
	return done, failed
}

// TestApplyRace: what a hostile PID 1 swaps between the look and the apply is not followed and not brought, and the
// folder's file stays whole, with nothing beside it. Without the swap the same change is applied.
func TestApplyRace(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, swap := range map[string]string{
		"":       "true",
		"link":   "rm a; ln -s " + secret + " a",
		"pipe":   "rm a; mkfifo a",
		"device": "rm a; mknod a c 1 3",
		"folder": "rm a; mkdir a",
		"longer": "echo more >>a",
		"other":  "echo MINE >a",
		"gone":   "rm a",
	} {
		t.Run(name, func(t *testing.T) {
			o := mounted(t, "echo yours >a; chmod 644 a")
			o.sh(o.merged, "echo mine >a")
			done, failed := o.steps(swap, o.upper)
			got, err := os.ReadFile(filepath.Join(o.lower, "a"))
			if err != nil {
				t.Fatal(err)
			}
			if want := "yours\n"; name != "" && (string(got) != want || len(done) > 0 || len(failed) != 1) {
				t.Errorf("%q, %v, %+v", got, done, failed)
			}
			if name == "" && (string(got) != "mine\n" || len(failed) > 0) {
				t.Errorf("the twin: %q, %+v", got, failed)
			}
			if entries, err := os.ReadDir(o.lower); err != nil || len(entries) != 1 {
				t.Errorf("beside it: %v, %v", entries, err)
			}
		})
	}
}

// TestApplyMeanwhile: what the user changes between the look and the apply is left alone.
func TestApplyMeanwhile(t *testing.T) {
	o := mounted(t, "echo yours >a; echo b >b; mkdir d; echo c >d/c")
	o.sh(o.merged, "echo mine >a; rm b; rm -r d; echo n >n")
	if done, failed := o.steps("echo now >a; echo now >b; echo now >d/c; echo now >n", o.lower); len(done) > 0 ||
		len(failed) != 4 {
		t.Errorf("%v, %+v", done, failed)
	}
	for _, name := range []string{"a", "b", "d/c", "n"} {
		if got, err := os.ReadFile(filepath.Join(o.lower, name)); err != nil || string(got) != "now\n" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestApplyConflicts is all that a sandbox can do to a name, by all that somebody else can do then.
func TestApplyConflicts(t *testing.T) {
	inside := map[string]string{
		"modify": "echo mine >>a", "rewrite": "echo mine >t; mv t a", "create": "echo mine >n", "delete": "rm a",
		"rename": "mv a b", "link": "ln -sf x a",
		"folder": "rm a; mkdir a; echo mine >a/f", "chmod": "chmod 600 a", "empty": "rm -r d; mkdir d",
		"remove": "rm -r d", "file": "rm -r d; echo mine >d", "chmod folder": "chmod 700 d",
	}
	outside := map[string]string{
		"nothing": "true", "modify": "echo yours >>a", "rewrite": "echo yours >t; mv t a", "delete": "rm a",
		"create": "echo yours >n", "create b": "echo yours >b",
		"link": "ln -sf yours a", "folder": "rm a; mkdir a; echo yours >a/g", "chmod": "chmod 640 a",
		"modify below": "echo yours >>d/c", "create below": "echo yours >d/new", "chmod folder": "chmod 711 d",
	}
	// What somebody else has removed comes back, where the sandbox has changed it: nothing of his is lost.
	touched := []string{"modify", "rewrite", "link", "folder", "chmod"}
	below := []string{"modify below", "create below", "chmod folder"}
	conflicts := map[string][]string{
		"modify": touched, "rewrite": touched, "create": {"create"}, "delete": touched,
		"rename": append([]string{"create b"}, touched...), "link": touched,
		"folder": touched, "chmod": touched, "empty": below, "remove": below, "file": below, "chmod folder": below[1:],
	}
	for in, a := range inside {
		for out, b := range outside {
			o := mounted(t, "echo a >a; chmod 644 a; mkdir -m 755 d; echo c >d/c")
			o.sh(o.merged, a)
			o.tick()
			o.sh(o.lower, b)
			want := slices.Contains(conflicts[in], out)
			var before, mine string
			if want {
				before, mine = tree(t, o.lower), yours(t, o.lower)
			}
			done, failed := o.apply(false)
			hit := slices.ContainsFunc(failed, func(f Failure) bool { return f.Conflict })
			if want != hit || !hit && len(failed) > 0 {
				t.Errorf("%s inside, %s outside: %v, %+v", in, out, done, failed)
			} else if want && len(done) == 0 && tree(t, o.lower) != before {
				t.Errorf("%s inside, %s outside: touched", in, out)
			}
			if want {
				if got := yours(t, o.lower); got != mine {
					t.Errorf("%s inside, %s outside: lost %q, there is %q; %v, %+v", in, out, mine, got, done, failed)
				}
			}
			if _, failed := o.apply(true); len(failed) > 0 {
				t.Errorf("%s inside, %s outside, by force: %+v", in, out, failed)
			}
			if left := o.find(); left != "" {
				t.Errorf("%s inside, %s outside, by force: left\n%s", in, out, left)
			}
			// The same by both is nothing to bring.
			if in == out || out == "nothing" {
				o := mounted(t, "echo a >a; chmod 644 a; mkdir -m 755 d; echo c >d/c")
				o.sh(o.merged, a)
				o.sh(o.lower, a)
				if found := o.find(); found != "" {
					t.Errorf("%s by both: %s", in, found)
				}
			}
		}
	}
}

// yours are the files and links in a folder that hold what somebody else has written.
func yours(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", `grep -rl yours . | sort; find . -lname yours`)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestApplyBetween: what somebody else changes between two changes of the sandbox's is not lost either, though the
// second may make a file anew; what the sandbox has seen before it changed it is none of that.
func TestApplyBetween(t *testing.T) {
	rewrite := "echo mine >>t; mv t a"
	for name, test := range map[string]struct {
		first, second string
		conflict      bool
	}{
		"in place":          {"echo mine >>a", "echo mine >>a", true},
		"made anew":         {rewrite, rewrite, true},
		"removed, made":     {"rm a", "echo mine >a", true},
		"removed, a folder": {"rm a", "mkdir a", true},
		"seen":              {"true", "echo mine >>a", false},
		"seen, removed":     {"true", "rm a", false},
	} {
		o := mounted(t, "echo a >a; chmod 644 a")
		o.sh(o.merged, test.first)
		o.tick()
		o.sh(o.lower, "echo yours >>a")
		o.tick()
		o.sh(o.merged, test.second)
		_, failed := o.apply(false)
		if got := len(failed) > 0; got != test.conflict {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	// A folder that was emptied, and made anew later.
	o := mounted(t, "mkdir d; echo c >d/c")
	o.sh(o.merged, "rm -r d")
	o.tick()
	o.sh(o.lower, "echo yours >d/new")
	o.tick()
	o.sh(o.merged, "mkdir d")
	if _, failed := o.apply(false); len(failed) != 1 || !failed[0].Conflict {
		t.Errorf("a folder made anew: %+v", failed)
	}
}

// TestApplyAgain: what Apply has put into the folder is no conflict later; what somebody has put there then is.
func TestApplyAgain(t *testing.T) {
	o := mounted(t, "echo a >a")
	for _, text := range []string{"one", "two"} {
		o.sh(o.merged, "echo "+text+" >a")
		o.tick()
		if done, failed := o.apply(false); len(done) != 1 || len(failed) > 0 {
			t.Fatalf("%s: %v, %+v", text, done, failed)
		}
	}
	o.tick()
	o.sh(o.lower, "echo yours >>a")
	if got := o.find(); !strings.Contains(got, "CONFLICT") {
		t.Errorf("somebody else's: %q", got)
	}
}

// TestApplyOwner: owner and mode are kept, bits that give rights are not.
func TestApplyOwner(t *testing.T) {
	o := mounted(t, "echo a >a; chown 1234:1235 a; chmod 4750 a; mkdir d; chmod 3775 d; echo b >b; chmod 640 b")
	o.sh(o.merged, "echo x >>a; chmod 4755 a; echo n >n; chmod 6755 n; chmod 2770 d; echo x >>b; setfattr -n user.x -v 1 b || true")
	if _, failed := o.apply(false); len(failed) > 0 {
		t.Fatalf("%+v", failed)
	}
	for name, want := range map[string]unix.Stat_t{
		"a": {Uid: 1234, Gid: 1235, Mode: 0o755}, "n": {Mode: 0o755}, "d": {Mode: 0o3770}, "b": {Mode: 0o640},
	} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(o.lower, name), &st); err != nil || st.Uid != want.Uid ||
			st.Gid != want.Gid || st.Mode&0o7777 != want.Mode {
			t.Errorf("%s: %d:%d %o, want %+v; %v", name, st.Uid, st.Gid, st.Mode&0o7777, want, err)
		}
	}
	if n, err := unix.Listxattr(filepath.Join(o.lower, "b"), make([]byte, 256)); err == nil && n > 0 {
		t.Errorf("attributes came along: %d", n)
	}
}
