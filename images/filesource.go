package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/runtime/api"
)

// fileSource is one image of an archive, for the same code that pulls from a
// registry: platforms, signature policy and digests are dealt with there.
//
// The library's own transports for archives open a path, which a daemon of other ids
// than its caller cannot, and unpack the whole archive first.
type fileSource struct {
	tar  *tarIndex
	ref  fileRef
	name string // a name that the archive gives the image, or ""

	top     []byte // manifest, or index of manifests
	topType string
	blobs   map[digest.Digest]string // files, where the digest does not name them
}

var _ types.ImageSource = (*fileSource)(nil)

func (s *fileSource) Reference() types.ImageReference { return s.ref }
func (s *fileSource) Close() error                    { return nil }
func (s *fileSource) HasThreadSafeGetBlob() bool      { return true }

// GetManifest gives the manifest of the image, or one that it refers to.
func (s *fileSource) GetManifest(_ context.Context, instance *digest.Digest) ([]byte, string, error) {
	if instance == nil {
		return s.top, s.topType, nil
	}
	data, err := s.small(*instance)
	if err != nil {
		return nil, "", err
	}
	return data, manifest.GuessMIMEType(data), nil
}

// small reads a blob of JSON and verifies it.
func (s *fileSource) small(d digest.Digest) ([]byte, error) {
	name, err := s.file(d)
	if err != nil {
		return nil, err
	}
	data, err := s.tar.read(name)
	if err != nil {
		return nil, err
	}
	if got := d.Algorithm().FromBytes(data); got != d {
		return nil, fmt.Errorf("%w: %s has %s", errDigest, name, got)
	}
	return data, nil
}

// GetBlob opens a layer or a configuration. Whoever reads it verifies it.
func (s *fileSource) GetBlob(_ context.Context, info types.BlobInfo, _ types.BlobInfoCache) (io.ReadCloser, int64,
	error) {
	name, err := s.file(info.Digest)
	if err != nil {
		return nil, 0, err
	}
	f, err := s.tar.open(name)
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(f), f.Size(), nil
}

// file names the file of a blob.
func (s *fileSource) file(d digest.Digest) (string, error) {
	if err := checkDigest(d.String()); err != nil {
		return "", fmt.Errorf("%w: %w", errArchive, err)
	}
	if name, ok := s.blobs[d]; ok {
		return name, nil
	}
	return "blobs/" + d.Algorithm().String() + "/" + d.Encoded(), nil
}

// GetSignatures: archives carry none, so a policy that wants one refuses.
func (s *fileSource) GetSignatures(context.Context, *digest.Digest) ([][]byte, error) {
	return nil, nil
}

// LayerInfosForCopy has nothing to replace.
func (s *fileSource) LayerInfosForCopy(context.Context, *digest.Digest) ([]types.BlobInfo, error) {
	return nil, nil
}

// openOCI chooses an image of an OCI image layout (image-layout.md): the one called
// image, or the only one.
func openOCI(x *tarIndex, image string) (*fileSource, error) {
	if !x.has("oci-layout") || !x.has("index.json") {
		return nil, fmt.Errorf("%w: it has no oci-layout and index.json at its top, so it is no OCI image layout",
			errArchive)
	}
	data, err := x.read("index.json")
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := unmarshal("index.json", data, &index); err != nil {
		return nil, err
	}
	d, err := chooseOCI(index.Manifests, image)
	if err != nil {
		return nil, err
	}
	s := &fileSource{tar: x, ref: fileRef{transport: "oci-archive", image: image}, topType: d.MediaType}
	if names := ociNames(d); len(names) > 0 {
		s.name = names[0]
	}
	if s.top, err = s.small(d.Digest); err != nil {
		return nil, err
	}
	if s.topType == "" {
		s.topType = manifest.GuessMIMEType(s.top)
	}
	return s, nil
}

// ociNames are the names of an image in a layout. A mere tag, which the
// specification allows, counts only for choosing.
func ociNames(d ocispec.Descriptor) (names []string) {
	for _, key := range []string{"io.containerd.image.name", ocispec.AnnotationRefName} {
		if n := d.Annotations[key]; strings.ContainsAny(n, "/:") {
			names = append(names, n)
		}
	}
	return names
}

func chooseOCI(all []ocispec.Descriptor, image string) (ocispec.Descriptor, error) {
	var known []string
	var found []ocispec.Descriptor
	for _, d := range all {
		names := append(ociNames(d), d.Annotations[ocispec.AnnotationRefName], d.Digest.String())
		known = append(known, first(names))
		if image == "" || slices.ContainsFunc(names, func(n string) bool { return sameName(n, image) }) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return ocispec.Descriptor{}, notOne(image, known, len(found))
	}
	return found[0], nil
}

// openDocker chooses an image of an archive as docker save writes it: a manifest.json
// lists configurations and layers, layers are tar streams in whatever file.
func openDocker(x *tarIndex, image string) (*fileSource, error) {
	if !x.has("manifest.json") {
		return nil, fmt.Errorf("%w: it has no manifest.json at its top, so docker save has not written it", errArchive)
	}
	data, err := x.read("manifest.json")
	if err != nil {
		return nil, err
	}
	var all []dockerItem
	if err := unmarshal("manifest.json", data, &all); err != nil {
		return nil, err
	}
	item, err := chooseDocker(all, image)
	if err != nil {
		return nil, err
	}
	s := &fileSource{tar: x, ref: fileRef{transport: "docker-archive", image: image},
		blobs: make(map[digest.Digest]string)}
	if len(item.RepoTags) > 0 {
		s.name = item.RepoTags[0]
	}
	return s, s.describe(item)
}

