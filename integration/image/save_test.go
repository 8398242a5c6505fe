package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// imageRecord is what inspect prints, as far as it matters here.
type imageRecord struct {
	ID     string
	Layers []string
}

func inspectImage(t testing.TB, w *world.World, name string) imageRecord {
	t.Helper()
	return world.Decode[imageRecord](t, w.OK(t, "image", "inspect", name))
}

// TestSave: an image goes out and comes back the same, in either format; what another
// program packed has new digests once, and the same from then on.
func TestSave(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	sb := w.Create(t, "-u", "0", "base:1")
	w.OK(t, "exec", sb, "/bin/sh", "-c", written)
	w.OK(t, "commit", "-q", sb, "made:1")
	w.OK(t, "rm", "-f", sb)
	see := func(name string) string {
		t.Helper()
		return w.OK(t, "run", "--pull", "never", "-u", "0", name, "/bin/sh", "-c", show)
	}
	want := see("made:1")
	dir := w.Sub(t, "saved")
	made := inspectImage(t, w, "made:1")
	var first imageRecord
	for i, format := range []string{"oci-archive", "docker-archive"} {
		file := filepath.Join(dir, format)
		w.OK(t, "image", "save", "--format", format, "-o", file, "made:1")
		if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
			t.Errorf("%v, %v", st, err)
		}
		w.OK(t, "image", "rm", "made:1")
		if got := w.OK(t, "image", "import", "-q", format+":"+file); got != "docker.io/library/made:1\n" {
			t.Errorf("%s comes back as %q", format, got)
		}
		if got := see("made:1"); got != want {
			t.Errorf("%s shows\n%s\nwas\n%s", format, got, want)
		}
		got := inspectImage(t, w, "made:1")
		if top := len(made.Layers) - 1; got.Layers[top] != made.Layers[top] {
			t.Errorf("%s: the layer that was packed here has %s, had %s", format, got.Layers[top], made.Layers[top])
		}
		if i == 0 {
			first = got
		} else if got.ID != first.ID || !slices.Equal(got.Layers, first.Layers) {
			t.Errorf("%s: %+v, was %+v", format, got, first)
		}
		stream := w.OK(t, "image", "save", "--format", format, "-o", "-", "made:1")
		if again := w.OK(t, "image", "save", "--format", format, "made:1"); again != stream {
			t.Errorf("%s: saved twice it differs", format)
		}
	}
	checkPeers(t, w, filepath.Join(dir, "oci-archive"), filepath.Join(dir, "docker-archive"))
	w.RemoveLayers(t)
}

// checkPeers asks skopeo, where there is one, whether it takes the archives.
func checkPeers(t testing.TB, w *world.World, oci, docker string) {
	t.Helper()
	skopeo, err := exec.LookPath("skopeo")
	if err != nil || os.Geteuid() != 0 {
		return
	}
	for _, source := range []string{"oci-archive:" + oci, "docker-archive:" + docker} {
		out, err := exec.Command(skopeo, "--insecure-policy", "copy", source, "dir:"+
			filepath.Join(t.TempDir(), "copy")).CombinedOutput()
		if err != nil {
			t.Errorf("skopeo: %s: %v: %s", source, err, out)
		}
	}
}

// TestExport: the files of all layers as one, as a sandbox sees them.
func TestExport(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	file := filepath.Join(w.Sub(t, "exported"), "rootfs.tar")
	w.OK(t, "image", "export", "-o", file, "base:1")
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	for _, want := range []string{"bin/sh", "dir/b", "opaque/new", "one", "closed/in"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing in %q", want, names)
		}
	}
	for _, gone := range names {
		if gone == "dir/a" || gone == "gone" || gone == "opaque/old" || strings.Contains(gone, ".wh.") {
			t.Errorf("%s is there", gone)
		}
	}
	look := []string{"/bin/sh", "-c",
		"cat /dir/b /opaque/* /one /two /ln; ls / /dir /opaque; stat -c '%n %a %Y %h' /one /closed"}
	want := w.Run(t, append([]string{"run", "-u", "0", "base:1"}, look...)...)
	w.OK(t, "image", "import", "-q", file, "flat:1")
	got := w.Run(t, append([]string{"run", "-u", "0", "flat:1"}, look...)...)
	if got.Stdout != want.Stdout {
		t.Errorf("it shows\n%s\nthe image\n%s", got.Stdout, want.Stdout)
	}
	// One layer, which is another way; and the same files are the same layer.
	again := w.Feed(t, w.OK(t, "image", "export", "-o", "-", "flat:1"), "image", "import", "-q", "-", "flat:2").
		Want(t, 0)
	if again.Stdout == "" || !slices.Equal(inspectImage(t, w, "flat:1").Layers, inspectImage(t, w, "flat:2").Layers) {
		t.Errorf("flat:1 %+v, flat:2 %+v", inspectImage(t, w, "flat:1"), inspectImage(t, w, "flat:2"))
	}
	w.RemoveLayers(t)
}

// TestSaveRefused: what cannot be written says why, and leaves what was there.
func TestSaveRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	dir := w.Sub(t, "saved")
	file := filepath.Join(dir, "there")
	world.Write(t, file, "before")
	for words, args := range map[string][]string{
		"no image":        {"save", "-o", file, "nothing:1"},
		"own programs":    {"export", "-o", file, "host"},
		"not oci-archive": {"save", "--format", "rootfs", "-o", file, "base:1"},
		"no such file":    {"save", "-o", filepath.Join(dir, "none/x"), "base:1"},
	} {
		w.Run(t, append([]string{"image"}, args...)...).Want(t, 125).Says(t, words)
	}
	if got := world.Read(t, file); got != "before" {
		t.Errorf("the file holds %.20q", got)
	}
	// Nobody reads to the end.
	cmd := w.Command("image", "export", "-o", "-", "base:1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(out, make([]byte, 10))
	_ = out.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("a pipe that nobody reads took it all")
	}
	w.OK(t, "image", "export", "-o", "-", "base:1")
	left, _ := filepath.Glob(filepath.Join(dir, ".*"))
	tmp, _ := filepath.Glob(filepath.Join(w.Root(), "data/images/tmp/*"))
	if len(left)+len(tmp) > 0 {
		t.Errorf("left: %v", append(left, tmp...))
	}
	w.RemoveLayers(t)
}
