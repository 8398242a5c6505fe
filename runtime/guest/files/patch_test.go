package files

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/patch"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// snapshot is what a folder holds, as "path mode content".
func snapshot(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Mode().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, rel+" "+st.Mode().String()+" "+get(t, path))
		} else if path != dir && d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, rel+"/")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestPatch(t *testing.T) {
	c, dir := newClient(t), t.TempDir()
	apply := func(text string, dry bool) error {
		args, _, err := planned(t, c, dir, text)
		if err == nil && !dry {
			if _, _, err = op(t, c, filesapi.OpPatch, dir, args); err == nil {
				_, _, err = op(t, c, filesapi.OpSettle, dir, &filesapi.SettleArgs{Plan: args.Plan, Done: true})
			}
		}
		return err
	}
	put(t, dir+"/mod", "1\n2\n3\n")
	put(t, dir+"/del", "x\n")
	put(t, dir+"/ren", "y\n")
	if err := os.Chmod(dir+"/mod", 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", dir+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("mod", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	const good = "*** Update File: mod\n@@\n 1\n-2\n+two\n*** Delete File: del\n*** Add File: new/deep/file\n+hello\n*** Update File: ren\n*** Move to: new/ren\n@@\n-y\n+z\n"
	for _, bad := range []struct{ text, want string }{
		{"*** Add File: out/x\n+1\n", "out/x: leads out of the folder"},
		{"*** Add File: ../x\n+1\n", "leads out of the folder"},
		{"*** Add File: /etc/x\n+1\n", "leads out of the folder"},
		{"*** Update File: link\n@@\n-1\n+2\n", "is a symbolic link"},
		{"*** Update File: fifo\n@@\n-1\n+2\n", "is a fifo"},
		{"*** Delete File: out/hostname\n", "out/hostname: leads out of the folder"},
		{"*** Update File: none\n@@\n-1\n+2\n", "none: no such file"},
		{"*** Add File: link\n+1\n", "is there already"},
		{"*** Add File: fifo/x\n+1\n", "not a directory"},
	} {
		err := apply("*** Begin Patch\n"+good+bad.text+"*** End Patch\n", false)
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: %v", bad.text, err)
		}
		if after := snapshot(t, dir); !slices.Equal(after, before) {
			t.Fatalf("%q left %q", bad.text, after)
		}
	}
	whole := "*** Begin Patch\n" + good + "*** End Patch\n"
	if err := apply(whole, true); err != nil || !slices.Equal(snapshot(t, dir), before) {
		t.Errorf("dry run: %v, %q", err, snapshot(t, dir))
	}
	if err := apply(whole, false); err != nil {
		t.Fatal(err)
	}
	want := []string{"mod -rwxr-x--x 1\ntwo\n3\n", "new/", "new/deep/", "new/deep/file -rw-r--r-- hello\n",
		"new/ren -rw-r--r-- z\n"}
	if got := snapshot(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// planned asks how a patch would be applied, and returns what applies it so.
func planned(t *testing.T, c *filesapi.Client, dir, text string) (*filesapi.PatchArgs, *filesapi.PatchPlan, error) {
	t.Helper()
	args := &filesapi.PatchArgs{Patch: text, Strip: -1, MaxFiles: 10, MaxSize: 1 << 20}
	_, data, err := op(t, c, filesapi.OpPatch, dir, args)
	if err != nil {
		return nil, nil, err
	}
	if _, args.Plan, err = filesapi.ParsePatched(data, args); err != nil {
		return nil, nil, err
	}
	plan, err := parsePlan(args.Plan)
	return args, plan, err
}

const manyKinds = "*** Begin Patch\n*** Update File: mod\n@@\n 1\n-2\n+two\n*** Delete File: del\n*** Add File: new/deep/file\n+hello\n" +
	"*** Update File: ren\n*** Move to: new/ren\n@@\n-y\n+z\n*** End Patch\n"

func manyFiles(t *testing.T) string {
	dir := t.TempDir()
	put(t, dir+"/mod", "1\n2\n")
	put(t, dir+"/del", "x\n")
	put(t, dir+"/ren", "y\n")
	return dir
}

// halfway applies a patch up to a step, as a worker does that is killed then: with staged -1 it has not even made all
// new files.
func halfway(t *testing.T, dir string, args *filesapi.PatchArgs, plan *filesapi.PatchPlan, steps int) {
	t.Helper()
	p, err := newPatcher(&call{Request: &filesapi.Request{Path: dir}, ctx: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.left = args.MaxSize
	files, err := patch.Parse(args.Patch, args.Strip, args.MaxFiles)
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if _, err := p.prepare(&files[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.stage(plan); err != nil {
		t.Fatal(err)
	}
	if steps < 0 {
		if err := os.Remove(dir + "/" + plan.Steps[0].Temp); err != nil {
			t.Fatal(err)
		}
	}
	for i := range max(steps, 0) {
		if err := p.step(&plan.Steps[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPatchHalf: whatever a worker had done of a patch when it was killed, another takes it back to the last bit, or
// tidies up behind it.
func TestPatchHalf(t *testing.T) {
	c := newClient(t)
	for steps := -1; steps <= 5; steps++ {
		dir := manyFiles(t)
		before := snapshot(t, dir)
		args, plan, err := planned(t, c, dir, manyKinds)
		if err != nil || len(plan.Steps) != 5 {
			t.Fatalf("%+v, %v", plan, err)
		}
		halfway(t, dir, args, plan, steps)
		for range 2 { // it may be killed, too
			if _, _, err := op(t, c, filesapi.OpSettle, dir, &filesapi.SettleArgs{Plan: args.Plan}); err != nil {
				t.Fatalf("after %d steps: %v", steps, err)
			}
			if after := snapshot(t, dir); !slices.Equal(after, before) {
				t.Fatalf("after %d steps: %q", steps, after)
			}
		}
	}
	dir := manyFiles(t)
	args, plan, err := planned(t, c, dir, manyKinds)
	if err != nil {
		t.Fatal(err)
	}
	halfway(t, dir, args, plan, 5)
	for range 2 {
		if _, _, err := op(t, c, filesapi.OpSettle, dir,
			&filesapi.SettleArgs{Plan: args.Plan, Done: true}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"mod -rw-r--r-- 1\ntwo\n", "new/", "new/deep/", "new/deep/file -rw-r--r-- hello\n",
		"new/ren -rw-r--r-- z\n"}
	if got := snapshot(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestPatchOthers: what somebody else has written behind a patch is not lost when it is taken back, and is named.
func TestPatchOthers(t *testing.T) {
	c, dir := newClient(t), manyFiles(t)
	args, plan, err := planned(t, c, dir, manyKinds)
	if err != nil {
		t.Fatal(err)
	}
	halfway(t, dir, args, plan, 5)
	put(t, dir+"/mod", "theirs")
	put(t, dir+"/del", "theirs")
	put(t, dir+"/new/deep/file", "theirs")
	_, _, err = op(t, c, filesapi.OpSettle, dir, &filesapi.SettleArgs{Plan: args.Plan})
	for _, name := range []string{"mod", "del"} {
		if err == nil || !strings.Contains(err.Error(), name+": ") || get(t, dir+"/"+name) != "theirs" {
			t.Errorf("%s: %v, %q", name, err, get(t, dir+"/"+name))
		}
	}
	if get(t, dir+"/ren") != "y\n" || get(t, dir+"/new/deep/file") != "theirs" {
		t.Error("the rest is not as it was")
	}
	// A file that is another than the plan knows is not touched.
	dir = manyFiles(t)
	if args, _, err = planned(t, c, dir, manyKinds); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/del", "other\n")
	before := snapshot(t, dir)
	if _, _, err := op(t, c, filesapi.OpPatch, dir, args); !errors.Is(err, unix.ESTALE) &&
		!errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	if after := snapshot(t, dir); !slices.Equal(after, before) {
		t.Errorf("%q", after)
	}
}

// FuzzPlan: whatever hutchd was given to keep leads to nothing outside of the folder.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"folders":["Li4vb3V0"],"steps":[{"kind":"away","path":"Li4vb3V0L2tlcHQ=","temp":".hutch-a-0.tmp","old":{"size":1,"mtime":"2020-01-01T00:00:00Z"}}]}`))
	f.Add([]byte(`{"folders":["bGluaw==","bGluay9rZXB0"],"steps":[{"kind":"put","path":"bGluay9rZXB0","temp":".hutch-a-0.tmp","new":{"size":1,"mtime":"2020-01-01T00:00:00Z"}}]}`))
	// The folder outside is that of all inputs: that it stays as it is, is what is tested.
	out, dir := f.TempDir(), f.TempDir()+"/dir"
	when := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := errors.Join(os.WriteFile(out+"/kept", []byte("x"), 0o644), os.Chtimes(out+"/kept", when, when),
		os.Mkdir(out+"/empty", 0o755)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var plan *filesapi.PatchPlan
		var err error
		cost.Input(t, data, func(data []byte) { plan, err = parsePlan(data) })
		if err != nil {
			return
		}
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.Symlink(out, dir+"/link")); err != nil {
			t.Fatal(err)
		}
		p, err := newPatcher(&call{Request: &filesapi.Request{Path: dir}, ctx: t.Context()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		_, _ = p.rollBack(plan), p.tidy(plan)
		if after := snapshot(t, out); !slices.Equal(after, []string{"empty/", "kept -rw-r--r-- x"}) {
			t.Errorf("%q", after)
		}
	})
}
