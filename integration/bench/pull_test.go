package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// get decodes a document of a registry.
func get(t *testing.T, r *registry, path string, into any) {
	t.Helper()
	resp, err := http.Get("http://" + r.host + "/v2/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestRegistry: a made-up image has as many files and bytes as it says, and those of two
// runs are the same.
func TestRegistry(t *testing.T) {
	h := testHost(t)
	r, err := h.registry()
	if err != nil {
		t.Fatal(err)
	}
	s := shape{name: "tiny", layers: 2, files: 200, bytes: 1_000_000}
	ref, err := r.image(s)
	if err != nil || ref != r.host+"/tiny:1" {
		t.Fatalf("%s, %v", ref, err)
	}
	var m struct{ Layers []struct{ Digest string } }
	get(t, r, "tiny/manifests/1", &m)
	files, size := 0, int64(0)
	for i, l := range m.Layers {
		blob, _, err := s.layer(uint64(i))
		if again := r.put("again", "x", blob); err != nil || again == "" || !r.served("again", l.Digest) {
			t.Errorf("layer %d is not the same when it is made again: %v", i, err)
		}
		n, b := count(t, r, "tiny/blobs/"+l.Digest)
		files, size = files+n, size+b
	}
	if len(m.Layers) != s.layers || files != s.files || size < s.bytes*98/100 || size > s.bytes*102/100 {
		t.Errorf("%d layers with %d files of %d bytes, want %v", len(m.Layers), files, size, s)
	}
}

func (r *registry) served(name, digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.docs["/v2/"+name+"/blobs/"+digest]
	return ok
}

// count counts the regular files of a layer, and their bytes.
func count(t *testing.T, r *registry, path string) (files int, size int64) {
	t.Helper()
	resp, err := http.Get("http://" + r.host + "/v2/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for tr := tar.NewReader(z); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, size
		}
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", path, err))
		}
		if hdr.Typeflag == tar.TypeReg {
			files, size = files+1, size+hdr.Size
		}
	}
}
