package image_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestImageDebian: a Debian image comes from a registry and runs as its config
// says.
func TestImageDebian(t *testing.T) {
	testenv.Axes(t, testenv.User)
	registry := imagetest.StartRegistry(t)
	img := imagetest.Image{
		Layers: []imagetest.Layer{world.DebianLayer(t)},
		Config: imagetest.Config{
			Env:        []string{"PATH=/usr/bin:/bin", "FROM=image", "BOTH=image"},
			Entrypoint: []string{"/usr/bin/env", "ENTRY=1"},
			Cmd:        []string{"sh", "-c", "echo cmd $ENTRY $FROM; pwd; id -un"},
			WorkingDir: "/srv/app", User: "root",
		},
	}
	ref := world.Push(t, registry, "debian", img)
	w := world.New(t)
	if got := w.OK(t, "run", ref); got != "cmd 1 image\n/srv/app\nroot\n" {
		t.Errorf("its own command: %q", got)
	}
	if got := w.OK(t, "run", ref, "python3", "-c", "import os; print(6*7, os.environ['ENTRY'])"); got != "42 1\n" {
		t.Errorf("Cmd replaced: %q", got)
	}
	if got := w.OK(t, "run", "--entrypoint", "/usr/bin/python3", ref, "-c",
		"import os; print('ENTRY' in os.environ)"); got != "False\n" {
		t.Errorf("Entrypoint replaced: %q", got)
	}
	if got := w.OK(t, "run", "-e", "BOTH=flag", "-w", "/etc", ref, "sh", "-c",
		"echo $FROM $BOTH; pwd; cat os-release | grep ^ID="); got != "image flag\n/etc\nID=debian\n" {
		t.Errorf("flags win: %q", got)
	}
	if got := w.OK(t, "run", ref, "sh", "-c",
		"echo x >/usr/bin/new && rm /bin/ls && touch /etc/apt/x && dpkg -l dpkg | tail -1 | cut -c1-2; mkdir -p /opt/a/b; stat -c %u /opt/a/b"); got != "ii\n0\n" {
		t.Errorf("its files can be changed: %q", got)
	}
	if got := w.OK(t, "run", ref, "ls", "/bin/ls"); got != "/bin/ls\n" {
		t.Errorf("the next sandbox has them again: %q", got)
	}
	if testenv.CurrentKind() != mustrun.NoSubUID {
		if got := w.OK(t, "run", "-u", "nobody", ref, "id"); !strings.HasPrefix(got,
			"uid=65534(nobody) gid=65534(nogroup)") {
			t.Errorf("another user: %q", got)
		}
		if got := w.OK(t, "run", ref, "stat", "-c", "%G", "/var/mail", "/etc/shadow"); got != "mail\nshadow\n" {
			t.Errorf("owners: %q", got)
		}
	}
	// exec ignores the Entrypoint.
	sb := w.Create(t, ref)
	if got := w.OK(t, "exec", sb, "sh", "-c", "echo [$ENTRY]"); got != "[]\n" {
		t.Errorf("exec: %q", got)
	}
	// While a sandbox uses them the layers stay, with or without the reference.
	w.OK(t, "image", "rm", ref)
	w.OK(t, "gc")
	if got := w.OK(t, "exec", sb, "python3", "-c", "print(1)"); got != "1\n" {
		t.Errorf("after rm: %q", got)
	}
	w.OK(t, "rm", "-f", sb)
	w.OK(t, "gc")
	w.RemoveLayers(t)
}

