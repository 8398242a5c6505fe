package integration_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

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
	needs(t, "mmdebstrap")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); errors.Is(err, fs.ErrPermission) {
		file = filepath.Join(t.TempDir(), "debian.tar") // somebody else's checkout
	} else if err != nil {
		t.Fatal(err)
	}
	// By rename: a run that is interrupted leaves no half image.
	tmp, err := os.MkdirTemp(filepath.Dir(file), "debian-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	sources, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	args := []string{"--variant=minbase", "--include=python3-minimal", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
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
			testenv.Require(t, probe.Check{Name: "mmdebstrap", Status: probe.No, Detail: abridged(string(out)), Remedy: "sudo make test, once"})
		}
		t.Fatalf("%v: %v: %s", cmd.Args, err, abridged(string(out)))
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

// debianLayer is debianTar, compressed once for all tests.
func debianLayer(t testing.TB) imagetest.Layer {
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

// push puts an image into a registry and returns its reference.
func push(t testing.TB, registry, name string, img imagetest.Image) string {
	t.Helper()
	if _, err := imagetest.Push(registry, name, "1", img); err != nil {
		t.Fatal(err)
	}
	return imagetest.Ref(registry, name, "1")
}

// TestImageDebian: a Debian image comes from a registry and runs as its config
// says.
func TestImageDebian(t *testing.T) {
	registry := imagetest.StartRegistry(t)
	img := imagetest.Image{
		Layers: []imagetest.Layer{debianLayer(t)},
		Config: imagetest.Config{
			Env:        []string{"PATH=/usr/bin:/bin", "FROM=image", "BOTH=image"},
			Entrypoint: []string{"/usr/bin/env", "ENTRY=1"}, Cmd: []string{"sh", "-c", "echo cmd $ENTRY $FROM; pwd; id -un"},
			WorkingDir: "/srv/app", User: "root",
		},
	}
	ref := push(t, registry, "debian", img)
	w := newWorld(t)
	if got := w.ok(t, "run", ref); got != "cmd 1 image\n/srv/app\nroot\n" {
		t.Errorf("its own command: %q", got)
	}
	if got := w.ok(t, "run", ref, "python3", "-c", "import os; print(6*7, os.environ['ENTRY'])"); got != "42 1\n" {
		t.Errorf("Cmd replaced: %q", got)
	}
	if got := w.ok(t, "run", "--entrypoint", "/usr/bin/python3", ref, "-c", "import os; print('ENTRY' in os.environ)"); got != "False\n" {
		t.Errorf("Entrypoint replaced: %q", got)
	}
	if got := w.ok(t, "run", "-e", "BOTH=flag", "-w", "/etc", ref, "sh", "-c", "echo $FROM $BOTH; pwd; cat os-release | grep ^ID="); got != "image flag\n/etc\nID=debian\n" {
		t.Errorf("flags win: %q", got)
	}
	if got := w.ok(t, "run", ref, "sh", "-c", "echo x >/usr/bin/new && rm /bin/ls && touch /etc/apt/x && dpkg -l dpkg | tail -1 | cut -c1-2; mkdir -p /opt/a/b; stat -c %u /opt/a/b"); got != "ii\n0\n" {
		t.Errorf("its files can be changed: %q", got)
	}
	if got := w.ok(t, "run", ref, "ls", "/bin/ls"); got != "/bin/ls\n" {
		t.Errorf("the next sandbox has them again: %q", got)
	}
	if testenv.CurrentKind() != mustrun.NoSubUID {
		if got := w.ok(t, "run", "-u", "nobody", ref, "id"); !strings.HasPrefix(got, "uid=65534(nobody) gid=65534(nogroup)") {
			t.Errorf("another user: %q", got)
		}
		if got := w.ok(t, "run", ref, "stat", "-c", "%G", "/var/mail", "/etc/shadow"); got != "mail\nshadow\n" {
			t.Errorf("owners: %q", got)
		}
	}
	// exec ignores the Entrypoint.
	sb := w.create(t, ref)
	if got := w.ok(t, "exec", sb, "sh", "-c", "echo [$ENTRY]"); got != "[]\n" {
		t.Errorf("exec: %q", got)
	}
	// While a sandbox uses them the layers stay, with or without the reference.
	w.ok(t, "image", "rm", ref)
	w.ok(t, "gc")
	if got := w.ok(t, "exec", sb, "python3", "-c", "print(1)"); got != "1\n" {
		t.Errorf("after rm: %q", got)
	}
	w.ok(t, "rm", "-f", sb)
	w.ok(t, "gc")
	w.removeLayers(t)
}

// removeLayers makes the daemon remove all images, since their files may have
// owners that only it can act as.
func (w *world) removeLayers(t testing.TB) {
	t.Helper()
	for _, ref := range strings.Fields(w.ok(t, "image", "ls", "-q")) {
		w.ok(t, "image", "rm", ref)
	}
	w.ok(t, "gc")
	if dirs, _ := filepath.Glob(filepath.Join(w.root(), "data/images/layers/*")); len(dirs) > 0 {
		t.Errorf("layers without image: %v", dirs)
	}
}

// tinyImage has layers that hide, replace and link.
func tinyImage(t testing.TB) imagetest.Image {
	t.Helper()
	busybox := staticShell(t)
	lower := imagetest.Tar(
		imagetest.Dir("bin"), imagetest.Exec("bin/sh", busybox), imagetest.Dir("dir"), imagetest.Text("dir/a", "a\n"), imagetest.Text("dir/b", "b\n"),
		imagetest.Dir("opaque"), imagetest.Text("opaque/old", "old\n"), imagetest.Text("gone", "x"), imagetest.Text("odd name: é,\\", "odd\n"),
		imagetest.Text("one", "linked\n"), imagetest.Hardlink("two", "one"), imagetest.Symlink("ln", "dir/a"),
		imagetest.Dir("etc"), imagetest.Text("etc/passwd", "root:x:0:0::/:/bin/sh\nzero:x:0:0::/zero:/bin/sh\n"),
		imagetest.File{Name: "closed", Type: tar.TypeDir, Mode: 0o555}, imagetest.Text("closed/in", "in\n"),
	)
	upper := imagetest.Tar(
		imagetest.Whiteout(".", "gone"), imagetest.Whiteout("dir", "a"), imagetest.Opaque("opaque"), imagetest.Text("opaque/new", "new\n"),
		imagetest.Text("dir/b", "changed\n"),
	)
	return imagetest.Image{
		Layers: []imagetest.Layer{imagetest.NewLayer(lower, imagetest.Gzip), imagetest.NewLayer(upper, imagetest.Zstd)},
		Config: imagetest.Config{User: "zero", Cmd: []string{"/bin/sh", "-c", "echo tiny"}},
	}
}

// staticShell is a shell that needs no libraries.
func staticShell(t testing.TB) string {
	t.Helper()
	needs(t, "busybox")
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ldd", path).CombinedOutput(); err == nil && !strings.Contains(string(out), "not a dynamic") {
		t.Skipf("%s is not static: %s", path, out)
	}
	return read(t, path)
}

