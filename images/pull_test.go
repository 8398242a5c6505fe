package images

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// twoLayers is an image of a gzip and a zstd layer.
func twoLayers() it.Image {
	return it.Image{
		Layers: []it.Layer{
			it.NewLayer(it.Tar(it.Dir("etc/"), it.Text("etc/os", "one"), it.Exec("bin/sh", "elf"),
				it.Text("etc/gone", "x")), it.Gzip),
			it.NewLayer(it.Tar(it.Text("etc/os", "two"), it.Whiteout("etc", "gone")), it.Zstd),
		},
		Config: it.Config{
			User: "app:app", Env: []string{"PATH=/bin", "A=b=c", "bad"}, Entrypoint: []string{"/bin/sh"},
			Cmd:        []string{"-c", "true"},
			WorkingDir: "srv", Volumes: map[string]struct{}{"/data": {}, "cache": {}}, StopSignal: "SIGINT",
			Labels: map[string]string{"k": "v"}, ExposedPorts: map[string]struct{}{"80/tcp": {}},
		},
	}
}

func push(t *testing.T, registry, name string, img it.Image) string {
	t.Helper()
	_, err := it.Push(registry, name, "v1", img)
	must(t, err)
	return it.Ref(registry, name, "v1")
}

// wantClean checks that nothing of a failed pull is visible or left.
func wantClean(t *testing.T, s *Store, layers int) {
	t.Helper()
	for dir, want := range map[string]int{tmpDir: 0, refsDir: 0, layersDir: layers} {
		names, err := filepath.Glob(filepath.Join(s.path(dir), "*"))
		must(t, err)
		if len(names) != want {
			t.Errorf("%s holds %v, want %d", dir, names, want)
		}
	}
}

func TestPull(t *testing.T) {
	testenv.Axes(t, testenv.User)
	registry := it.StartRegistry(t)
	img := twoLayers()
	ref := push(t, registry, "team/app", img)
	s := openStore(t, Options{})
	var mu sync.Mutex
	var phases []string
	got, err := s.Pull(t.Context(), ref, PullOptions{Progress: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Phase == PhaseDone {
			if p.Done != p.Total || p.Total <= 0 {
				t.Errorf("progress %+v", p)
			}
		}
		phases = append(phases, string(p.Phase))
	}})
	must(t, err)
	want := Config{
		User: "app:app", Env: []string{"PATH=/bin", "A=b=c"}, Entrypoint: []string{"/bin/sh"},
		Cmd:        []string{"-c", "true"},
		WorkingDir: "/srv", Volumes: []string{"/cache", "/data"}, StopSignal: "SIGINT",
		Labels: map[string]string{"k": "v"}, ExposedPorts: []string{"80/tcp"},
	}
	if !equalJSON(got.Config, want) {
		t.Errorf("config %+v", got.Config)
	}
	if got.Ref != ref || got.ID != img.ID() || len(got.Layers) != 2 ||
		got.SizeBytes != int64(len("one"+"elf"+"x"+"two")) || !got.Created.Equal(it.Epoch) {
		t.Errorf("image %+v", got)
	}
	for p, want := range map[string]string{"0/etc/os": "one", "1/etc/os": "two", "0/bin/sh": "elf"} {
		layer, file, _ := strings.Cut(p, "/")
		data, err := os.ReadFile(filepath.Join(s.Dir(), got.Layers[layer[0]-'0'], file))
		if err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", p, data, err)
		}
	}
	if rootfs := got.Rootfs(); rootfs.Lower[0] != got.Layers[1] || rootfs.Lower[1] != got.Layers[0] {
		t.Errorf("rootfs %v of layers %v", rootfs.Lower, got.Layers)
	}
	if !slices.Contains(phases, "waiting") || !slices.Contains(phases, "downloading") ||
		!slices.Contains(phases, "done") {
		t.Errorf("phases %v", phases)
	}
	for _, name := range []string{ref, got.ID, got.ID[7:19], got.Digest, strings.TrimSuffix(ref, ":v1") + "@" +
		got.Digest} {
		if found, err := s.Get(name); err != nil || found.ID != got.ID {
			t.Errorf("Get(%q): %v", name, err)
		}
	}
	if all, err := s.List(); err != nil || len(all) != 1 || all[0].Ref != ref {
		t.Errorf("List: %v, %v", all, err)
	}
	// Another tag of the same layers downloads nothing.
	other := push(t, registry, "team/copy", img)
	_, err = s.Pull(t.Context(), other, PullOptions{Progress: func(p Progress) {
		if p.Phase == PhaseDownloading {
			t.Errorf("%+v of a layer that was there", p)
		}
	}})
	must(t, err)
	must(t, s.Remove(ref, nil))
	if _, err := s.Get(other); err != nil {
		t.Errorf("removing one reference broke another: %v", err)
	}
	must(t, s.Remove(other, nil))
	wantClean(t, s, 0)
	if _, err := s.Get(ref); api.ErrorCode(err) != api.NotFound {
		t.Errorf("Get of a removed image: %v", err)
	}
}

