package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// importing gives data to Import, as a file or through a pipe.
func importing(t *testing.T, s *Store, data []byte, pipe bool, ref string, o ImportOptions) (*Image, error) {
	t.Helper()
	if !pipe {
		f, err := os.Open(writeFile(t, "archive", string(data)))
		must(t, err)
		defer f.Close()
		return s.Import(t.Context(), f, ref, o)
	}
	r, w, err := os.Pipe()
	must(t, err)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		_, _ = w.Write(data)
		_ = w.Close()
	}()
	img, err := s.Import(t.Context(), r, ref, o)
	_ = r.Close()
	<-fed
	return img, err
}

func plainLayers(img it.Image) it.Image {
	var layers []it.Layer
	for _, stream := range [][]byte{
		it.Tar(it.Dir("etc/"), it.Text("etc/os", "one"), it.Exec("bin/sh", "elf"), it.Text("etc/gone", "x")),
		it.Tar(it.Text("etc/os", "two"), it.Whiteout("etc", "gone")),
	} {
		layers = append(layers, it.NewLayer(stream, it.None))
	}
	img.Layers = layers
	return img
}

// TestImport: archives of every kind give the image that a pull gives.
func TestImport(t *testing.T) {
	testenv.Axes(t, testenv.User)
	img, plain := twoLayers(), plainLayers(twoLayers())
	classic := it.DockerArchive(plain, "team/app:v1")
	blobs := it.Edit(it.DockerArchive(img, "team/app:v1"), "manifest.json", func(list []map[string]any) any {
		list[0]["Layers"] = []string{it.BlobFile(img.Layers[0].Blob), it.BlobFile(img.Layers[1].Blob)}
		return list
	})
	for _, l := range img.Layers {
		blobs = append(blobs, it.Entry{Name: it.BlobFile(l.Blob), Data: l.Data})
	}
	linked := slices.Clone(classic)
	linked[1].Name = "elsewhere/layer.tar"
	linked = append(linked, it.Entry{Name: classic[1].Name, Link: "../elsewhere/layer.tar"})
	other := it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("other", "x")), it.Gzip)}}
	several := it.OCILayoutOf(map[string]it.Image{"team/app:v1": img, "team/other:v1": other})
	tests := map[string]struct {
		format  api.ImageFormat
		entries []it.Entry
		ref     string
		image   string
	}{
		"oci":                 {api.FormatOCIArchive, it.OCILayout("team/app:v1", img), "", ""},
		"oci, name given":     {api.FormatOCIArchive, it.OCILayout("", img), "team/app:v1", ""},
		"oci, chosen by name": {api.FormatOCIArchive, several, "", "team/app:v1"},
		"oci, docker manifest": {api.FormatOCIArchive,
			it.OCILayout("team/app:v1", it.Image{Layers: img.Layers, Config: img.Config, Docker: true}), "", ""},
		"docker":             {api.FormatDockerArchive, classic, "", ""},
		"docker, chosen":     {api.FormatDockerArchive, classic, "team/app:v1", "docker.io/team/app:v1"},
		"docker, compressed": {api.FormatDockerArchive, it.DockerArchive(img, "team/app:v1"), "", ""},
		"docker, blobs":      {api.FormatDockerArchive, blobs, "", ""},
		"docker, linked":     {api.FormatDockerArchive, linked, "", ""},
	}
	for name, tt := range tests {
		for _, pipe := range []bool{false, true} {
			s := openStore(t, Options{})
			var phases []Phase
			got, err := importing(t, s, it.Archive(tt.entries), pipe, tt.ref, ImportOptions{
				Format: tt.format, Image: tt.image, Progress: func(p Progress) { phases = append(phases, p.Phase) },
			})
			if err != nil {
				t.Errorf("%s, pipe %v: %v", name, pipe, err)
				continue
			}
			if got.Ref != "docker.io/team/app:v1" || got.ID != img.ID() || len(got.Layers) != 2 ||
				got.Config.User != "app:app" || got.Digest == "" {
				t.Errorf("%s: %+v", name, got)
			}
			data, err := os.ReadFile(filepath.Join(s.Dir(), got.Layers[1], "etc/os"))
			if err != nil || string(data) != "two" {
				t.Errorf("%s: %q, %v", name, data, err)
			}
			if !slices.Contains(phases, PhaseReading) || !slices.Contains(phases, PhaseDone) {
				t.Errorf("%s: phases %v", name, phases)
			}
			if again, err := s.Pull(t.Context(), "team/app:v1", PullOptions{Policy: PullNever}); err != nil ||
				again.ID != got.ID {
				t.Errorf("%s: %v", name, err)
			}
			if left, _ := filepath.Glob(filepath.Join(s.path(tmpDir), "*")); len(left) > 0 {
				t.Errorf("%s: left %v", name, left)
			}
		}
	}
}

