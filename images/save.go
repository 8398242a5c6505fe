package images

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Layers are stored unpacked, so they are packed again here. One that was packed by this
// package before comes out as it was; of another one the bytes differ, and with them the
// diffID, the configuration that lists it, and the image's id.

// exportArchive writes an archive with one image, whose layers are not compressed. A tar
// entry begins with its size, so each layer is kept below tmp/ first.
func (s *Store) exportArchive(ctx context.Context, img *Image, w io.Writer, format api.ImageFormat) (api.Exported,
	error) {
	rec, err := s.readRecord(img.Ref)
	if err != nil {
		return api.Exported{}, err
	}
	t, err := s.newTmp()
	if err != nil {
		return api.Exported{}, err
	}
	defer t.discard()
	a := &archiveWriter{tw: tar.NewWriter(w), docker: format == api.FormatDockerArchive, seen: make(map[string]bool)}
	var layers []ocispec.Descriptor
	var ids []digest.Digest
	for _, d := range rec.DiffIDs {
		blob, err := s.spoolLayer(ctx, t, d)
		if err != nil {
			return api.Exported{}, fmt.Errorf("layer %s: %w", d, err)
		}
		err = a.write(a.layerName(blob.Digest), blob.Size, blob.file)
		if err := errors.Join(err, blob.file.Close()); err != nil {
			return api.Exported{}, err
		}
		layers, ids = append(layers, blob.Descriptor), append(ids, blob.Digest)
	}
	config, err := exportedConfig(&rec, ids)
	if err != nil {
		return api.Exported{}, err
	}
	if err := a.finish(rec.Ref, config, layers); err != nil {
		return api.Exported{}, err
	}
	r := api.Exported{ID: digest.FromBytes(config).String(), Layers: stringsOf(ids)}
	return r, a.tw.Close()
}

// spooled is a packed layer in a file without a name.
type spooled struct {
	ocispec.Descriptor
	file *os.File
}

func (s *Store) spoolLayer(ctx context.Context, t *tmp, diffID string) (*spooled, error) {
	f, err := spoolFile(t)
	if err != nil {
		return nil, err
	}
	sum := digest.Canonical.Digester()
	err = s.packLayerTo(ctx, io.MultiWriter(f, sum.Hash()), diffID)
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &spooled{ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: sum.Digest(), Size: size}, f},
		nil
}

// exportedConfig is the configuration of an image with these layers: byte by byte the one
// that it has, if they are its own.
func exportedConfig(rec *record, ids []digest.Digest) ([]byte, error) {
	if len(rec.RawConfig) == 0 { // of a build that kept none
		p, err := parsePlatform(rec.Platform)
		if err != nil {
			return nil, err
		}
		c := newConfig(p, rec.Created)
		c.Config, c.RootFS.DiffIDs = ociConfig(rec.Config), ids
		return json.Marshal(c)
	}
	var known ocispec.Image
	all := make(map[string]json.RawMessage)
	if err := errors.Join(json.Unmarshal(rec.RawConfig, &known), json.Unmarshal(rec.RawConfig, &all)); err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", rec.Ref, err)
	}
	if slices.Equal(known.RootFS.DiffIDs, ids) {
		return rec.RawConfig, nil
	}
	rootfs, err := json.Marshal(ocispec.RootFS{Type: "layers", DiffIDs: ids})
	if err != nil {
		return nil, err
	}
	all["rootfs"] = rootfs
	if len(known.RootFS.DiffIDs) != len(ids) { // it would tell of other layers
		delete(all, "history")
	}
	return json.Marshal(all)
}

// archiveWriter writes an archive of one image.
type archiveWriter struct {
	tw     *tar.Writer
	docker bool
	seen   map[string]bool
}

func (a *archiveWriter) layerName(d digest.Digest) string {
	if a.docker {
		return d.Encoded() + ".tar"
	}
	return blobPath(d)
}

func blobPath(d digest.Digest) string { return "blobs/" + d.Algorithm().String() + "/" + d.Encoded() }

// write adds a file, once.
func (a *archiveWriter) write(name string, size int64, r io.Reader) error {
	if a.seen[name] {
		return nil
	}
	a.seen[name] = true
	if err := a.tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := io.Copy(a.tw, r)
	return err
}

func (a *archiveWriter) json(name string, v any) ([]byte, error) {
	data, ok := v.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if name == "" {
		name = blobPath(digest.FromBytes(data))
	}
	return data, a.write(name, int64(len(data)), bytes.NewReader(data))
}

// finish adds what says which image the layers are.
func (a *archiveWriter) finish(ref string, config []byte, layers []ocispec.Descriptor) error {
	named, err := registry.Parse(ref)
	if err != nil {
		return err
	}
	if a.docker {
		name := digest.FromBytes(config).Encoded() + ".json"
		files := make([]string, 0, len(layers))
		for _, l := range layers {
			files = append(files, a.layerName(l.Digest))
		}
		_, err := a.json(name, config)
		_, err2 := a.json("manifest.json", []any{map[string]any{
			"Config": name, "RepoTags": []string{reference.FamiliarString(named)}, "Layers": files,
		}})
		return errors.Join(err, err2)
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Layers: layers,
		Config: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(config),
			Size: int64(len(config))},
	}
	_, err1 := a.json("", config)
	data, err2 := a.json("", m)
	_, err3 := a.json(ocispec.ImageIndexFile, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{{
			MediaType: m.MediaType, Digest: digest.FromBytes(data), Size: int64(len(data)),
			Annotations: map[string]string{ocispec.AnnotationRefName: named.String()},
		}},
	})
	_, err4 := a.json(ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	return errors.Join(err1, err2, err3, err4)
}