func TestPullDockerManifest(t *testing.T) {
	registry := it.StartRegistry(t)
	img := twoLayers()
	img.Layers[1] = it.NewLayer(it.Tar(it.Text("etc/os", "plain")), it.None)
	img.Docker = true
	s := openStore(t, Options{})
	got, err := s.Pull(t.Context(), push(t, registry, "docker", img), PullOptions{})
	if err != nil || got.ID != img.ID() {
		t.Fatalf("%v, %v", got, err)
	}
	if data, err := os.ReadFile(filepath.Join(s.Dir(), got.Layers[1], "etc/os")); string(data) != "plain" {
		t.Errorf("%q, %v", data, err)
	}
}

// A layer that is to be fetched from elsewhere is refused, whatever the place.
func TestPullForeignLayer(t *testing.T) {
	registry := it.StartRegistry(t)
	img := twoLayers()
	img.Layers[1].MediaType = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
	push(t, registry, "app", img)
	s := openStore(t, Options{})
	if _, err := s.Pull(t.Context(), it.Ref(registry, "app", "v1"),
		PullOptions{}); api.ErrorCode(err) != api.Unimplemented || !strings.Contains(err.Error(), "foreign") {
		t.Errorf("error %v", err)
	}
	wantClean(t, s, 0)
}

func TestPullTooManyLayers(t *testing.T) {
	registry := it.StartRegistry(t)
	img := it.Image{Layers: slices.Repeat(twoLayers().Layers, maxLayers/2+1)}
	s := openStore(t, Options{})
	if _, err := s.Pull(t.Context(), push(t, registry, "many", img),
		PullOptions{}); api.ErrorCode(err) != api.InvalidArgument {
		t.Errorf("%d layers: %v", len(img.Layers), err)
	}
}

func TestPullPolicies(t *testing.T) {
	registry := it.StartRegistry(t)
	ref := push(t, registry, "app", twoLayers())
	s := openStore(t, Options{})
	if _, err := s.Pull(t.Context(), ref, PullOptions{Policy: PullNever}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("never: %v", err)
	}
	first, err := s.Pull(t.Context(), ref, PullOptions{})
	must(t, err)
	changed := twoLayers()
	changed.Config.User = "changed"
	push(t, registry, "app", changed)
	for policy, want := range map[PullPolicy]string{PullNever: first.ID, PullMissing: first.ID, "": first.ID,
		PullAlways: changed.ID()} {
		if policy == PullAlways {
			continue
		}
		got, err := s.Pull(t.Context(), ref, PullOptions{Policy: policy})
		if err != nil || got.ID != want {
			t.Errorf("%q: %v, %v", policy, got, err)
		}
	}
	got, err := s.Pull(t.Context(), ref, PullOptions{Policy: PullAlways})
	if err != nil || got.ID != changed.ID() {
		t.Errorf("always: %v, %v", got, err)
	}
	if _, err := s.Pull(t.Context(), ref, PullOptions{Policy: "sometimes"}); api.ErrorCode(err) != api.InvalidArgument {
		t.Errorf("sometimes: %v", err)
	}
}

