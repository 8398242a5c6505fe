package changes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	<-time.After(10 * time.Millisecond) // the clock of files is coarse
	o.sh(in, between)
	done, failed, err = Apply(o.t.Context(), upper, lower, found, &o.applied, false)
	if err != nil {
		o.t.Fatal(err)
	}
	return done, failed
}

// TestApplyRace: what a hostile PID 1 swaps between the look and the apply is not followed and not brought, and the folder's file
// stays whole, with nothing beside it. Without the swap the same change is applied.
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
	if done, failed := o.steps("echo now >a; echo now >b; echo now >d/c; echo now >n", o.lower); len(done) > 0 || len(failed) != 4 {
		t.Errorf("%v, %+v", done, failed)
	}
	for _, name := range []string{"a", "b", "d/c", "n"} {
		if got, err := os.ReadFile(filepath.Join(o.lower, name)); err != nil || string(got) != "now\n" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestApplyConflicts is all that a sandbox can do to a name, by all that somebody else can.
func TestApplyConflicts(t *testing.T) {
	inside := map[string]string{"modified": "echo mine >>a", "created": "echo mine >n", "deleted": "rm a"}
	outside := map[string]string{
		"unchanged": "true", "modified": "echo yours >>a", "created": "echo yours >n", "replaced": "echo yours >t; mv t a", "deleted": "rm a",
	}
	// What somebody else has removed comes back, where the sandbox has changed it: nothing of his is lost.
	conflicts := map[string]bool{
		"modified modified": true, "modified replaced": true, "created created": true, "deleted modified": true, "deleted replaced": true,
	}
	for in, a := range inside {
		for out, b := range outside {
			o := mounted(t, "echo a >a; chmod 644 a")
			o.sh(o.merged, a)
			<-time.After(10 * time.Millisecond)
			o.sh(o.lower, b)
			before := tree(t, o.lower)
			_, failed := o.apply(false)
			if want := conflicts[in+" "+out]; want != (len(failed) == 1 && failed[0].Conflict) || !want && len(failed) > 0 {
				t.Errorf("%s inside, %s outside: %+v", in, out, failed)
			} else if want && tree(t, o.lower) != before {
				t.Errorf("%s inside, %s outside: touched", in, out)
			}
			if _, failed := o.apply(true); len(failed) > 0 {
				t.Errorf("%s inside, %s outside, by force: %+v", in, out, failed)
			}
		}
	}
}

// TestApplyAgain: what Apply has put into the folder is no conflict later; what somebody has put there then is.
func TestApplyAgain(t *testing.T) {
	o := mounted(t, "echo a >a")
	for _, text := range []string{"one", "two"} {
		o.sh(o.merged, "echo "+text+" >a")
		<-time.After(10 * time.Millisecond)
		if done, failed := o.apply(false); len(done) != 1 || len(failed) > 0 {
			t.Fatalf("%s: %v, %+v", text, done, failed)
		}
	}
	<-time.After(10 * time.Millisecond)
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
		if err := unix.Stat(filepath.Join(o.lower, name), &st); err != nil || st.Uid != want.Uid || st.Gid != want.Gid || st.Mode&0o7777 != want.Mode {
			t.Errorf("%s: %d:%d %o, want %+v; %v", name, st.Uid, st.Gid, st.Mode&0o7777, want, err)
		}
	}
	if n, err := unix.Listxattr(filepath.Join(o.lower, "b"), make([]byte, 256)); err == nil && n > 0 {
		t.Errorf("attributes came along: %d", n)
	}
}
