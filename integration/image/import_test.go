package image_test

import (
	"archive/tar"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// plainTiny is TinyImage as docker save writes it: layers that are not compressed.
func plainTiny(t testing.TB) imagetest.Image {
	img := world.TinyImage(t)
	lower := imagetest.Tar(imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.StaticShell(t)), imagetest.Dir("etc"),
		imagetest.Text("etc/passwd", "root:x:0:0::/:/bin/sh\nzero:x:0:0::/zero:/bin/sh\n"))
	img.Layers = []imagetest.Layer{imagetest.NewLayer(lower, imagetest.None)}
	return img
}

// TestImport: every kind of source becomes an image that runs.
func TestImport(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "sources")
	file := func(name string, data []byte) string {
		world.Write(t, filepath.Join(dir, name), string(data))
		return filepath.Join(dir, name)
	}
	tiny, plain := world.TinyImage(t), plainTiny(t)
	layout := filepath.Join(dir, "layout")
	for _, e := range imagetest.OCILayout("apps/tiny:1", tiny) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(layout, e.Name)), 0o755); err != nil {
			t.Fatal(err)
		}
		world.Write(t, filepath.Join(layout, e.Name), string(e.Data))
	}
	oci := file("oci.tar", imagetest.Archive(imagetest.OCILayout("apps/tiny:1", tiny)))
	docker := file("docker: odd.tar", imagetest.Archive(imagetest.DockerArchive(plain, "apps/plain:1")))
	rootfs := imagetest.NewLayer(imagetest.Tar(imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.StaticShell(t))),
		imagetest.Gzip).Data
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	world.Write(t, filepath.Join(tree, "bin/sh"), world.StaticShell(t))
	if err := os.Chmod(filepath.Join(tree, "bin/sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	const cmd = `CMD ["/bin/sh", "-c", "echo rootfs $V"]`
	for _, tt := range []struct {
		name  string
		args  []string
		stdin string
		image string
		out   string
	}{
		{"oci folder", []string{"oci:" + layout}, "", "apps/tiny:1", "tiny\n"},
		{"oci folder, chosen", []string{"oci:" + layout + ":apps/tiny:1", "t2"}, "", "t2", "tiny\n"},
		{"oci archive", []string{"oci-archive:" + oci, "t3:x"}, "", "t3:x", "tiny\n"},
		{"oci archive, stdin", []string{"oci-archive:-", "t4"}, world.Read(t, oci), "t4", "tiny\n"},
		{"docker archive", []string{"docker-archive:" + docker}, "", "apps/plain:1", "tiny\n"},
		{"docker archive, stdin", []string{"docker-archive:-", "t5"}, world.Read(t, docker), "t5", "tiny\n"},
		{"rootfs tar", []string{"-c", cmd, "--change", "ENV V=1", file("r.tgz", rootfs), "t6"}, "", "t6", "rootfs 1\n"},
		{"rootfs, stdin", []string{"-c", cmd, "-", "t7"}, string(rootfs), "t7", "rootfs\n"},
		{"rootfs folder", []string{"-c", cmd, tree, "t8"}, "", "t8", "rootfs\n"},
	} {
		r := w.Feed(t, tt.stdin, append([]string{"image", "import"}, tt.args...)...).Want(t, 0)
		full := "docker.io/library/" + tt.image
		if strings.Contains(tt.image, "/") {
			full = "docker.io/" + tt.image
		}
		if !strings.Contains(tt.image, ":") {
			full += ":latest"
		}
		if r.Stdout != full+"\n" {
			t.Errorf("%s: made %q", tt.name, r.Stdout)
		}
		if got := w.OK(t, "run", "--pull", "never", tt.image); got != tt.out {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
	// The caller's files are root's inside.
	if got := w.OK(t, "run", "t8", "/bin/sh", "-c", "stat -c %u:%g /bin/sh"); got != "0:0\n" {
		t.Errorf("owner %q", got)
	}
	w.RemoveLayers(t)
}

// TestImportRefused: what cannot be imported says why, and leaves nothing.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "sources")
	img := plainTiny(t)
	evil := img
	evil.Layers = []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(imagetest.Text("../../../../"+dir+"/out", "x")),
		imagetest.None)}
	for name, data := range map[string][]byte{
		"docker.tar": imagetest.Archive(imagetest.DockerArchive(img)),
		"evil.tar":   imagetest.Archive(imagetest.DockerArchive(evil, "evil:1")),
		"text":       []byte(strings.Repeat("text ", 1000)), "closed": []byte("x"),
		"evil-rootfs.tar": evil.Layers[0].Data,
	} {
		world.Write(t, filepath.Join(dir, name), string(data))
	}
	if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := func(name string) string { return filepath.Join(dir, name) }
	tests := map[string]struct {
		args  []string
		words string
	}{
		"nothing there":    {[]string{at("none"), "x"}, "none"},
		"no layout":        {[]string{"oci:" + dir, "x"}, "oci-layout"},
		"folder as file":   {[]string{"oci-archive:" + dir, "x"}, "folder"},
		"no name":          {[]string{"docker-archive:" + at("docker.tar")}, "no name"},
		"rootfs, no name":  {[]string{at("docker.tar")}, "ref"},
		"wrong format":     {[]string{"oci-archive:" + at("docker.tar"), "x"}, "oci-layout"},
		"no archive":       {[]string{at("text"), "x"}, "tar stream"},
		"no such image":    {[]string{"docker-archive:" + at("docker.tar") + ":other", "x"}, "other"},
		"entry out":        {[]string{"docker-archive:" + at("evil.tar")}, `entry "../../../../`},
		"entry out, layer": {[]string{"docker-archive:" + at("evil.tar")}, "layer " + evil.Layers[0].Digest},
		"rootfs out":       {[]string{at("evil-rootfs.tar"), "x"}, `entry "../../../../`},
		"changes":          {[]string{"-c", "USER x", "docker-archive:" + at("docker.tar"), "x"}, "changes"},
		"socket":           {[]string{at("socket"), "x"}, "socket"},
		"host":             {[]string{at("docker.tar"), "host"}, "built in"},
	}
	if os.Geteuid() != 0 { // root may read everything
		tests["closed"] = struct {
			args  []string
			words string
		}{[]string{at("closed"), "x"}, "closed"}
	}
	for name, tt := range tests {
		w.Run(t, append([]string{"image", "import"}, tt.args...)...).Want(t, 125).Says(t, tt.words, "try:")
		if _, err := os.Lstat(at("out")); err == nil {
			t.Fatalf("%s: written outside", name)
		}
	}
	w.Run(t, "image", "import", "-c", "RUN x", at("text"), "x").Want(t, 125).Says(t, "RUN")
	if list := w.OK(t, "image", "ls", "-q"); list != "" {
		t.Errorf("in the store: %q", list)
	}
	if left, _ := filepath.Glob(filepath.Join(w.Root(), "data/images/tmp/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestImportSignal: an import that waits for its input ends with the command.
func TestImportSignal(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.OK(t, "rpc", "system.info")
	cmd := w.Command("image", "import", "docker-archive:-", "x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, 8<<20)); err != nil { // more than all pipes on the way hold
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	if code := world.Await(t, cmd); code != 130 {
		t.Errorf("code %d", code)
	}
	in.Close()
	w.OK(t, "gc")
	if left, _ := filepath.Glob(filepath.Join(w.Root(), "data/images/tmp/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestImageVolumes: folders that an image names as volumes are there, whether it has them or not.
func TestImageVolumes(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	file := filepath.Join(w.Sub(t, "image"), "shell.tar")
	world.Write(t, file, string(imagetest.Tar(imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.StaticShell(t)),
		imagetest.File{Name: "has", Type: tar.TypeDir, Mode: 0o700}, imagetest.Text("file", ""),
		imagetest.Symlink("ln", "has"))))
	w.OK(t, "image", "import", "-q", "--change", "VOLUME /has", "--change", "VOLUME /var/lib/data", "--change",
		"VOLUME /ln/in", "--change", "USER 7", file, "vol:1")
	w.OK(t, "image", "import", "-q", "--change", "VOLUME /file/in", "--change", "VOLUME /made", file, "bad:1")
	got := w.OK(t, "run", "--rm", "--pull", "never", "-u", "0", "vol:1", "/bin/sh", "-c",
		"stat -c '%n %a %u %F' /has /var/lib/data /has/in; echo x >/var/lib/data/f && echo wrote")
	if want := "/has 700 0 directory\n/var/lib/data 755 0 directory\n/has/in 755 0 directory\nwrote\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	sb := w.Create(t, "--pull", "never", "bad:1")
	if got := w.OK(t, "exec", sb, "/bin/sh", "-c", "stat -c %F /made /file"); got != "directory\nregular empty file\n" {
		t.Errorf("%q", got)
	}
	if got := w.OK(t, "inspect", sb); !strings.Contains(got, "VOLUME") || !strings.Contains(got, "/file/in") {
		t.Errorf("no note of it: %s", got)
	}
	w.OK(t, "rm", "-f", sb)

	// Nothing is made on the host, by whatever way, and nothing where the image's files cannot be written.
	ws := w.Sub(t, "ws")
	world.Write(t, file, string(imagetest.Tar(imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.StaticShell(t)),
		imagetest.Symlink("ln", "workspace"), imagetest.Symlink("deep", "/workspace/deep"))))
	w.OK(t, "image", "import", "-q", "--change", "VOLUME /workspace/vol", "--change", "VOLUME /ln/in/it", "--change",
		"VOLUME /deep/in",
		"--change", "VOLUME /made", file, "host:1")
	if err := os.Mkdir(filepath.Join(ws, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--workspace", ws}, {"-v", ws + ":/ln"}} {
		sb = w.Create(t, append(args, "--pull", "never", "host:1")...)
		got := w.OK(t, "exec", sb, "/bin/sh", "-c", "stat -c %F /made; ls -A /workspace /workspace/deep")
		if got != "directory\n/workspace:\ndeep\n\n/workspace/deep:\n" {
			t.Errorf("%q: %q", args, got)
		}
		w.OK(t, "rm", "-f", sb)
	}
	sb = w.Create(t, "--read-only", "--pull", "never", "vol:1")
	if got := w.OK(t, "inspect", sb); strings.Contains(got, "VOLUME") {
		t.Errorf("read-only: %s", got)
	}
	w.OK(t, "rm", "-f", sb)

	// One out of a pool has them, too; what an upper layer has removed is made.
	img := plainTiny(t)
	img.Layers = append(img.Layers,
		imagetest.NewLayer(imagetest.Tar(imagetest.Dir("data"), imagetest.Dir("data/x"), imagetest.Dir("opaque"),
			imagetest.Dir("opaque/x")), imagetest.None),
		imagetest.NewLayer(imagetest.Tar(imagetest.Whiteout(".", "data"), imagetest.Opaque("opaque")), imagetest.None))
	img.Config.Volumes = map[string]struct{}{"/data/x": {}, "/opaque/x": {}}
	world.Write(t, file, string(imagetest.Archive(imagetest.OCILayout("layers", img))))
	w.OK(t, "image", "import", "-q", "oci-archive:"+file, "layers")
	w.OK(t, "pool", "create", "--size", "1", "--pull", "never", "p", "layers")
	if got := w.OK(t, "run", "--pool", "p", "--", "/bin/sh", "-c",
		"stat -c %F /data/x /opaque/x"); got != "directory\ndirectory\n" {
		t.Errorf("%q", got)
	}
	w.Filled(t, "p", 1)
	if got := w.OK(t, "inspect", strings.TrimSpace(w.OK(t, "ps", "-aq"))); strings.Contains(got, "VOLUME") {
		t.Errorf("pool: %s", got)
	}
	w.OK(t, "pool", "rm", "p")
	w.RemoveLayers(t)
}