func TestPullPlatforms(t *testing.T) {
	registry := it.StartRegistry(t)
	mine, other := twoLayers(), twoLayers()
	other.Arch, other.Config.User = "s390x", "other"
	_, err := it.PushIndex(registry, "multi", "v1", other, mine)
	must(t, err)
	ref := it.Ref(registry, "multi", "v1")
	single := push(t, registry, "single", other)
	s := openStore(t, Options{})

	got, err := s.Pull(t.Context(), ref, PullOptions{})
	if err != nil || got.ID != mine.ID() {
		t.Fatalf("this machine's platform: %v, %v", got, err)
	}
	got, err = s.Pull(t.Context(), ref, PullOptions{Platform: "linux/s390x"})
	if err != nil || got.ID != other.ID() || got.Platform != "linux/s390x" {
		t.Errorf("linux/s390x: %v, %v", got, err)
	}
	for _, tt := range []struct{ ref, platform, has string }{
		{ref, "linux/riscv64", "linux/s390x"},
		{single, "", "linux/s390x"},
	} {
		_, err := s.Pull(t.Context(), tt.ref, PullOptions{Platform: tt.platform})
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.FailedPrecondition || !strings.Contains(e.Msg, tt.has) || e.Hint == "" {
			t.Errorf("%s for %q: %v", tt.ref, tt.platform, err)
		}
	}
	for _, bad := range []string{"linux", "windows/amd64", "linux/", "a/b/c/d"} {
		if _, err := s.Pull(t.Context(), ref, PullOptions{Platform: bad}); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("platform %q: %v", bad, err)
		}
	}
}

func TestPullErrors(t *testing.T) {
	registry := it.StartRegistry(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, closed.Close())
	private := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer private.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer broken.Close()

	evil := it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("../../x", "x")), it.Gzip)}}
	// What the worker refuses at once, while most of it is still to come.
	noise := make([]byte, 16<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	bigEvil := it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("../../x", "x"), it.Text("noise", string(noise))),
		it.None)}}
	swapped := twoLayers()
	swapped.Layers[1].DiffID = it.NewBlob("", []byte("other")).Digest
	garbage := it.Image{Layers: []it.Layer{it.NewLayer([]byte(strings.Repeat("not a tar stream", 100)), it.Gzip)}}
	cut := it.NewLayer(it.Tar(it.Text("f", strings.Repeat("x", 4000))), it.None)
	cut.Blob = it.NewBlob(cut.MediaType, cut.Data[:2000])
	artifact := it.Image{}

	tests := []struct {
		name, ref string
		code      api.Code
	}{
		{"unknown image", it.Ref(registry, "nobody", "v1"), api.NotFound},
		{"unknown tag", strings.Replace(push(t, registry, "app", twoLayers()), ":v1", ":v2", 1), api.NotFound},
		{"unreachable", closed.Addr().String() + "/app", api.Unavailable},
		{"private", strings.TrimPrefix(private.URL, "http://") + "/app", api.PermissionDenied},
		{"broken", strings.TrimPrefix(broken.URL, "http://") + "/app", api.Unavailable},
		{"malformed reference", "UPPER/Case", api.InvalidArgument},
		{"empty reference", "", api.InvalidArgument},
		{"built in", "host", api.InvalidArgument},
		{"hostile layer", push(t, registry, "evil", evil), api.InvalidArgument},
		{"hostile and big layer", push(t, registry, "bigevil", bigEvil), api.InvalidArgument},
		{"wrong diffID", push(t, registry, "swapped", swapped), api.Unavailable},
		{"not a tar stream", push(t, registry, "garbage", garbage), api.Unavailable},
		{"cut short", push(t, registry, "cut", it.Image{Layers: []it.Layer{cut}}), api.Unavailable},
		{"no image", push(t, registry, "artifact", artifact), api.InvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, Options{ParallelLayers: 1})
			_, err := s.Pull(t.Context(), tt.ref, PullOptions{})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != tt.code || e.Hint == "" {
				t.Fatalf("error %#v: %v; want code %s and a hint", err, err, tt.code)
			}
			t.Logf("%v (%s)", err, e.Hint)
			wantClean(t, s, map[string]int{"wrong diffID": 1}[tt.name])
		})
	}
}

func TestPullRefusesABomb(t *testing.T) {
	registry := it.StartRegistry(t)
	bomb := it.NewLayer(it.Tar(it.Text("zeros", strings.Repeat("\x00", 8<<20))), it.Gzip)
	ref := push(t, registry, "bomb", it.Image{Layers: []it.Layer{bomb}})
	s := openStore(t, Options{Limits: unpack.Limits{RatioFloorBytes: 1 << 20}})
	_, err := s.Pull(t.Context(), ref, PullOptions{})
	if api.ErrorCode(err) != api.ResourceExhausted {
		t.Errorf("%d bytes that become 8 MiB: %v", len(bomb.Data), err)
	}
	wantClean(t, s, 0)
	s = openStore(t, Options{})
	if _, err := s.Pull(t.Context(), ref, PullOptions{}); err != nil {
		t.Errorf("with the default limits: %v", err)
	}
}