// TestImportShared: an import and a pull share their layers.
func TestImportShared(t *testing.T) {
	s := openStore(t, Options{})
	ref := push(t, it.StartRegistry(t), "app", twoLayers())
	pulled, err := s.Pull(t.Context(), ref, PullOptions{})
	must(t, err)
	got, err := importing(t, s, it.Archive(it.DockerArchive(plainLayers(twoLayers()))), false, "mine",
		ImportOptions{Format: api.FormatDockerArchive})
	must(t, err)
	if !equalJSON(pulled.Layers, got.Layers) {
		t.Errorf("%v and %v", pulled.Layers, got.Layers)
	}
}

// TestImportRootfs: a tar stream becomes an image of one layer, run as it says.
func TestImportRootfs(t *testing.T) {
	testenv.Axes(t, testenv.User)
	stream := it.Tar(it.Dir("./"), it.Dir("bin/"), it.Exec("bin/sh", "elf"), it.Symlink("sh", "bin/sh"))
	changes := &api.ConfigChanges{
		Env: map[string]string{"B": "2", "A": "1=1"}, User: "app", WorkingDir: "/srv", Entrypoint: []string{"/bin/sh"},
		Cmd:    []string{"-l"},
		Labels: map[string]string{"l": "v"}, ExposedPorts: []string{"80/tcp"}, Volumes: []string{"/data"},
		StopSignal: "SIGINT",
	}
	want := Config{
		Env: []string{"A=1=1", "B=2"}, User: "app", WorkingDir: "/srv", Entrypoint: []string{"/bin/sh"},
		Cmd:    []string{"-l"},
		Labels: map[string]string{"l": "v"}, ExposedPorts: []string{"80/tcp"}, Volumes: []string{"/data"},
		StopSignal: "SIGINT",
	}
	s := openStore(t, Options{})
	var layers []string
	for _, c := range []it.Compression{it.None, it.Gzip, it.Zstd} {
		for _, pipe := range []bool{false, true} {
			blob := it.NewLayer(stream, c)
			got, err := importing(t, s, blob.Data, pipe, "tools:1",
				ImportOptions{Format: api.FormatRootfs, Changes: changes})
			if err != nil {
				t.Fatalf("%q, pipe %v: %v", c, pipe, err)
			}
			if !equalJSON(got.Config, want) || got.Ref != "docker.io/library/tools:1" || got.SizeBytes != 3 ||
				got.Created.IsZero() {
				t.Errorf("%q: %+v", c, got)
			}
			if want := "layers/" + strings.Replace(blob.DiffID, ":", "-", 1); !strings.HasPrefix(got.Layers[0], want) {
				t.Errorf("%q: layer %s, want %s", c, got.Layers[0], want)
			}
			layers = append(layers, got.Layers...)
		}
	}
	if layers = slices.Compact(layers); len(layers) != 1 {
		t.Errorf("layers %v", layers)
	}
}

