package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"
)

// registry is a registry on the host's loopback that gives images out of memory: the
// clients are measured.
type registry struct {
	host string // address:port

	mu   sync.Mutex
	docs map[string]document // by the path of the request
}

type document struct {
	mediaType string
	digest    string
	data      []byte
}

// registry starts the registry, once.
func (h *Host) registry() (*registry, error) {
	if h.images != nil {
		return h.images, nil
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &registry{host: l.Addr().String(), docs: map[string]document{}}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	h.undo.Add(func() error {
		err := server.Close()
		if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	h.images = r
	return r, nil
}

// ServeHTTP answers what the distribution specification calls pulling.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if req.URL.Path == "/v2/" {
		return
	}
	r.mu.Lock()
	d, ok := r.docs[req.URL.Path]
	r.mu.Unlock()
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", d.mediaType)
	w.Header().Set("Docker-Content-Digest", d.digest)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(d.data))
}

// put makes a blob of data and describes it as manifests do.
func (r *registry) put(name, mediaType string, data []byte) string {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	r.mu.Lock()
	defer r.mu.Unlock()
	d := document{mediaType, digest, data}
	r.docs["/v2/"+name+"/blobs/"+digest] = d
	r.docs["/v2/"+name+"/manifests/"+digest] = d
	if strings.Contains(mediaType, "manifest") {
		r.docs["/v2/"+name+"/manifests/1"] = d
	}
	return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, mediaType, digest, len(data))
}

// has says whether the image of that name is there.
func (r *registry) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.docs["/v2/"+name+"/manifests/1"]
	return ok
}

// shape is what a made-up image consists of.
type shape struct {
	name          string
	layers, files int
	bytes         int64 // of all files
	// program, if any, is /bin/true.
	program []byte
}

// The images that are pulled. Their content is the same on every machine.
var (
	mixed = shape{name: "mixed", layers: 5, files: 10_000, bytes: 216_000_000}
	small = shape{name: "small", layers: 1, files: 100_000, bytes: 10_000_000}
)

func (s shape) String() string {
	layers := fmt.Sprintf("%d layers", s.layers)
	if s.layers == 1 {
		layers = "1 layer"
	}
	return fmt.Sprintf("%d MB, %d files, %s", s.bytes/1_000_000, s.files, layers)
}

// image is the reference of a made-up image, which is made once.
func (r *registry) image(s shape) (string, error) {
	ref := r.host + "/" + s.name + ":1"
	if r.has(s.name) {
		return ref, nil
	}
	var layers, diffIDs []string
	for i := range s.layers {
		blob, diffID, err := s.layer(uint64(i))
		if err != nil {
			return "", err
		}
		layers = append(layers, r.put(s.name, "application/vnd.oci.image.layer.v1.tar+gzip", blob))
		diffIDs = append(diffIDs, fmt.Sprintf("%q", diffID))
	}
	config := r.put(s.name, "application/vnd.oci.image.config.v1+json", fmt.Appendf(nil,
		`{"os":"linux","architecture":%q,"config":{},"rootfs":{"type":"layers","diff_ids":[%s]}}`, runtime.GOARCH,
		strings.Join(diffIDs, ",")))
	const manifest = "application/vnd.oci.image.manifest.v1+json"
	r.put(s.name, manifest, fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, manifest,
		config, strings.Join(layers, ",")))
	return ref, nil
}

// layer is one layer as gzip, and the digest of its tar.
func (s shape) layer(n uint64) (blob []byte, diffID string, err error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.DefaultCompression)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	t := tar.NewWriter(io.MultiWriter(z, sum))
	words := newProse(n)
	write := func(name string, kind byte, mode int64, data []byte) {
		h := &tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: int64(len(data)),
			ModTime: time.Unix(1_700_000_000, 0)}
		if err == nil {
			err = t.WriteHeader(h)
		}
		if err == nil {
			_, err = t.Write(data)
		}
	}
	if n == 0 && s.program != nil {
		write("bin/", tar.TypeDir, 0o755, nil)
		write("bin/true", tar.TypeReg, 0o755, s.program)
	}
	write("usr/", tar.TypeDir, 0o755, nil)
	write(fmt.Sprintf("usr/lib%d/", n), tar.TypeDir, 0o755, nil)
	mean := int(s.bytes) / s.files
	for i := range s.files / s.layers {
		dir := fmt.Sprintf("usr/lib%d/folder%d/", n, i/50)
		if i%50 == 0 {
			write(dir, tar.TypeDir, 0o755, nil)
		}
		// As in distributions, most files are small and few make most of the bytes: nine
		// of ten have a fifth of the mean, the tenth 8.2 times that.
		size := mean / 5
		if i%10 == 9 {
			size = mean * 82 / 10
		}
		write(fmt.Sprintf("%sfile%d", dir, i), tar.TypeReg, 0o644, words.bytes(size, i%3 == 0))
	}
	if err := errors.Join(err, t.Close(), z.Close()); err != nil {
		return nil, "", err
	}
	return b.Bytes(), fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

// prose makes content that compresses as that of images does.
type prose struct {
	rnd   *rand.Rand
	words [][]byte
}

func newProse(seed uint64) *prose {
	p := &prose{rnd: rand.New(rand.NewPCG(seed, 1))}
	for range 4096 {
		w := make([]byte, 3+p.rnd.IntN(9))
		for i := range w {
			w[i] = byte('a' + p.rnd.IntN(26))
		}
		p.words = append(p.words, append(w, ' '))
	}
	return p
}

// bytes are n of them, binary ones with some that do not compress at all.
func (p *prose) bytes(n int, binary bool) []byte {
	b := make([]byte, 0, n+32)
	for len(b) < n {
		b = append(b, p.words[p.rnd.IntN(len(p.words))]...)
		if binary {
			for range 6 {
				b = append(b, byte(p.rnd.Uint32()), 0)
			}
		}
	}
	return b[:n]
}