// A registry that sends other bytes than the manifest says, and one that ends
// too early.
func TestPullFromALyingRegistry(t *testing.T) {
	registry := it.StartRegistry(t)
	img := twoLayers()
	push(t, registry, "app", img)
	victim := img.Layers[0]
	for name, lie := range map[string][]byte{
		"other layer":   it.NewLayer(it.Tar(it.Text("evil", "x")), it.Gzip).Data,
		"longer":        append(slices.Clone(victim.Data), 0),
		"shorter":       victim.Data[:len(victim.Data)/2],
		"empty":         {},
		"another layer": img.Layers[1].Data,
	} {
		t.Run(name, func(t *testing.T) {
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/blobs/"+victim.Digest) {
					_, _ = w.Write(lie)
					return
				}
				http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
			}))
			defer proxy.Close()
			ref := it.Ref(proxy.URL, "app", "v1")
			s := openStore(t, Options{ParallelLayers: 1})
			if _, err := s.Pull(t.Context(), ref, PullOptions{}); api.ErrorCode(err) != api.Unavailable {
				t.Errorf("error %v", err)
			} else {
				t.Log(err)
			}
			wantClean(t, s, 0)
		})
	}
}

func TestPullIsCanceled(t *testing.T) {
	registry := it.StartRegistry(t)
	img := twoLayers()
	push(t, registry, "app", img)
	ctx, cancel := context.WithCancel(t.Context())
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/"+img.Layers[0].Digest) {
			_, _ = w.Write(img.Layers[0].Data[:10])
			w.(http.Flusher).Flush()
			cancel()
			<-r.Context().Done()
			return
		}
		http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer hang.Close()
	s := openStore(t, Options{ParallelLayers: 1})
	if _, err := s.Pull(ctx, it.Ref(hang.URL, "app", "v1"), PullOptions{}); api.ErrorCode(err) != api.Canceled {
		t.Errorf("error %v", err)
	}
	wantClean(t, s, 0)
}

// A registry that stops sending in the middle of a layer, or before its first byte,
// does not hold anybody for ever.
func TestPullStalls(t *testing.T) {
	registry := it.StartRegistry(t)
	img := twoLayers()
	push(t, registry, "app", img)
	for name, sent := range map[string]int{"at once": 0, "half way": 10} {
		t.Run(name, func(t *testing.T) {
			hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.Contains(r.URL.Path, "/blobs/"+img.Layers[0].Digest) {
					http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
					return
				}
				if sent > 0 {
					_, _ = w.Write(img.Layers[0].Data[:sent])
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			}))
			defer hang.Close()
			s := openStore(t, Options{ParallelLayers: 1, Stall: time.Second})
			_, err := s.Pull(t.Context(), it.Ref(hang.URL, "app", "v1"), PullOptions{})
			if api.ErrorCode(err) != api.Unavailable || !strings.Contains(err.Error(), "sent nothing") {
				t.Errorf("error %v", err)
			}
			wantClean(t, s, 0)
			// The same layer from the registry itself.
			if _, err := s.Pull(t.Context(), it.Ref(registry, "app", "v1"), PullOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Many goroutines in two "processes" (stores with open files of their own)
// download every layer once.
func TestPullOnce(t *testing.T) {
	registry := it.StartRegistry(t)
	img := twoLayers()
	push(t, registry, "app", img)
	var mu sync.Mutex
	blobs := make(map[string]int)
	counter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, digest, ok := strings.Cut(r.URL.Path, "/blobs/"); ok {
			mu.Lock()
			blobs[digest]++
			mu.Unlock()
		}
		http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer counter.Close()
	a := openStore(t, Options{})
	b, err := Open(a.Dir(), a.opts)
	must(t, err)
	defer b.Close()
	var g errgroup.Group
	for i := range 20 {
		s := []*Store{a, b}[i%2]
		g.Go(func() error {
			_, err := s.Pull(t.Context(), it.Ref(counter.URL, "app", "v1"), PullOptions{})
			return err
		})
	}
	must(t, g.Wait())
	for _, l := range img.Layers {
		if blobs[l.Digest] != 1 {
			t.Errorf("layer %s was downloaded %d times", l.Digest, blobs[l.Digest])
		}
	}
}