// TestImportManifests: a root without folders of a system may have a manifest.json, of a web page or of whatever else.
func TestImportManifests(t *testing.T) {
	s := openStore(t, Options{})
	for name, file := range map[string]it.File{
		"web page":          it.Text("manifest.json", `{"name":"app","icons":[]}`),
		"list":              it.Text("manifest.json", `[{"Config":"c"}]`),
		"list of something": it.Text("manifest.json", `["Config","Layers"]`),
		"no JSON":           it.Text("manifest.json", "Config Layers"),
		"empty":             it.Text("manifest.json", ""),
		"long":              it.Text("manifest.json", "["+strings.Repeat(" ", 2<<20)+`{"Config":"c","Layers":[]}]`),
		"link":              it.Symlink("manifest.json", "other"),
		"pipe":              {Name: "manifest.json", Type: tar.TypeFifo, Mode: 0o644},
		"folder":            it.Dir("manifest.json"),
	} {
		stream := it.Tar(it.Exec("app", "elf"), it.Text("other", `[{"Config":"c","Layers":[]}]`), file)
		if _, err := importing(t, s, stream, false, "web:1", ImportOptions{Format: api.FormatRootfs}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestImportRefused: what is damaged, hostile or something else leaves nothing.
func TestImportRefused(t *testing.T) {
	img := plainLayers(twoLayers())
	oci, docker := it.OCILayout("a/b:1", img), it.DockerArchive(img, "a/b:1")
	edit := func(fn func(list []map[string]any)) []it.Entry {
		return it.Edit(docker, "manifest.json", func(list []map[string]any) any { fn(list); return list })
	}
	without := func(entries []it.Entry, name string) []it.Entry {
		return slices.DeleteFunc(slices.Clone(entries), func(e it.Entry) bool { return e.Name == name })
	}
	changed := func(entries []it.Entry, name string, data string) []it.Entry {
		return append(without(entries, name), it.Entry{Name: name, Data: []byte(data)})
	}
	evil := img
	evil.Layers = []it.Layer{it.NewLayer(it.Tar(it.Text("../../etc/cron.d/x", "x")), it.None)}
	const o, d, r = api.FormatOCIArchive, api.FormatDockerArchive, api.FormatRootfs
	tests := map[string]struct {
		format api.ImageFormat
		data   []byte
		ref    string
		image  string
		code   api.Code
		words  string
	}{
		"nothing":      {o, nil, "", "", api.InvalidArgument, "oci-layout"},
		"text":         {o, []byte("not an archive at all"), "", "", api.InvalidArgument, "headers"},
		"cut":          {d, it.Archive(docker)[:700], "", "", api.InvalidArgument, "headers"},
		"compressed":   {o, it.NewLayer(it.Archive(oci), it.Gzip).Data, "", "", api.InvalidArgument, "gzip"},
		"other format": {d, it.Archive(oci), "", "", api.InvalidArgument, "manifest.json"},
		"index no JSON": {o, it.Archive(changed(oci, "index.json", "{")), "", "", api.InvalidArgument,
			"index.json"},
		"index empty": {o, it.Archive(changed(oci, "index.json", "{}")), "", "", api.InvalidArgument,
			"no image"},
		"index huge": {o, it.Archive(changed(oci, "index.json", strings.Repeat(" ", maxArchiveJSON+1))), "",
			"", api.InvalidArgument, "index.json"},
		"digest climbs": {o,
			it.Archive(changed(oci, "index.json", `{"manifests":[{"digest":"sha256:../../../../etc/passwd"}]}`)), "x",
			"", api.InvalidArgument, "digest"},
		"manifest missing": {o,
			it.Archive(changed(oci, "index.json", `{"manifests":[{"digest":"sha256:`+strings.Repeat("0", 64)+`"}]}`)),
			"x", "", api.InvalidArgument, "blobs/sha256/000"},
		"manifest changed": {o, it.Archive(changed(oci, oci[1].Name, `{}`)), "", "", api.InvalidArgument,
			"wrong digest"},
		"layer missing": {o, it.Archive(without(oci, oci[3].Name)), "", "", api.InvalidArgument, oci[3].Name},
		"layer changed": {o, it.Archive(changed(oci, oci[3].Name, string(it.Tar(it.Text("x", "y"))))), "", "",
			api.InvalidArgument, "wrong digest"},
		"no such image": {o, it.Archive(oci), "", "a/c:1", api.NotFound, "a/b:1"},
		"several": {o,
			it.Archive(it.OCILayoutOf(map[string]it.Image{"a/b:1": img, "a/c:1": twoLayers()})), "", "",
			api.InvalidArgument, "2 images"},
		"no name":          {o, it.Archive(it.OCILayout("", img)), "", "", api.InvalidArgument, "no name"},
		"a tag for a name": {o, it.Archive(it.OCILayout("latest", img)), "", "", api.InvalidArgument, "no name"},
		"name of nonsense": {o, it.Archive(it.OCILayout("A B:1", img)), "", "", api.InvalidArgument, "A B:1"},
		"another platform": {o, it.Archive(it.OCILayout("a/b:1", it.Image{Arch: "s390x", Layers: img.Layers})), "",
			"", api.FailedPrecondition, "s390x"},
		"config outside": {d,
			it.Archive(edit(func(l []map[string]any) { l[0]["Config"] = "../../../etc/passwd" })), "", "",
			api.InvalidArgument, "passwd"},
		"layer outside": {d,
			it.Archive(edit(func(l []map[string]any) { l[0]["Layers"] = []string{"/etc/passwd", "x"} })), "", "",
			api.InvalidArgument, "passwd"},
		"layer twice": {d,
			it.Archive(edit(func(l []map[string]any) { n := docker[1].Name; l[0]["Layers"] = []string{n, n} })), "", "",
			api.InvalidArgument, "wrong digest"},
		"too few layers": {d,
			it.Archive(edit(func(l []map[string]any) { l[0]["Layers"] = []string{docker[1].Name} })), "", "",
			api.InvalidArgument, "1 layers"},
		"link out": {d,
			it.Archive(append(without(docker, docker[1].Name), it.Entry{Name: docker[1].Name, Link: "/etc/passwd"})),
			"", "", api.InvalidArgument, "link"},
		"links in circles": {d,
			it.Archive(append(without(docker, docker[1].Name), it.Entry{Name: docker[1].Name, Link: "layer.tar"})), "",
			"", api.InvalidArgument, "circles"},
		"hostile layer": {d, it.Archive(it.DockerArchive(evil, "a/b:1")), "", "", api.InvalidArgument,
			`entry "../../etc/cron.d/x"`},
		"hostile layer's name": {d, it.Archive(it.DockerArchive(evil, "a/b:1")), "", "", api.InvalidArgument,
			"layer " + evil.Layers[0].Digest},
		"rootfs empty":  {r, nil, "x", "", api.InvalidArgument, "no file"},
		"rootfs no tar": {r, bytes.Repeat([]byte("text "), 1000), "x", "", api.InvalidArgument, "tar stream"},
		"rootfs cut": {r, it.NewLayer(it.Tar(it.Text("a", strings.Repeat("abc", 1000))), it.Gzip).
			Data[:90], "x", "", api.InvalidArgument, "damaged"},
		"rootfs hostile":        {r, it.Tar(it.Text("../x", "x")), "x", "", api.InvalidArgument, `entry "../x"`},
		"rootfs without a name": {r, it.Tar(it.Text("x", "x")), "", "", api.InvalidArgument, "ref"},
		"digest as a name": {r, it.Tar(it.Text("x", "x")), "x@sha256:" + strings.Repeat("0", 64), "",
			api.InvalidArgument, "digest"},
		"rootfs of docker": {r, it.Archive(docker), "x", "", api.InvalidArgument, "holds images"},
		"rootfs of oci":    {r, it.Archive(oci), "x", "", api.InvalidArgument, "holds images"},
		"host":             {r, it.Tar(it.Text("x", "x")), "host", "", api.InvalidArgument, "built in"},
	}
	for name, tt := range tests {
		for _, pipe := range []bool{false, true} {
			s := openStore(t, Options{})
			_, err := importing(t, s, tt.data, pipe, tt.ref, ImportOptions{Format: tt.format, Image: tt.image})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Error(), tt.words) || e.Hint == "" {
				t.Errorf("%s, pipe %v: %v (%+v), want %s with %q", name, pipe, err, e, tt.code, tt.words)
			}
			for dir, want := range map[string]int{tmpDir: 0, refsDir: 0} {
				if left, _ := filepath.Glob(filepath.Join(s.path(dir), "*")); len(left) != want {
					t.Errorf("%s: %s holds %v", name, dir, left)
				}
			}
		}
	}
}

// TestImportSource: only what can be read, and whose end can be waited for.
func TestImportSource(t *testing.T) {
	s := openStore(t, Options{})
	dir, err := os.Open(t.TempDir())
	must(t, err)
	defer dir.Close()
	null, err := os.Open("/dev/null")
	must(t, err)
	defer null.Close()
	w, err := os.Create(filepath.Join(t.TempDir(), "w"))
	must(t, err)
	defer w.Close()
	wo, err := os.OpenFile(w.Name(), os.O_WRONLY, 0)
	must(t, err)
	defer wo.Close()
	for name, f := range map[string]*os.File{"folder": dir, "device": null, "write only": wo} {
		if _, err := s.Import(t.Context(), f, "x",
			ImportOptions{Format: api.FormatRootfs}); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestImportCancel: an import that waits for a pipe ends with its caller.
func TestImportCancel(t *testing.T) {
	for _, format := range []api.ImageFormat{api.FormatRootfs, api.FormatOCIArchive} {
		s := openStore(t, Options{})
		r, w, err := os.Pipe()
		must(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error)
		go func() {
			_, err := s.Import(ctx, r, "x", ImportOptions{Format: format})
			failed <- err
		}()
		data := it.Tar(it.Text("a", strings.Repeat("x", 1<<20)))
		_, err = w.Write(data[:len(data)/2]) // more than the pipe holds: it is being read
		must(t, err)
		cancel(context.Canceled)
		if err := <-failed; api.ErrorCode(err) != api.Canceled {
			t.Errorf("%s: %v", format, err)
		}
		must(t, errors.Join(r.Close(), w.Close()))
		wantClean(t, s, 0)
	}
}

// TestImportLimits: what grows too large is not kept.
func TestImportLimits(t *testing.T) {
	s := openStore(t, Options{Limits: unpack.Limits{MaxBytes: 1 << 20}})
	for format, data := range map[api.ImageFormat][]byte{
		api.FormatRootfs:     it.NewLayer(it.Tar(it.Text("a", strings.Repeat("x", 2<<20))), it.Gzip).Data,
		api.FormatOCIArchive: make([]byte, 2<<20),
	} {
		if _, err := importing(t, s, data, true, "x",
			ImportOptions{Format: format}); api.ErrorCode(err) != api.ResourceExhausted {
			t.Errorf("%s: %v", format, err)
		}
	}
	wantClean(t, s, 0)
}

// TestImportPolicy: a signature policy can refuse archives.
func TestImportPolicy(t *testing.T) {
	for policy, code := range map[string]api.Code{
		`{"default":[{"type":"reject"}]}`: api.PermissionDenied,
		`{"default":[{"type":"insecureAcceptAnything"}],"transports":{"oci-archive":{"":[{"type":"reject"}]}}}`: api.PermissionDenied,
		`{"default":[{"type":"reject"}],"transports":{"oci-archive":{"":[{"type":"insecureAcceptAnything"}]}}}`: "",
	} {
		s := openStore(t, Options{PolicyFile: writeFile(t, "policy.json", policy)})
		_, err := importing(t, s, it.Archive(it.OCILayout("a/b:1", twoLayers())), false, "",
			ImportOptions{Format: api.FormatOCIArchive})
		if (err == nil) != (code == "") || err != nil && api.ErrorCode(err) != code {
			t.Errorf("%s: %v", policy, err)
		}
	}
}
