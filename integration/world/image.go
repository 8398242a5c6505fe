package world

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// ImportTiny gives the store an image.
func (w *World) ImportTiny(t testing.TB, name string) {
	t.Helper()
	file := filepath.Join(w.Sub(t, "tiny"), "tiny.tar")
	Write(t, file, string(imagetest.Archive(imagetest.OCILayout(name, TinyImage(t)))))
	w.OK(t, "image", "import", "-q", "oci-archive:"+file, name)
}

// debianTar is a Debian system with python3, made once from the machine's own
// package mirror.
func debianTar(t testing.TB) []byte {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, ".cache", "test", "debian.tar") // testrun stages this folder
	if data, err := os.ReadFile(file); err == nil {
		return data
	}
	Needs(t, "mmdebstrap")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); errors.Is(err, fs.ErrPermission) {
		file = filepath.Join(t.TempDir(), "debian.tar") // somebody else's checkout
	} else if err != nil {
		t.Fatal(err)
	}
	// Once: other stories wait for it.
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(file), "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrPermission) { // the folder is there, and somebody else's
		file = filepath.Join(t.TempDir(), "debian.tar")
		lock, err = os.Create(filepath.Join(filepath.Dir(file), "lock"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err == nil {
		return data
	}
	// By rename: a run that is interrupted leaves no half image.
	tmp, err := os.MkdirTemp(filepath.Dir(file), "debian-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	sources, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	args := []string{"--variant=minbase", "--include=python3-minimal", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--quiet", codename(t), filepath.Join(tmp, "debian.tar")}
	if st, err := os.Stat("/etc/apt/sources.list"); err == nil && st.Size() > 0 {
		sources = append(sources, "/etc/apt/sources.list")
	}
	for _, s := range sources {
		if strings.HasSuffix(s, ".list") || strings.HasSuffix(s, ".sources") {
			args = append(args, s)
		}
	}
	// The root of an ordinary user's namespace is somebody else, who is not let
	// into the user's home.
	work, err := os.MkdirTemp("/var/tmp", "hutch-debian-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("mmdebstrap", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+work)
	if out, err := cmd.CombinedOutput(); err != nil {
		if os.Geteuid() != 0 { // not every ordinary user can
			testenv.Require(t, probe.Check{Name: "mmdebstrap", Status: probe.No, Detail: Abridged(string(out)),
				Remedy: "sudo make test, once"})
		}
		t.Fatalf("%v: %v: %s", cmd.Args, err, Abridged(string(out)))
	}
	if err := os.Rename(filepath.Join(tmp, "debian.tar"), file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// DebianLayer is debianTar, compressed once for all tests.
func DebianLayer(t testing.TB) imagetest.Layer {
	t.Helper()
	debian.Lock()
	defer debian.Unlock()
	if debian.layer.Data == nil {
		debian.layer = imagetest.NewLayer(debianTar(t), imagetest.Zstd)
	}
	return debian.layer
}

var debian struct {
	sync.Mutex
	layer imagetest.Layer
}

// codename is the machine's Debian release.
func codename(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/etc/os-release")
	m := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(text)
	if err != nil || m == nil {
		t.Fatalf("no code name in /etc/os-release: %v", err)
	}
	return string(m[1])
}

// Push puts an image into a registry and returns its reference.
func Push(t testing.TB, registry, name string, img imagetest.Image) string {
	t.Helper()
	if _, err := imagetest.Push(registry, name, "1", img); err != nil {
		t.Fatal(err)
	}
	return imagetest.Ref(registry, name, "1")
}

// RemoveLayers makes the daemon remove all images, since their files may have
// owners that only it can act as.
func (w *World) RemoveLayers(t testing.TB) {
	t.Helper()
	for _, ref := range strings.Fields(w.OK(t, "image", "ls", "-q")) {
		w.OK(t, "image", "rm", ref)
	}
	w.OK(t, "gc")
	if dirs, _ := filepath.Glob(filepath.Join(w.Root(), "data/images/layers/*")); len(dirs) > 0 {
		testenv.Wrong(t, "layers without image: %v", dirs)
	}
}

// TinyImage has layers that hide, replace and link.
func TinyImage(t testing.TB) imagetest.Image {
	t.Helper()
	busybox := StaticShell(t)
	lower := imagetest.Tar(
		imagetest.Dir("bin"), imagetest.Exec("bin/sh", busybox), imagetest.Dir("dir"), imagetest.Text("dir/a", "a\n"),
		imagetest.Text("dir/b", "b\n"),
		imagetest.Dir("opaque"), imagetest.Text("opaque/old", "old\n"), imagetest.Text("gone", "x"),
		imagetest.Text("odd name: é,\\", "odd\n"),
		imagetest.Text("one", "linked\n"), imagetest.Hardlink("two", "one"), imagetest.Symlink("ln", "dir/a"),
		imagetest.Dir("etc"), imagetest.Text("etc/passwd", "root:x:0:0::/:/bin/sh\nzero:x:0:0::/zero:/bin/sh\n"),
		imagetest.File{Name: "closed", Type: tar.TypeDir, Mode: 0o555}, imagetest.Text("closed/in", "in\n"),
	)
	upper := imagetest.Tar(
		imagetest.Whiteout(".", "gone"), imagetest.Whiteout("dir", "a"), imagetest.Opaque("opaque"),
		imagetest.Text("opaque/new", "new\n"),
		imagetest.Text("dir/b", "changed\n"),
	)
	return imagetest.Image{
		Layers: []imagetest.Layer{imagetest.NewLayer(lower, imagetest.Gzip), imagetest.NewLayer(upper, imagetest.Zstd)},
		Config: imagetest.Config{User: "zero", Cmd: []string{"/bin/sh", "-c", "echo tiny"}},
	}
}

// StaticShell is a shell that needs no libraries.
func StaticShell(t testing.TB) string {
	t.Helper()
	return Read(t, testenv.StaticBusybox(t))
}

// NothingHalf fails the test if a store without work under way has temporary folders.
func (w *World) NothingHalf(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(w.Root(), "data/images/tmp/*")); err != nil || len(left) > 0 {
		testenv.Wrong(t, "left %v, %v", left, err)
	}
}

// Archived is an archive of ar(5), which Debian's packages are.
func Archived(files map[string]string, order ...string) string {
	b := strings.Builder{}
	b.WriteString("!<arch>\n")
	for _, name := range order {
		text := files[name]
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", name, 0, 0, 0, "100644", len(text), text)
		if len(text)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
