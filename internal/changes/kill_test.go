package changes

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

const applyVar = "HUTCH_TEST_APPLY"

// TestApplyKilled: whoever is killed while a workspace is applied leaves each file as it was or as it is to be, at
// random moments, and the next apply finishes what was left: nothing else is in the folder then.
func TestApplyKilled(t *testing.T) {
	if dir := os.Getenv(applyVar); dir != "" {
		o := &overlaid{t: t, lower: filepath.Join(dir, "lower"), upper: filepath.Join(dir, "upper")}
		upper, lower := o.open()
		found, err := Find(t.Context(), upper, lower, &o.applied)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("begin")
		if _, failed, err := Apply(t.Context(), upper, lower, found, &o.applied, false); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
		fmt.Println("end")
		return
	}
	rounds, cut := 10, 0 // more of them: go test -count
	if testing.Short() {
		rounds = 4
	}
	const size = 30_000
	for i := 0; i < rounds || cut == 0 && i < 10*rounds; i++ {
		o := mounted(t, `mkdir d; echo x >gone; for i in $(seq 60); do echo x >d/r$i; echo o >d/m$i; done`)
		o.fill("n", size)
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestApplyKilled$")
		cmd.Env = append(os.Environ(), applyVar+"="+filepath.Dir(o.lower))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		words := bufio.NewScanner(out)
		if !words.Scan() || words.Text() != "begin" {
			t.Fatalf("the applier says %q, %v", words.Text(), words.Err())
		}
		testenv.RandomMoment(30 * time.Millisecond)
		_ = cmd.Process.Signal(unix.SIGKILL) // it may have ended
		if !words.Scan() || words.Text() != "end" {
			cut++
		}
		_ = cmd.Wait() // killed is how it ends
		o.halfDone(size)
		o.tick()
		if _, failed := o.apply(false); len(failed) > 0 {
			t.Errorf("the next apply: %+v", failed)
		}
		if got, want := tree(t, o.lower), tree(t, o.merged); got != want {
			t.Errorf("behind the next apply:\n%s\nwant\n%s", got, want)
		}
		left, err := filepath.Glob(o.lower + "/*/.hutch-apply-*")
		if err != nil || len(left) > 0 {
			testenv.Wrong(t, "left behind: %q, %v", left, err)
		}
	}
	t.Logf("%d of %d were killed in the middle", cut, rounds)
	if cut == 0 {
		t.Error("none was killed in the middle")
	}
}

// fill changes what TestApplyKilled has in the folder. Programs would take longer than what is tested.
func (o *overlaid) fill(char string, size int) {
	o.t.Helper()
	at := func(format string, args ...any) string { return filepath.Join(o.merged, fmt.Sprintf(format, args...)) }
	errs := []error{os.Mkdir(at("e"), 0o755), os.Remove(at("gone"))}
	for i := 1; i <= 60; i++ {
		errs = append(errs, os.WriteFile(at("d/m%d", i), []byte(strings.Repeat(char, size)), 0o644))
	}
	for i := 1; i <= 30; i++ {
		errs = append(errs, os.WriteFile(at("e/n%d", i), []byte("new\n"), 0o644),
			os.Symlink(fmt.Sprintf("n%d", i), at("e/l%d", i)),
			os.Rename(at("d/r%d", i), at("e/r%d", i)))
	}
	if err := errors.Join(errs...); err != nil {
		o.t.Fatal(err)
	}
}

// halfDone fails for what is neither as it was nor as it is to be.
func (o *overlaid) halfDone(size int) {
	o.t.Helper()
	old, now := "o\n", strings.Repeat("n", size)
	err := filepath.WalkDir(o.lower, func(p string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(o.lower, p)
		if err != nil || d.IsDir() {
			return err
		}
		if d.Type()&os.ModeSymlink != 0 {
			if to, err := os.Readlink(p); err != nil || "e/l"+to[1:] != name {
				testenv.Wrong(o.t, "%s leads to %q, %v", name, to, err)
			}
			return nil
		}
		text, err := os.ReadFile(p)
		switch got := string(text); {
		case err != nil:
			return err
		case strings.HasPrefix(name, "d/m") && (got == old || got == now), strings.HasPrefix(name, "e/n") &&
			got == "new\n":
		case strings.HasPrefix(filepath.Base(name), tmpPrefix):
			// between two calls of the kernel's; the next apply removes it
		case (strings.HasPrefix(name, "d/r") || strings.HasPrefix(name, "e/r") || name == "gone") && got == "x\n":
		default:
			testenv.Wrong(o.t, "%s has %d bytes, %.20q", name, len(got), got)
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
}