// TestImageTiny: whiteouts, opaque folders, hard links and odd names.
func TestImageTiny(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	ref := world.Push(t, registry, "tiny", world.TinyImage(t))
	if got := w.OK(t, "run", ref); got != "tiny\n" {
		t.Errorf("got %q", got)
	}
	got := w.OK(t, "run", ref, "sh", "-c", `echo dir/* opaque/*; cat dir/b opaque/new one two closed/in; [ one -ef two ] && echo same
[ -e gone ] || echo gone; [ -e ln ] || echo dangling; cat odd*; echo $HOME; [ -w closed ]; echo new >closed/new; ls closed; ls / | grep wh; true`)
	want := "dir/b opaque/new\nchanged\nnew\nlinked\nlinked\nin\nsame\ngone\ndangling\nodd\n/zero\nin\nnew\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}

	// The verbs of image.
	if list := w.OK(t, "image", "ls", "-q"); list != ref+"\n" {
		t.Errorf("ls: %q", list)
	}
	type record struct {
		Ref, Digest, ID, Platform string
		Layers                    []string
		Config                    struct{ Cmd []string }
	}
	img := world.Decode[record](t, w.OK(t, "image", "inspect", ref))
	if img.Ref != ref || len(img.Layers) != 2 || !strings.HasPrefix(img.Digest, "sha256:") ||
		img.Config.Cmd[0] != "/bin/sh" {
		t.Errorf("inspect: %+v", img)
	}
	if got := strings.TrimSpace(w.OK(t, "image", "pull", ref)); got != img.Digest {
		t.Errorf("pull says %q, inspect %q", got, img.Digest)
	}
	byDigest := strings.TrimSuffix(ref, ":1") + "@" + img.Digest
	w.OK(t, "run", byDigest)
	w.OK(t, "image", "rm", ref)
	w.Run(t, "image", "inspect", ref).Want(t, 125).Says(t, ref, "try:")
	w.Run(t, "image", "rm", ref).Want(t, 125)
	w.Run(t, "run", "--pull", "never", ref).Want(t, 125).Says(t, ref)
	w.OK(t, "run", "--pull", "always", ref)
	w.RemoveLayers(t)
}

// TestImageRefused: images that cannot be had, and what to do.
func TestImageRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	foreign := tinyForeign()
	wrong := world.Push(t, registry, "foreign", foreign)
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
		"digest": {[]string{strings.TrimSuffix(wrong, ":1") + "@sha256:" + strings.Repeat("0", 64)},
			"sha256:0000"},
	} {
		t.Run(name, func(t *testing.T) {
			w.Run(t, append(append([]string{"run"}, tt.args...), "true")...).Want(t, 125).Says(t, tt.words, "try:")
		})
	}
	if list := w.OK(t, "image", "ls", "-q"); list != "" {
		t.Errorf("in the store: %q", list)
	}
}

func tinyForeign() imagetest.Image {
	return imagetest.Image{Arch: "s390x",
		Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(imagetest.Text("x", "x")), imagetest.Gzip)}}
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
	world.Push(t, registry, "big", img)
	for _, how := range []string{"client interrupted", "client killed", "daemon killed", "daemon stopped",
		"connection lost"} {
		t.Run(how, func(t *testing.T) {
			w := world.New(t)
			proxy := slow(t, registry)
			ref := imagetest.Ref(proxy.url, "big", "1")
			w.OK(t, "rpc", "system.info")
			d := w.Daemon(t)
			cmd := w.Command("image", "pull", "-q", ref)
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
				world.Kill(t, cmd.Process.Pid)
			case "daemon killed":
				world.Kill(t, d.Hutchd)
			case "daemon stopped":
				w.Shutdown()
			case "connection lost":
				_ = proxy.Close()
			}
			if how == "client killed" {
				// The pull may go on for others; nobody waits for it here.
				_ = proxy.Close()
			}
			if code := world.Await(t, cmd); code == 0 {
				t.Errorf("the interrupted pull succeeded")
			} else if strings.HasPrefix(how, "daemon") || how == "connection lost" {
				if code != 125 || errs.Len() == 0 {
					t.Errorf("code %d, stderr %q", code, errs.String())
				}
			}
			proxy.hold.Store(false)
			if list := w.OK(t, "image", "ls", "-q"); list != "" {
				t.Errorf("visible: %q", list)
			}
			// From the registry itself: a proxy that was closed stays so.
			ref = imagetest.Ref(registry, "big", "1")
			w.OK(t, "image", "pull", "-q", ref)
			if got := len(world.Decode[struct{ Layers []string }](t, w.OK(t, "image", "inspect", ref)).
				Layers); got != 2 {
				t.Errorf("%d layers", got)
			}
			w.OK(t, "gc")
			w.RemoveLayers(t)
		})
	}
}

// TestPullTogether: ten runs of an image that nobody has yet share one download.
func TestPullTogether(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	ref := world.Push(t, registry, "tiny", world.TinyImage(t))
	cmds := make([]*exec.Cmd, 10)
	for i := range cmds {
		cmds[i] = w.Command("run", ref, "sh", "-c", fmt.Sprintf("exit %d", i))
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range cmds {
		if code := world.Await(t, cmd); code != i {
			t.Errorf("run %d ended with %d", i, code)
		}
	}
	w.RemoveLayers(t)
}

// TestDebianIsMade makes the Debian image of all stories, if it is not there. The test runner has it run before them.
func TestDebianIsMade(t *testing.T) { world.DebianLayer(t) }
