package images

import (
	"bytes"
	"strings"
	"testing"

	"go.podman.io/image/v5/types"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/testenv/tarfix"
)

// FuzzNormalize checks that what is accepted is a fixed point and makes a file
// name of fixed form.
func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"debian", "debian:12", "a/b/c:d", "127.0.0.1:5000/x@sha256:" + strings.Repeat("a", 64),
		"UPPER", "..", "host", "x:y@z", "[::1]:5000/x", "localhost/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var ref string
		var err error
		cost.Input(t, s, func(s string) { ref, err = normalize(s) })
		if err != nil {
			return
		}
		again, err := normalize(ref)
		if err != nil || again != ref {
			t.Errorf("%q became %q, which becomes %q, %v", s, ref, again, err)
		}
		if name := refFile(ref); strings.Count(name, "/") != 1 || strings.Contains(name, "..") ||
			len(name) != len(refsDir)+1+32+5 {
			t.Errorf("file %q", name)
		}
	})
}

// FuzzParseConfig checks that what is accepted can be handed to execve and
// mount, and names layers by digests that are file names.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"os":"linux","architecture":"amd64","config":{"Env":["A=b","=x","y"],"Volumes":{"/a/../..":{}},"WorkingDir":"../x"},"rootfs":{"diff_ids":["sha256:` + strings.Repeat("a", 64) + `"]}}`))
	f.Add([]byte(`{"rootfs":{"diff_ids":["sha256:../../x"]}}`))
	f.Add([]byte(`{"config":null,"rootfs":{"diff_ids":[]}}`))
	f.Add([]byte(`[]`))
	s := &Store{folder: &folder{}}
	f.Fuzz(func(t *testing.T, blob []byte) {
		var c *imageConfig
		var err error
		cost.Input(t, blob, func(blob []byte) { c, err = parseConfig(blob) })
		if err != nil {
			return
		}
		cfg := c.config()
		for _, e := range cfg.Env {
			if i := strings.IndexByte(e, '='); i <= 0 || strings.IndexByte(e, 0) >= 0 {
				t.Errorf("environment %q", e)
			}
		}
		for _, p := range append(cfg.Volumes, cfg.WorkingDir) {
			if p != "" && (p[0] != '/' || strings.Contains(p+"/", "/../")) {
				t.Errorf("path %q", p)
			}
		}
		for _, d := range c.RootFS.DiffIDs {
			if name := s.folderName(d); strings.ContainsAny(name, "/\x00:") || name == ".." || name == "" {
				t.Errorf("layer folder %q", name)
			}
		}
	})
}

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"debian": "docker.io/library/debian:latest", "debian:12": "docker.io/library/debian:12",
		"me/app":           "docker.io/me/app:latest",
		"127.0.0.1:5000/x": "127.0.0.1:5000/x:latest", "localhost/x:1": "localhost/x:1",
		"debian:12@sha256:" + strings.Repeat("a", 64): "docker.io/library/debian@sha256:" + strings.Repeat("a", 64),
	} {
		if got, err := normalize(in); err != nil || got != want {
			t.Errorf("normalize(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// FuzzArchive: no archive makes this process do more than say no.
func FuzzArchive(f *testing.F) {
	img := it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("a", "b")), it.None)}}
	f.Add(it.Archive(it.OCILayout("a:1", img)))
	f.Add(it.Archive(append(it.DockerArchive(img, "a:1"), it.Entry{Name: "l", Link: "manifest.json"})))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = tarfix.Checksums(data)
		cost.Of(t, len(data), func() {
			x, err := indexTar(t.Context(), bytes.NewReader(data), int64(len(data)))
			if err != nil {
				return
			}
			for _, open := range []func(*tarIndex, string) (*fileSource, error){openOCI, openDocker} {
				if src, err := open(x, ""); err == nil {
					r := &remote{src: src, named: must1(registry.Parse("x"))}
					_ = r.resolve(t.Context(), &types.SystemContext{}, platform{OS: "linux", Arch: "amd64"})
				}
			}
		})
	})
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func normalize(ref string) (string, error) {
	named, err := registry.Parse(ref)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}
