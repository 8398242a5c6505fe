package images

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestOpenRefusesAnotherLayout(t *testing.T) {
	s := openStore(t, Options{})
	must(t, os.WriteFile(s.path("version"), []byte("999\n"), 0o600))
	_, err := Open(s.Dir(), Options{})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.FailedPrecondition || e.Hint == "" {
		t.Errorf("error %v", err)
	}
}

func TestOpenWhereItCannot(t *testing.T) {
	testenv.Axes(t, testenv.User)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Open(filepath.Join(file, "images"), Options{}); err == nil {
		t.Error("a store below a file was opened")
	}
}

func TestOpenTightensModes(t *testing.T) {
	testenv.Axes(t, testenv.User)
	dir := filepath.Join(t.TempDir(), "images")
	must(t, os.Mkdir(dir, 0o777))
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestSweepLeavesTheLivingAlone(t *testing.T) {
	s := openStore(t, Options{})
	mine, err := s.newTmp()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(mine.path, "f"), nil, 0o600))
	dead := filepath.Join(s.path(tmpDir), "dead")
	must(t, os.MkdirAll(filepath.Join(dead, "a/b"), 0o700))

	other, err := Open(s.Dir(), Options{})
	must(t, err)
	defer other.Close()
	if _, err := os.Stat(filepath.Join(mine.path, "f")); err != nil {
		t.Errorf("the folder of a living owner was swept: %v", err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the folder of a dead owner stays")
	}
	mine.discard()
	if _, err := os.Stat(mine.path); err == nil {
		t.Error("a discarded folder stays")
	}
}

// crashVar names the store for the process that TestCrashInThePull kills.
const crashVar = "HUTCH_TEST_IMAGES_CRASH"

// A process that is killed in the middle of a layer leaves a temporary folder
// and nothing else; the next one sweeps it and pulls.
func TestCrashInThePull(t *testing.T) {
	if dir := os.Getenv(crashVar); dir != "" {
		s, err := Open(dir, Options{SingleUID: true})
		must(t, err)
		_, err = s.Pull(t.Context(), os.Getenv("HUTCH_TEST_IMAGES_REF"), PullOptions{})
		t.Fatalf("the pull ended: %v", err)
	}
	registry := it.StartRegistry(t)
	img := twoLayers()
	push(t, registry, "app", img)
	started := make(chan struct{}, 10)
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/"+img.Layers[1].Digest) {
			_, _ = w.Write(img.Layers[1].Data[:50])
			w.(http.Flusher).Flush()
			started <- struct{}{}
			<-r.Context().Done()
			return
		}
		http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer hang.Close()

	dir := filepath.Join(t.TempDir(), "images")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestCrashInThePull$")
	cmd.Env = append(os.Environ(), crashVar+"="+dir, "HUTCH_TEST_IMAGES_REF="+it.Ref(hang.URL, "app", "v1"))
	must(t, cmd.Start())
	<-started
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()

	left, err := filepath.Glob(filepath.Join(dir, tmpDir, "*"))
	if err != nil || len(left) == 0 {
		t.Errorf("the crash left %v, %v: it tests nothing", left, err)
	}
	for _, p := range left {
		// The worker that unpacks has the folder, and its lock, for a moment longer.
		d, err := openDir(p)
		must(t, err)
		must(t, flockWait(d))
		must(t, d.Close())
	}
	s, err := Open(dir, Options{SingleUID: true})
	must(t, err)
	defer s.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, tmpDir, "*")); len(left) != 0 {
		t.Errorf("not swept: %v", left)
	}
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Errorf("a half-pulled image is visible: %v, %v", all, err)
	}
	_, err = s.Pull(t.Context(), it.Ref(registry, "app", "v1"), PullOptions{})
	must(t, err)
}

// Two stores of one folder: one pulls and removes images of shared layers, the
// other collects all the time. A pulled image is always whole.
func TestCollectWhilePulling(t *testing.T) {
	registry := it.StartRegistry(t)
	ref := push(t, registry, "app", twoLayers())
	a := openStore(t, Options{})
	b, err := Open(a.Dir(), a.opts)
	must(t, err)
	defer b.Close()
	var g errgroup.Group
	done := make(chan struct{})
	g.Go(func() error {
		for {
			select {
			case <-done:
				return nil
			default:
			}
			if _, err := b.GC(nil); err != nil {
				return err
			}
		}
	})
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	for range rounds {
		img, err := a.Pull(t.Context(), ref, PullOptions{})
		if err != nil {
			t.Error(err)
			break
		}
		lease, err := a.Lease(img.Layers)
		if err != nil {
			t.Error(err)
			break
		}
		if err := a.Remove(ref, nil); err != nil {
			t.Error(err)
		}
		for _, l := range img.Layers {
			if _, err := os.Stat(filepath.Join(a.Dir(), l, "etc/os")); err != nil {
				t.Errorf("a leased layer is damaged: %v", err)
			}
		}
		lease.Release()
	}
	close(done)
	must(t, g.Wait())
	_, err = b.GC(nil)
	must(t, err)
	wantClean(t, b, 0)
}

