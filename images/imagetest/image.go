// Package imagetest makes OCI images from Go descriptions, pushes them to a
// registry with nothing but net/http, and runs a real registry on loopback. It
// is for tests: of package images and of everything that pulls.
package imagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// File is one entry of a layer. The zero Type is a regular file.
type File struct {
	Name     string
	Type     byte  // tar.TypeDir, tar.TypeSymlink, ...; 0 is a regular file
	Mode     int64 // 0 means 0755 for folders, 0644 for others
	UID, GID int
	Content  string
	Link     string            // target of symlinks and hard links
	Xattrs   map[string]string // full names
	ModTime  time.Time         // zero means a fixed time
}

// Dir is a folder; its name ends in a slash by custom.
func Dir(name string) File { return File{Name: name, Type: tar.TypeDir} }

// Text is a file of mode 0644.
func Text(name, content string) File { return File{Name: name, Content: content} }

// Exec is a file of mode 0755.
func Exec(name, content string) File { return File{Name: name, Content: content, Mode: 0o755} }

// Symlink is a symbolic link.
func Symlink(name, target string) File { return File{Name: name, Type: tar.TypeSymlink, Link: target} }

// Hardlink is one more name of target.
func Hardlink(name, target string) File {
	return File{Name: name, Type: tar.TypeLink, Link: target}
}

// Whiteout hides name of lower layers.
func Whiteout(dir, name string) File { return File{Name: dir + "/.wh." + name} }

// Opaque hides all that lower layers have in dir.
func Opaque(dir string) File { return File{Name: dir + "/.wh..wh..opq"} }

// Epoch is the time of files that give none.
var Epoch = time.Unix(1_700_000_000, 0).UTC()

// Tar writes a layer's uncompressed stream. It panics on entries that cannot
// be written, which is a mistake of the test.
func Tar(files ...File) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := f.header()
		check(w.WriteHeader(h))
		if h.Typeflag == tar.TypeReg {
			_, err := io.WriteString(w, f.Content)
			check(err)
		}
	}
	check(w.Close())
	return b.Bytes()
}

func (f File) header() *tar.Header {
	h := &tar.Header{
		Name: f.Name, Typeflag: f.Type, Mode: f.Mode, Uid: f.UID, Gid: f.GID, Linkname: f.Link,
		ModTime: f.ModTime, Format: tar.FormatPAX,
	}
	switch h.Typeflag {
	case 0:
		h.Typeflag = tar.TypeReg
		h.Size = int64(len(f.Content))
	case tar.TypeReg:
		h.Size = int64(len(f.Content))
	}
	if h.Mode == 0 {
		h.Mode = 0o644
		if h.Typeflag == tar.TypeDir {
			h.Mode = 0o755
		}
	}
	if h.ModTime.IsZero() {
		h.ModTime = Epoch
	}
	for k, v := range f.Xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = make(map[string]string)
		}
		h.PAXRecords["SCHILY.xattr."+k] = v
	}
	return h
}

// Compression of a layer's blob.
type Compression string

// The compressions.
const (
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
	None Compression = ""
)

// Blob is content with its digest.
type Blob struct {
	MediaType string
	Data      []byte
	Digest    string
}

// NewBlob digests data.
func NewBlob(mediaType string, data []byte) Blob {
	sum := sha256.Sum256(data)
	return Blob{MediaType: mediaType, Data: data, Digest: "sha256:" + hex.EncodeToString(sum[:])}
}

// Layer is a layer ready to be pushed.
type Layer struct {
	Blob
	DiffID string // digest of the uncompressed stream
}

// NewLayer compresses the stream of a layer.
func NewLayer(stream []byte, c Compression) Layer {
	const mediaType = "application/vnd.oci.image.layer.v1.tar"
	l := Layer{DiffID: NewBlob("", stream).Digest}
	switch c {
	case Gzip:
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(stream)
		check(err)
		check(w.Close())
		l.Blob = NewBlob(mediaType+"+gzip", b.Bytes())
	case Zstd:
		w, err := zstd.NewWriter(nil)
		check(err)
		l.Blob = NewBlob(mediaType+"+zstd", w.EncodeAll(stream, nil))
		check(w.Close())
	default:
		l.Blob = NewBlob(mediaType, stream)
	}
	return l
}

// Config is the "config" object of an image configuration.
type Config struct {
	User         string              `json:"User,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
	Volumes      map[string]struct{} `json:"Volumes,omitempty"`
	Labels       map[string]string   `json:"Labels,omitempty"`
	StopSignal   string              `json:"StopSignal,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
}

// Image describes an image of one platform.
type Image struct {
	Layers []Layer
	Config Config
	// OS and Arch default to this machine's.
	OS, Arch, Variant string
	// Docker makes the manifest one of Docker's schema 2 instead of OCI's.
	Docker bool
}

// blobs gives the manifest and the configuration.
func (i Image) blobs() (manifest, config Blob) {
	osName, arch := i.platform()
	var diffIDs []string
	descs := []descriptor{}
	for _, l := range i.Layers {
		diffIDs = append(diffIDs, l.DiffID)
		descs = append(descs, l.descriptor())
	}
	about := map[string]any{
		"created": Epoch, "os": osName, "architecture": arch, "config": i.Config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	}
	if i.Variant != "" {
		about["variant"] = i.Variant
	}
	config = NewBlob("application/vnd.oci.image.config.v1+json", toJSON(about))
	mediaType := "application/vnd.oci.image.manifest.v1+json"
	if i.Docker {
		const docker = "application/vnd.docker."
		mediaType = docker + "distribution.manifest.v2+json"
		config.MediaType = docker + "container.image.v1+json"
		for n := range descs {
			descs[n].MediaType = docker + "image.rootfs.diff.tar"
			if strings.HasSuffix(i.Layers[n].MediaType, "+gzip") {
				descs[n].MediaType += ".gzip"
			}
		}
	}
	manifest = NewBlob(mediaType, toJSON(map[string]any{
		"schemaVersion": 2, "mediaType": mediaType, "config": config.descriptor(), "layers": descs,
	}))
	return manifest, config
}

func (i Image) platform() (osName, arch string) {
	osName, arch = i.OS, i.Arch
	if osName == "" {
		osName = "linux"
	}
	if arch == "" {
		arch = runtime.GOARCH
	}
	return osName, arch
}

// ID is the digest of the image's configuration.
func (i Image) ID() string {
	_, config := i.blobs()
	return config.Digest
}

type descriptor struct {
	MediaType string         `json:"mediaType"`
	Digest    string         `json:"digest"`
	Size      int            `json:"size"`
	Platform  map[string]any `json:"platform,omitempty"`
}

func (b Blob) descriptor() descriptor {
	return descriptor{MediaType: b.MediaType, Digest: b.Digest, Size: len(b.Data)}
}

func toJSON(v any) []byte {
	data, err := json.Marshal(v)
	check(err)
	return data
}

func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("imagetest: %v", err))
	}
}
