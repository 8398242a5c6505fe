package tools

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// boxes is what downloads need of sandboxes.
type boxes interface {
	Read(ctx context.Context, p api.FileReadParams, fds packet.Taker) (api.FileChunk, error)
	Pack(ctx context.Context, p api.FilePackParams, fds packet.Taker) (api.FileArchive, error)
}

const (
	// maxLinks bounds the links that wait for somebody.
	maxLinks = 1000
	// maxServed bounds the connections: any user of the machine can make them.
	maxServed = 64
)

// downloads serves links on the loopback of the host, from the first link on.
type downloads struct {
	boxes boxes

	mu     sync.Mutex // guards what follows
	links  map[string]*download
	server *http.Server
	addr   string
	slots  chan struct{}
	closed bool
}

// offer makes a link of d that is good once, for as long as life.
func (ds *downloads) offer(d *download, life time.Duration) (string, error) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.closed {
		return "", api.Errorf(api.Unavailable, "the daemon ends").WithHint("call again")
	}
	if len(ds.links) >= maxLinks {
		return "", api.Errorf(api.ResourceExhausted, "%d links wait to be downloaded", len(ds.links)).
			WithHint("download some, or give links less time")
	}
	if ds.server == nil {
		if err := ds.listen(); err != nil {
			return "", err
		}
	}
	secret := token()
	d.expires = time.AfterFunc(life, func() { ds.take(secret) })
	ds.links[secret] = d
	return (&url.URL{Scheme: "http", Host: ds.addr, Path: "/" + secret + "/" + d.filename}).String(), nil
}

// take ends a link and returns what it stood for.
func (ds *downloads) take(secret string) *download {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.links[secret]
	if d != nil {
		d.expires.Stop()
		delete(ds.links, secret)
	}
	return d
}

func (ds *downloads) listen() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return api.Errorf(api.Unavailable, "listen on 127.0.0.1 for downloads: %w", err).WithHint("use hutch cp")
	}
	ds.addr, ds.links, ds.slots = l.Addr().String(), map[string]*download{}, make(chan struct{}, maxServed)
	ds.server = &http.Server{Handler: ds, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second,
		MaxHeaderBytes: 16 << 10}
	go func() { _ = ds.server.Serve(l) }() // until close
	return nil
}

func (ds *downloads) close() {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.closed = true
	for _, d := range ds.links {
		d.expires.Stop()
	}
	if ds.server != nil {
		_ = ds.server.Close()
	}
}

// ServeHTTP sends what the link stands for. A web page of the user's browser can make it ask, too, under any name
// for 127.0.0.1, but knows no secret.
func (ds *downloads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet { // HEAD of a link that is good once would be a promise
		h.Set("Allow", http.MethodGet)
		http.Error(w, "links are downloaded by GET", http.StatusMethodNotAllowed)
		return
	}
	if r.Host != ds.addr {
		http.Error(w, "this is "+ds.addr, http.StatusMisdirectedRequest)
		return
	}
	select {
	case ds.slots <- struct{}{}:
		defer func() { <-ds.slots }()
	default:
		http.Error(w, "too many downloads at once", http.StatusServiceUnavailable)
		return
	}
	secret, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	d := ds.take(secret)
	if d == nil {
		http.Error(w, "no such link: each is good for one download and a limited time", http.StatusNotFound)
		return
	}
	if err := d.serve(r.Context(), w, ds.boxes); err != nil {
		status := http.StatusInternalServerError
		switch api.ErrorCode(err) {
		case api.NotFound:
			status = http.StatusGone
		case api.PermissionDenied:
			status = http.StatusForbidden
		}
		http.Error(w, err.Error(), status)
	}
}

// convert makes what is sent of what the sandbox's worker sends.
func convert(format string, to io.Writer, from io.Reader) error {
	switch format {
	case "raw":
		_, err := io.Copy(to, from)
		return err
	case "zip":
		return zipOf(to, from)
	}
	z := gzip.NewWriter(to)
	if _, err := io.Copy(z, from); err != nil {
		return err
	}
	return z.Close()
}

// zipOf makes a zip archive of a tar archive, whose names are a sandbox's: none of them leads out of where it is
// unpacked, and links travel as zip has them.
func zipOf(to io.Writer, from io.Reader) error {
	in, out := tar.NewReader(from), zip.NewWriter(to)
	for {
		entry, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return fmt.Errorf("the sandbox's archive: %w", err)
		}
		if err := addToZip(out, entry, in); err != nil {
			return err
		}
	}
}

func addToZip(out *zip.Writer, entry *tar.Header, content io.Reader) error {
	if !filepath.IsLocal(entry.Name) {
		return nil
	}
	h := &zip.FileHeader{Name: entry.Name, Modified: entry.ModTime, Method: zip.Deflate}
	mode := entry.FileInfo().Mode() &^ (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	switch entry.Typeflag {
	case tar.TypeReg:
	case tar.TypeDir:
		h.Method = zip.Store
		if h.Name[len(h.Name)-1] != '/' {
			h.Name += "/"
		}
	case tar.TypeLink: // zip has none: a symbolic one to the first name
		target, err := filepath.Rel(filepath.Dir(entry.Name), entry.Linkname)
		if err != nil || !filepath.IsLocal(entry.Linkname) {
			return nil
		}
		entry.Typeflag, entry.Linkname = tar.TypeSymlink, target
		fallthrough
	case tar.TypeSymlink:
		h.Method = zip.Store
		mode = fs.ModeSymlink | 0o777
	default:
		return nil
	}
	h.SetMode(mode)
	w, err := out.CreateHeader(h)
	if err != nil {
		return err
	}
	switch entry.Typeflag {
	case tar.TypeReg:
		_, err = io.Copy(w, content)
	case tar.TypeSymlink:
		_, err = io.WriteString(w, entry.Linkname)
	}
	return err
}