// TestReleaseFrees: a lease ends when it is released, also while somebody has a duplicate of its file, as a process has
// that is just being started; that of a process that has ended goes on with it.
func TestReleaseFrees(t *testing.T) {
	registry := it.StartRegistry(t)
	ref := push(t, registry, "app", twoLayers())
	s := openStore(t, Options{})
	img, err := s.Pull(t.Context(), ref, PullOptions{})
	must(t, err)
	lease, err := s.Lease(img.Layers)
	must(t, err)
	var duplicates []int
	lease.Each(func(_ string, lock *os.File) {
		fd, err := unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		must(t, err)
		duplicates = append(duplicates, fd)
	})
	must(t, s.leases.closeAll()) // as a process that ends
	must(t, s.Remove(ref, nil))
	wantClean(t, s, len(img.Layers))
	for _, fd := range duplicates {
		must(t, unix.Close(fd))
	}

	_, err = s.Pull(t.Context(), ref, PullOptions{})
	must(t, err)
	lease, err = s.Lease(img.Layers)
	must(t, err)
	lease.Each(func(_ string, lock *os.File) {
		fd, err := unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		must(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
	})
	lease.Release()
	must(t, s.Remove(ref, nil))
	wantClean(t, s, 0)
}

func TestGCKeepsWhatIsInUse(t *testing.T) {
	registry := it.StartRegistry(t)
	ref := push(t, registry, "app", twoLayers())
	s := openStore(t, Options{})
	img, err := s.Pull(t.Context(), ref, PullOptions{})
	must(t, err)
	must(t, s.Remove(ref, func(l string) bool { return l == img.Layers[0] }))
	wantClean(t, s, 1)
	freed, err := s.GC(nil)
	if err != nil || freed <= 0 {
		t.Errorf("freed %d, %v", freed, err)
	}
	wantClean(t, s, 0)
	if _, err := s.Lease(img.Layers); api.ErrorCode(err) != api.NotFound {
		t.Errorf("lease of a removed layer: %v", err)
	}
	for _, name := range []string{ref, HostRef, "nothing"} {
		if err := s.Remove(name, nil); err == nil {
			t.Errorf("Remove(%q) succeeded", name)
		}
	}
}

// A full disk is an error with a hint and leaves nothing.
func TestNoSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Require(t, probe.Check{Name: "root", Status: probe.No, Detail: "a small file system is mounted",
			Remedy: "run the tests as root"})
	}
	registry := it.StartRegistry(t)
	big := it.NewLayer(it.Tar(it.Text("f", strings.Repeat("x", 4<<20))), it.Gzip)
	ref := push(t, registry, "big", it.Image{Layers: []it.Layer{big}})
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"))
	defer func() { must(t, unix.Unmount(dir, 0)) }()
	s, err := Open(filepath.Join(dir, "images"), Options{})
	must(t, err)
	defer s.Close()
	_, err = s.Pull(t.Context(), ref, PullOptions{})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.ResourceExhausted || !strings.Contains(e.Hint, "Free space") {
		t.Errorf("error %v", err)
	}
	wantClean(t, s, 0)
}

// The registry client must not drag in the library's copy package: it doubles
// what hutchd links and its imports cost 18 ms at each start.
func TestDependencies(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-tags", "containers_image_openpgp", ".")
	cmd.Env = append(os.Environ(), "HOME="+userHome)
	out, err := cmd.StdoutPipe()
	must(t, err)
	if err := cmd.Start(); err != nil {
		testenv.Require(t, probe.Check{Name: "go", Status: probe.No, Detail: err.Error(), Remedy: "install Go"})
	}
	n := 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		n++
		for _, bad := range []string{
			"go.podman.io/image/v5/copy", "github.com/containers/image", "github.com/moby/go-archive",
			"github.com/mattn/go-sqlite3",
			"github.com/vbauerster/mpb", "github.com/proglottis/gpgme", "net/http/pprof",
		} {
			if lines.Text() == bad || strings.HasPrefix(lines.Text(), bad+"/") {
				t.Errorf("package images links %s", lines.Text())
			}
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil || n < 100 {
		testenv.Require(t, probe.Check{Name: "go", Status: probe.Inconclusive, Detail: fmt.Sprint("go list: ", err),
			Remedy: "run it in the module"})
	}
}
