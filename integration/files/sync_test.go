package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestFilesSync: only what differs is copied, whatever it was before, and what is too much goes when asked to.
func TestFilesSync(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "-w", "/srv", "host")
	dir := w.Sub(t, "src")
	for name, text := range map[string]string{"a": "one", "sub/b": "two", "sub/deep/c": "three", "gone": "x",
		"kind": "file"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		world.Write(t, filepath.Join(dir, name), text)
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	sync := func(says string, flags ...string) {
		t.Helper()
		w.Run(t, append(append([]string{"cp", "--sync"}, flags...), dir, sb+":copy/of")...).Want(t, 0).Says(t, says)
	}
	shows := func(want string) {
		t.Helper()
		if got := w.OK(t, "exec", sb, "sh", "-c",
			"cd copy/of; find . -type f -o -type l | sort | while read f; do echo $f $(cat $f); done"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	sync("0 the same, 8 copied, 0 removed")
	shows("./a one\n./gone x\n./kind file\n./link one\n./sub/b two\n./sub/deep/c three\n")
	sync("8 the same, 0 copied, 0 removed")

	// Changed here with the same size, changed there, removed here, another kind, and what is only there.
	world.Write(t, filepath.Join(dir, "a"), "ONE")
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "kind")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "kind"), 0o755); err != nil {
		t.Fatal(err)
	}
	world.Write(t, filepath.Join(dir, "kind/f"), "in")
	w.OK(t, "exec", sb, "sh", "-euc",
		"cd copy/of; echo theirs >sub/b; rm link; mkdir link; echo x >link/x; mkdir own; echo y >own/y; ln -s /etc sub/etc")
	sync("5 copied, 2 removed")
	shows("./a ONE\n./gone x\n./kind/f in\n./link ONE\n./own/y y\n./sub/b two\n./sub/deep/c three\n./sub/etc\n")
	sync("3 removed", "--delete")
	shows("./a ONE\n./kind/f in\n./link ONE\n./sub/b two\n./sub/deep/c three\n")
	w.OK(t, "exec", sb, "test", "-e", "/etc/passwd")
	sync("0 copied, 0 removed", "--delete")

	w.Run(t, "cp", "--sync", filepath.Join(dir, "a"), sb+":x").Want(t, 125).Says(t, "no folder")
	w.Run(t, "cp", "--delete", dir, sb+":x").Want(t, 125).Says(t, "--sync")
	w.Run(t, "cp", "--sync", sb+":copy", dir).Want(t, 125).Says(t, "into a sandbox")
}

// TestFilesSyncPages: a client that sends one page and goes away has changed nothing outside of it.
func TestFilesSyncPages(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "-w", "/srv", "host")
	c := w.Connect(t)
	w.OK(t, "exec", sb, "sh", "-euc", "mkdir -p d/a/b d/e; cd d; touch 0 a/1 a/b/1 a/b/2 a/b/3 a/c e/f z")
	p := api.FileSyncParams{FileParams: api.FileParams{Sandbox: sb, Path: "d"}, Delete: true, More: true,
		After: "a/b/1", Files: []api.SyncFile{
			{Path: "a/b/3", Type: api.TypeFile, MTime: time.Unix(1, 0)},
			{Path: "a/d", Type: api.TypeSymlink, Target: "x"},
		}}
	r, err := c.SyncFiles(t.Context(), p)
	if err != nil || !slices.Equal(r.Needed, []int{0, 1}) || r.Removed != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := w.OK(t, "exec", sb, "sh", "-c",
		"cd d; find . -type f | sort | xargs"); got != "./0 ./a/1 ./a/b/1 ./a/b/3 ./e/f ./z\n" {
		t.Error(got)
	}
	for _, bad := range []api.SyncFile{{Path: "a/b/1", Type: api.TypeFile}, {Path: "../x", Type: api.TypeFile},
		{Path: "b/c", Type: api.TypeFile}} {
		p.Files = []api.SyncFile{bad}
		if _, err := c.SyncFiles(t.Context(), p); !errors.Is(err, &api.Error{Code: api.InvalidArgument}) &&
			!strings.Contains(fmt.Sprint(err), "files") {
			t.Errorf("%q: %v", bad.Path, err)
		}
	}
}

// TestFilesSyncMoving: a tree that changes while it is brought does no harm, and is right at the next time.
func TestFilesSyncMoving(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "-w", "/srv", "host")
	dir := w.Sub(t, "src")
	stop := make(chan struct{})
	var changer errgroup.Group
	changer.Go(func() error {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return nil
			default:
			}
			sub := filepath.Join(dir, fmt.Sprint(i%50))
			switch i % 3 {
			case 0:
				_ = os.RemoveAll(sub)
				_ = os.WriteFile(sub, []byte("x"), 0o644)
			case 1:
				_ = os.Remove(sub)
				_ = os.Mkdir(sub, 0o755)
				_ = os.WriteFile(filepath.Join(sub, "f"), []byte("y"), 0o644)
			default:
				_ = os.RemoveAll(sub)
				_ = os.Symlink("/etc", sub)
			}
		}
	})
	for range 10 {
		if r := w.Run(t, "cp", "--sync", "--delete", dir, sb+":d"); r.Code != 0 && r.Code != 125 {
			t.Errorf("%+v", r)
		}
	}
	close(stop)
	if err := changer.Wait(); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "cp", "--sync", "--delete", dir, sb+":d").Want(t, 0)
	world.SameTree(t, w, sb, dir, "d", false)
}

// TestUploads: files given at creation are there at once, and a creation that cannot have them leaves nothing.
func TestUploads(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	spec := api.Spec{Image: "host", Workdir: "/srv", Scope: &api.Scope{Kind: api.ScopeSession, Key: "u"},
		Uploads: []api.Upload{
			{Name: "data.csv", Data: "a,b\n"}, {Name: "sub/run.sh", Data: "ZWNobyByYW4K", Encoding: api.Base64,
				Mode: "0755"},
		}}
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: spec}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.OK(t, "exec", sb.ID, "sh", "-c",
		"cat user-uploads/data.csv; ./user-uploads/sub/run.sh"); got != "a,b\nran\n" {
		t.Errorf("%q", got)
	}
	spec.Uploads = []api.Upload{{Name: "later", Data: "x"}}
	if again, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: spec}, nil, nil); err != nil ||
		again.ID != sb.ID {
		t.Errorf("%+v, %v", again, err)
	}
	if got := w.OK(t, "exec", sb.ID, "ls", "user-uploads"); got != "data.csv\nlater\nsub\n" {
		t.Errorf("%q", got)
	}
	before := w.OK(t, "ps", "-aq")
	bad := api.Spec{Image: "host", Workdir: "/proc", Uploads: []api.Upload{{Name: "x", Data: "x"}}}
	if _, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: bad}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "user-uploads") {
		t.Errorf("%v", err)
	}
	if after := w.OK(t, "ps", "-aq"); after != before {
		t.Errorf("left:\n%s", after)
	}
}