// TestImageTiny: whiteouts, opaque folders, hard links and odd names.
func TestImageTiny(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	ref := push(t, registry, "tiny", tinyImage(t))
	if got := w.ok(t, "run", ref); got != "tiny\n" {
		t.Errorf("got %q", got)
	}
	got := w.ok(t, "run", ref, "sh", "-c", `echo dir/* opaque/*; cat dir/b opaque/new one two closed/in; [ one -ef two ] && echo same
[ -e gone ] || echo gone; [ -e ln ] || echo dangling; cat odd*; echo $HOME; [ -w closed ]; echo new >closed/new; ls closed; ls / | grep wh; true`)
	want := "dir/b opaque/new\nchanged\nnew\nlinked\nlinked\nin\nsame\ngone\ndangling\nodd\n/zero\nin\nnew\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}

	// The verbs of image.
	if list := w.ok(t, "image", "ls", "-q"); list != ref+"\n" {
		t.Errorf("ls: %q", list)
	}
	type record struct {
		Ref, Digest, ID, Platform string
		Layers                    []string
		Config                    struct{ Cmd []string }
	}
	img := decode[record](t, w.ok(t, "image", "inspect", ref))
	if img.Ref != ref || len(img.Layers) != 2 || !strings.HasPrefix(img.Digest, "sha256:") || img.Config.Cmd[0] != "/bin/sh" {
		t.Errorf("inspect: %+v", img)
	}
	if got := strings.TrimSpace(w.ok(t, "image", "pull", ref)); got != img.Digest {
		t.Errorf("pull says %q, inspect %q", got, img.Digest)
	}
	byDigest := strings.TrimSuffix(ref, ":1") + "@" + img.Digest
	w.ok(t, "run", byDigest)
	w.ok(t, "image", "rm", ref)
	w.run(t, "image", "inspect", ref).want(t, 125).says(t, ref, "try:")
	w.run(t, "image", "rm", ref).want(t, 125)
	w.run(t, "run", "--pull", "never", ref).want(t, 125).says(t, ref)
	w.ok(t, "run", "--pull", "always", ref)
	w.removeLayers(t)
}