// dockerItem is one image in manifest.json.
type dockerItem struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func chooseDocker(all []dockerItem, image string) (dockerItem, error) {
	var known []string
	var found []dockerItem
	for _, i := range all {
		known = append(known, first(append(i.RepoTags, i.Config)))
		if image == "" || slices.ContainsFunc(append(i.RepoTags, i.Config),
			func(n string) bool { return sameName(n, image) }) {
			found = append(found, i)
		}
	}
	if len(found) != 1 {
		return dockerItem{}, notOne(image, known, len(found))
	}
	return found[0], nil
}

// describe writes the manifest that the image would have in a registry.
func (s *fileSource) describe(item dockerItem) error {
	config, err := s.tar.read(item.Config)
	if err != nil {
		return err
	}
	var c struct {
		RootFS ocispec.RootFS `json:"rootfs"`
	}
	if err := unmarshal(item.Config, config, &c); err != nil {
		return err
	}
	if n, m := len(item.Layers), len(c.RootFS.DiffIDs); n != m {
		return fmt.Errorf("%w: manifest.json names %d layers, the configuration %d", errArchive, n, m)
	}
	id := digest.FromBytes(config)
	s.blobs[id] = item.Config
	layers := make([]manifest.Schema2Descriptor, len(item.Layers))
	for i, name := range item.Layers {
		if layers[i], err = s.layer(name, c.RootFS.DiffIDs[i]); err != nil {
			return err
		}
	}
	s.topType = manifest.DockerV2Schema2MediaType
	s.top, err = manifest.Schema2FromComponents(manifest.Schema2Descriptor{
		MediaType: manifest.DockerV2Schema2ConfigMediaType, Size: int64(len(config)), Digest: id,
	}, layers).Serialize()
	return err
}

// layer describes one layer of a docker archive. A plain tar stream has its diffID as
// digest; of a compressed one the file's name may tell, else it is read for it.
func (s *fileSource) layer(name string, diffID digest.Digest) (manifest.Schema2Descriptor, error) {
	d := manifest.Schema2Descriptor{MediaType: manifest.DockerV2SchemaLayerMediaTypeUncompressed, Digest: diffID}
	f, err := s.tar.open(name)
	if err != nil {
		return d, err
	}
	d.Size = f.Size()
	if kind, _ := compression(firstBytes(f)); kind != "" {
		d.MediaType = manifest.DockerV2Schema2LayerMediaType
		if d.Digest = blobName(name); d.Digest == "" {
			if d.Digest, err = digest.FromReader(f); err != nil {
				return d, fmt.Errorf("%w: read %q: %w", errArchive, name, err)
			}
		}
	}
	if err := checkDigest(d.Digest.String()); err != nil {
		return d, fmt.Errorf("%w: layer %q: %w", errArchive, name, err)
	}
	s.blobs[d.Digest] = name
	return d, nil
}

// blobName is the digest that a file below blobs/ is named by.
func blobName(name string) digest.Digest {
	parts := strings.Split(entryName(name), "/")
	if len(parts) != 3 || parts[0] != "blobs" {
		return ""
	}
	d := digest.Digest(parts[1] + ":" + parts[2])
	if d.Validate() != nil {
		return ""
	}
	return d
}

// sameName compares names of images as users write them.
func sameName(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := reference.ParseDockerRef(a)
	y, errY := reference.ParseDockerRef(b)
	return errX == nil && errY == nil && x.String() == y.String()
}

// first is the first name that is one.
func first(names []string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return "without a name"
}

// notOne is the error when an archive does not have exactly one image as asked for.
func notOne(image string, known []string, found int) error {
	list := strings.Join(known[:min(len(known), 20)], ", ")
	switch {
	case len(known) == 0:
		return fmt.Errorf("%w: it holds no image", errArchive)
	case image == "":
		return api.Errorf(api.InvalidArgument, "the archive holds %d images: %s", len(known), list).
			WithField("image").WithHint("Choose one by its name after the file's: FILE:NAME.")
	case found > 1:
		return api.Errorf(api.InvalidArgument, "the archive holds %d images called %s", found, image).
			WithField("image").WithHint("Choose one by the digest of its manifest.")
	}
	return api.Errorf(api.NotFound, "the archive holds no image called %q; it has %s", image, list).
		WithField("image").WithHint("Choose one of them, or leave the name out when there is only one.")
}

func unmarshal(name string, data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s: %w", errArchive, name, err)
	}
	return nil
}

// fileRef is what a signature policy knows of an image in a file: its transport, so
// that a policy can allow or refuse all archives. A file has no name to trust.
type fileRef struct{ transport, image string }

var _ types.ImageReference = fileRef{}

func (r fileRef) Transport() types.ImageTransport         { return fileTransport(r.transport) }
func (r fileRef) StringWithinTransport() string           { return r.image }
func (r fileRef) DockerReference() reference.Named        { return nil }
func (r fileRef) PolicyConfigurationIdentity() string     { return "" }
func (r fileRef) PolicyConfigurationNamespaces() []string { return nil }

var errNotOpened = errors.New("an archive is opened by who holds it")

func (r fileRef) NewImage(context.Context, *types.SystemContext) (types.ImageCloser, error) {
	return nil, errNotOpened
}

func (r fileRef) NewImageSource(context.Context, *types.SystemContext) (types.ImageSource, error) {
	return nil, errNotOpened
}

func (r fileRef) NewImageDestination(context.Context, *types.SystemContext) (types.ImageDestination, error) {
	return nil, errNotOpened
}
func (r fileRef) DeleteImage(context.Context, *types.SystemContext) error { return errNotOpened }

type fileTransport string

func (t fileTransport) Name() string                                        { return string(t) }
func (t fileTransport) ParseReference(string) (types.ImageReference, error) { return nil, errNotOpened }
func (t fileTransport) ValidatePolicyConfigurationScope(string) error       { return nil }
