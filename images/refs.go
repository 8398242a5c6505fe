package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"go.podman.io/image/v5/docker/reference"

	"github.com/hutch-sh/hutch/runtime/api"
)

// HostRef is the reference of the built-in image, which no registry serves.
const HostRef = "host"

// minIDPrefix is how many hex digits of an image id must be given: fewer are
// more likely a mistyped name.
const minIDPrefix = 6

// record is what refs/<hash>.json holds: an Image with the digests of its
// layers, because folder names depend on how this process unpacks (folderName).
type record struct {
	Image
	DiffIDs []string `json:"diff_ids"`
	// RawConfig is the configuration as it was received, with what Image.Config leaves
	// out; nil in records of builds that did not keep it.
	RawConfig []byte `json:"raw_config,omitempty"`
	// Origin is where the image came from: "" from the registry that Ref names,
	// originLocal from no registry, else the reference that it was pulled by.
	Origin string `json:"origin,omitempty"`
	// Fixed says that the layer of fixLayer lies on top.
	Fixed bool `json:"fixed,omitempty"`
}

// originLocal is the Origin of images that were imported or committed.
const originLocal = "local"

// pulledAs is the reference by which a registry has the image, "" when none has.
func (r *record) pulledAs() string {
	switch r.Origin {
	case "":
		return r.Ref
	case originLocal:
		return ""
	}
	return r.Origin
}

func refFile(normalized string) string {
	sum := sha256.Sum256([]byte(normalized))
	return path.Join(refsDir, hex.EncodeToString(sum[:16])+".json")
}

// Get finds an image by reference, by manifest digest or by (a prefix of) its
// id. It fails with not_found, also for images of which a layer is missing.
func (s *Store) Get(ref string) (*Image, error) {
	named, err := s.registries.Parse(ref)
	if api.ErrorCode(err) == api.FailedPrecondition {
		return nil, err // what the name means is not known
	}
	if err == nil {
		if strings.Contains(ref, "@") {
			ref = named.String()
		}
		img, err := s.readRef(refFile(named.String()))
		if err == nil {
			return img, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	return match(all, ref)
}

// match finds the one image that ref means by digest, or by id or its prefix.
func match(all []*Image, ref string) (*Image, error) {
	var found *Image
	for _, img := range all {
		if !img.matches(ref) {
			continue
		}
		if found != nil && found.ID != img.ID {
			return nil, api.Errorf(api.InvalidArgument, "image id %q is not unique: %s and %s", ref, found.ID, img.ID).
				WithHint("Give more digits.").WithField("image")
		}
		found = img
	}
	if found == nil {
		return nil, api.Errorf(api.NotFound, "no image %q in the store", ref).
			WithHint("hutch image pull %s", ref)
	}
	return found, nil
}

func (i *Image) matches(ref string) bool {
	if ref == i.Digest || ref == i.ID {
		return true
	}
	if name, digest, ok := strings.Cut(ref, "@"); ok {
		named, err := reference.ParseNormalizedNamed(name)
		mine, mineErr := reference.ParseNormalizedNamed(i.Ref)
		return err == nil && mineErr == nil && named.Name() == mine.Name() && digest == i.Digest
	}
	hexID := i.ID[strings.IndexByte(i.ID, ':')+1:]
	ref = strings.TrimPrefix(ref, "sha256:")
	return len(ref) >= minIDPrefix && strings.HasPrefix(hexID, ref)
}

// List gives every complete image, sorted by reference.
func (s *Store) List() ([]*Image, error) {
	entries, err := os.ReadDir(s.path(refsDir))
	if err != nil {
		return nil, storeError(err, "list images", s.dir)
	}
	var all []*Image
	for _, e := range entries {
		img, err := s.readRef(path.Join(refsDir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile, or unpacked for another kind of id map
		}
		if err != nil {
			return nil, err
		}
		all = append(all, img)
	}
	slices.SortFunc(all, func(a, b *Image) int { return strings.Compare(a.Ref, b.Ref) })
	return all, nil
}

// readRef reads one record. It fails with fs.ErrNotExist when the record or
// one of its layers is not there.
func (s *folder) readRef(name string) (*Image, error) {
	data, err := os.ReadFile(s.path(name))
	if err != nil {
		return nil, err
	}
	img, err := s.decodeRecord(data)
	if err != nil {
		return nil, api.Errorf(api.Internal, "image record %s: %w", s.path(name), err).
			WithHint("Remove the file and pull the image again.")
	}
	for _, l := range img.Layers {
		if _, err := os.Lstat(s.path(l)); err != nil {
			return nil, fmt.Errorf("image %s: layer %s: %w", img.Ref, l, err)
		}
	}
	return img, nil
}

func decodeStored(data []byte) (r record, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	for _, d := range r.DiffIDs {
		if err := checkDigest(d); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (s *folder) decodeRecord(data []byte) (*Image, error) {
	r, err := decodeStored(data)
	if err != nil {
		return nil, err
	}
	r.Layers = make([]string, len(r.DiffIDs))
	for i, d := range r.DiffIDs {
		r.Layers[i] = path.Join(s.layerUnit(d), unitRoot)
	}
	if r.Fixed {
		r.Layers = append(r.Layers, path.Join(s.fixUnit(r.DiffIDs), unitRoot))
	}
	return &r.Image, nil
}

func (s *folder) writeRef(r record) error {
	r.Layers = nil
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode image record: %w", err)
	}
	return s.writeFile(refFile(r.Ref), data, true)
}

// Remove forgets a reference and frees the layers that no other image has, no
// lease keeps and inUse (nil: none) does not claim. Layers that are still in
// use are freed by a later GC.
func (s *Store) Remove(ref string, inUse func(layer string) bool) error {
	if ref == HostRef {
		return api.Errorf(api.FailedPrecondition, "the image %q is built in", HostRef).
			WithHint("Nothing is stored for it but a small cache, which is rebuilt when needed.")
	}
	img, err := s.Get(ref)
	if err != nil {
		return err
	}
	if err := os.Remove(s.path(refFile(img.Ref))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storeError(err, "remove image "+img.Ref, s.dir)
	}
	_, err = s.GC(inUse)
	return err
}
