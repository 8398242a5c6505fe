package images

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// counting is a registry that counts the layers that are asked for.
func counting(t *testing.T, registry string) (url string, layers *atomic.Int32) {
	layers = new(atomic.Int32)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			layers.Add(1)
		}
		http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL, layers
}

func wantGood(t *testing.T, s *Store) {
	t.Helper()
	checks, err := s.Verify(t.Context(), "", VerifyOptions{})
	must(t, err)
	for _, c := range checks {
		if c.Status != api.LayerGood {
			t.Fatalf("%+v", c)
		}
	}
}

// TestPowerCut: layers that were renamed to their place, and whose files a power cut took
// because no syncfs came in between, are not taken for good by the next pull. Its twin is a
// crash without one: then they are, and are written to the disk first.
func TestPowerCut(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	registry := it.StartRegistry(t)
	push(t, registry, "app", twoLayers())
	const config = 1 // it is a blob, too
	for name, tt := range map[string]struct {
		cut    func(t *testing.T, unit string)
		layers int32
	}{
		"crash": {func(*testing.T, string) {}, config},
		"empty files": {func(t *testing.T, unit string) {
			must(t, filepath.WalkDir(unit, func(p string, d os.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					err = os.WriteFile(p, nil, 0) // that is there: truncated
				}
				return err
			}))
		}, config + 2},
		"empty content, of another boot": {func(t *testing.T, unit string) {
			meta, err := os.ReadFile(filepath.Join(unit, layerFile))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(unit, layerFile),
				[]byte(strings.ReplaceAll(string(meta), bootID(), "another")), 0o600))
			must(t, os.RemoveAll(filepath.Join(unit, unitRoot)))
			must(t, os.Mkdir(filepath.Join(unit, unitRoot), 0o755))
		}, config + 2},
	} {
		t.Run(name, func(t *testing.T) {
			url, layers := counting(t, registry)
			s := openStore(t, Options{})
			img, err := s.Pull(t.Context(), it.Ref(registry, "app", "v1"), PullOptions{})
			must(t, err)
			must(t, os.Remove(s.path(refFile(img.Ref)))) // the reference comes last, after syncfs
			must(t, s.Close())
			for _, folder := range img.Layers {
				tt.cut(t, s.path(unit(folder)))
			}
			s, err = Open(s.Dir(), s.opts)
			must(t, err)
			defer s.Close()
			if _, err := s.Pull(t.Context(), it.Ref(url, "app", "v1"), PullOptions{}); err != nil {
				t.Fatal(err)
			}
			wantGood(t, s)
			if n := layers.Load(); n != tt.layers {
				t.Errorf("asked for %d blobs, want %d", n, tt.layers)
			}
		})
	}
}

// TestUnsynced: a layer counts as fetched, which makes a pull sync, until an image has it.
func TestUnsynced(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	registry := it.StartRegistry(t)
	push(t, registry, "app", twoLayers())
	s := openStore(t, Options{})
	img, err := s.Pull(t.Context(), it.Ref(registry, "app", "v1"), PullOptions{})
	must(t, err)
	for _, want := range []bool{false, true} {
		for _, folder := range img.Layers {
			l, err := s.leaseLayer(unit(folder))
			must(t, err)
			if l == nil || l.fetched != want {
				t.Errorf("%+v, want fetched %v", l, want)
			}
			l.lease.Release()
		}
		must(t, os.RemoveAll(s.path(refFile(img.Ref))))
	}
}

// TestCrashAnywhere: whenever a process that pulls is killed, what the store shows is
// whole, and nothing is left below tmp after the next start.
func TestCrashAnywhere(t *testing.T) {
	if dir := os.Getenv(crashVar); dir != "" {
		s, err := Open(dir, Options{SingleUID: os.Geteuid() != 0})
		must(t, err)
		for i := 0; ; i++ { // one image after the other, which share layers
			ref := os.Getenv("HUTCH_TEST_IMAGES_REF")
			refs := []string{ref + "1", ref + "2"}
			_, err = s.Pull(t.Context(), refs[i%2], PullOptions{Policy: PullAlways})
			must(t, err)
			if err := s.Remove(refs[(i+1)%2], nil); err != nil && api.ErrorCode(err) != api.NotFound {
				t.Fatal(err)
			}
			fmt.Println("pulled")
		}
	}
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	registry := it.StartRegistry(t)
	var files []it.File
	for i := range 100 {
		files = append(files, it.Text(fmt.Sprintf("folder%d/file%d", i%7, i), strings.Repeat("content ", i)))
	}
	img := twoLayers()
	img.Layers = append(img.Layers, it.NewLayer(it.Tar(files...), it.Gzip))
	for i := range 2 {
		img.Layers[0] = it.NewLayer(it.Tar(it.Text("which", fmt.Sprint(i))), it.Gzip)
		_, err := it.Push(registry, "app", fmt.Sprintf("v%d", i+1), img)
		must(t, err)
	}
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	dir := filepath.Join(t.TempDir(), "images")
	opts := Options{SingleUID: os.Geteuid() != 0}
	seen, swept := 0, 0
	pull := 200 * time.Millisecond // what one takes, about: machines differ tenfold
	for i := range rounds {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestCrashAnywhere$")
		cmd.Env = append(os.Environ(), crashVar+"="+dir, "HUTCH_TEST_IMAGES_REF="+it.Ref(registry, "app", "v"))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewReader(out)
		for range i % 3 { // killed in the first pull, or after one or two
			begun := time.Now()
			if line, err := lines.ReadString('\n'); line != "pulled\n" {
				t.Fatalf("%q, %v", line, err)
			}
			pull = time.Since(begun)
		}
		testenv.RandomMoment(2 * pull)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		left, _ := filepath.Glob(filepath.Join(dir, tmpDir, "*"))
		swept += len(left)
		for _, p := range left { // a worker may have the folder a moment longer
			if d, err := openDir(p); err == nil {
				must(t, flockWait(d))
				must(t, d.Close())
			}
		}
		s, err := Open(dir, opts)
		must(t, err)
		if left, _ := filepath.Glob(filepath.Join(dir, tmpDir, "*")); len(left) != 0 {
			t.Errorf("not swept: %v", left)
		}
		all, err := s.List()
		must(t, err)
		seen += len(all)
		wantGood(t, s)
		must(t, s.Close())
	}
	t.Logf("%d times an image, %d folders swept", seen, swept)
	if swept == 0 || seen == 0 {
		t.Error("no pull was killed half way, or none came to its end: it tests nothing")
	}
	s, err := Open(dir, opts)
	must(t, err)
	defer s.Close()
	_, err = s.Pull(t.Context(), it.Ref(registry, "app", "v1"), PullOptions{})
	must(t, err)
	wantGood(t, s)
}