// TestImageRefused: images that can not be had, and what to do.
func TestImageRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	foreign := tinyForeign()
	wrong := push(t, registry, "foreign", foreign)
	for name, tt := range map[string]struct {
		args  []string
		words string
	}{
		"unknown":     {[]string{imagetest.Ref(registry, "no/such", "1")}, "no/such"},
		"unknown tag": {[]string{imagetest.Ref(registry, "foreign", "2")}, "foreign:2"},
		"unreachable": {[]string{nobody + "/x:1"}, nobody},
		"platform":    {[]string{wrong}, "s390x"},
		"asked for":   {[]string{"--platform", "linux/mips", wrong}, "mips"},
		"reference":   {[]string{"Not A/reference"}, "Not A/reference"},
		"digest":      {[]string{strings.TrimSuffix(wrong, ":1") + "@sha256:" + strings.Repeat("0", 64)}, "sha256:0000"},
	} {
		t.Run(name, func(t *testing.T) {
			w.run(t, append(append([]string{"run"}, tt.args...), "true")...).want(t, 125).says(t, tt.words, "try:")
		})
	}
	if list := w.ok(t, "image", "ls", "-q"); list != "" {
		t.Errorf("in the store: %q", list)
	}
}

func tinyForeign() imagetest.Image {
	return imagetest.Image{Arch: "s390x", Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(imagetest.Text("x", "x")), imagetest.Gzip)}}
}

// slowRegistry stands before a registry and holds its big answers back half way
// until it is told to let them go.
type slowRegistry struct {
	*http.Server
	url  string
	half chan struct{} // gets something when a blob stops half way
	hold atomic.Bool
}

func slow(t testing.TB, registry string) *slowRegistry {
	t.Helper()
	to, err := url.Parse(registry)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowRegistry{url: "http://" + l.Addr().String(), half: make(chan struct{}, 100)}
	s.hold.Store(true)
	proxy := httputil.NewSingleHostReverseProxy(to)
	s.Server = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !s.hold.Load() || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			proxy.ServeHTTP(rw, r)
			return
		}
		resp, err := http.Get(registry + r.URL.Path)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			rw.Header()[k] = v
		}
		if resp.ContentLength < 1<<20 {
			_, _ = io.Copy(rw, resp.Body)
			return
		}
		_, _ = io.CopyN(rw, resp.Body, resp.ContentLength/2)
		_ = http.NewResponseController(rw).Flush()
		s.half <- struct{}{}
		<-r.Context().Done() // until the client gives up
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// TestPullHalf: a pull that was interrupted half way, in whatever manner, is not
// visible, and the next one works.
func TestPullHalf(t *testing.T) {
	registry := imagetest.StartRegistry(t)
	big := make([]byte, 0, 8<<20)
	for sum := sha256.Sum256(nil); len(big) < 8<<20; sum = sha256.Sum256(sum[:]) {
		big = append(big, sum[:]...) // does not compress
	}
	img := imagetest.Image{Layers: []imagetest.Layer{
		imagetest.NewLayer(imagetest.Tar(imagetest.Dir("etc"), imagetest.Text("etc/first", "x")), imagetest.Gzip),
		imagetest.NewLayer(imagetest.Tar(imagetest.File{Name: "big", Content: string(big)}), imagetest.Gzip),
	}}
	push(t, registry, "big", img)
	for _, how := range []string{"client interrupted", "client killed", "daemon killed", "daemon stopped", "connection lost"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			proxy := slow(t, registry)
			ref := imagetest.Ref(proxy.url, "big", "1")
			w.ok(t, "rpc", "system.info")
			d := w.daemon(t)
			cmd := w.command("image", "pull", "-q", ref)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-proxy.half
			switch how {
			case "client interrupted":
				_ = cmd.Process.Signal(os.Interrupt)
			case "client killed":
				kill(t, cmd.Process.Pid)
			case "daemon killed":
				kill(t, d.hutchd)
			case "daemon stopped":
				w.shutdown()
			case "connection lost":
				_ = proxy.Close()
			}
			if how == "client killed" {
				// The pull may go on for others; nobody waits for it here.
				_ = proxy.Close()
			}
			if code := await(t, cmd); code == 0 {
				t.Errorf("the interrupted pull succeeded")
			} else if strings.HasPrefix(how, "daemon") || how == "connection lost" {
				if code != 125 || errs.Len() == 0 {
					t.Errorf("code %d, stderr %q", code, errs.String())
				}
			}
			proxy.hold.Store(false)
			if list := w.ok(t, "image", "ls", "-q"); list != "" {
				t.Errorf("visible: %q", list)
			}
			// From the registry itself: a proxy that was closed stays so.
			ref = imagetest.Ref(registry, "big", "1")
			w.ok(t, "image", "pull", "-q", ref)
			if got := len(decode[struct{ Layers []string }](t, w.ok(t, "image", "inspect", ref)).Layers); got != 2 {
				t.Errorf("%d layers", got)
			}
			w.ok(t, "gc")
			w.removeLayers(t)
		})
	}
}

// TestPullTogether: ten runs of an image that nobody has yet share one download.
func TestPullTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	ref := push(t, registry, "tiny", tinyImage(t))
	cmds := make([]*exec.Cmd, 10)
	for i := range cmds {
		cmds[i] = w.command("run", ref, "sh", "-c", fmt.Sprintf("exit %d", i))
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range cmds {
		if code := await(t, cmd); code != i {
			t.Errorf("run %d ended with %d", i, code)
		}
	}
	w.removeLayers(t)
}
