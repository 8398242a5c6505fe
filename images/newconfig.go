package images

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ownConfig is the configuration of an image that is made here.
type ownConfig struct{ ocispec.Image }

// newConfig is that of an image without a layer.
func newConfig(p platform, created time.Time) *ownConfig {
	created = created.UTC().Truncate(time.Second)
	c := &ownConfig{}
	c.Created = &created
	c.Platform = ocispec.Platform{OS: p.OS, Architecture: p.Arch, Variant: p.Variant}
	c.RootFS.Type = "layers"
	return c
}

// append adds a layer and says what made it.
func (c *ownConfig) append(diffID digest.Digest, by string) {
	c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, diffID)
	c.History = append(c.History, ocispec.History{Created: c.Created, CreatedBy: by})
}

// apply makes changes, which may be nil.
func (c *ownConfig) apply(ch *api.ConfigChanges) {
	if ch == nil {
		return
	}
	cfg := &c.Config
	for _, name := range slices.Sorted(maps.Keys(ch.Env)) {
		cfg.Env = slices.DeleteFunc(cfg.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		cfg.Env = append(cfg.Env, name+"="+ch.Env[name])
	}
	if cfg.Labels == nil && len(ch.Labels) > 0 {
		cfg.Labels = make(map[string]string)
	}
	maps.Copy(cfg.Labels, ch.Labels)
	set := func(to *string, v string) {
		if v != "" {
			*to = v
		}
	}
	set(&cfg.User, ch.User)
	set(&cfg.WorkingDir, ch.WorkingDir)
	set(&cfg.StopSignal, ch.StopSignal)
	if ch.Entrypoint != nil {
		cfg.Entrypoint, cfg.Cmd = ch.Entrypoint, nil // its arguments were another program's
	}
	if ch.Cmd != nil {
		cfg.Cmd = ch.Cmd
	}
	cfg.ExposedPorts = addTo(cfg.ExposedPorts, ch.ExposedPorts)
	cfg.Volumes = addTo(cfg.Volumes, ch.Volumes)
}

func addTo(set map[string]struct{}, names []string) map[string]struct{} {
	for _, n := range names {
		if set == nil {
			set = make(map[string]struct{})
		}
		set[n] = struct{}{}
	}
	return set
}

// remote describes the image as if it had been pulled: with a manifest of these
// layers, whose digests are those that it would have in a registry.
func (c *ownConfig) remote(named reference.Named, layers []types.BlobInfo) (*remote, error) {
	r, err := c.local(named)
	if err != nil {
		return nil, err
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: r.id,
			Size: int64(len(r.rawConfig))},
	}
	for _, l := range layers {
		m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the manifest: %w", err)
	}
	r.digest, r.layers = digest.FromBytes(data), layers
	return r, nil
}

// local describes the image without a manifest: how large its layers are in a registry
// is known when they are packed.
func (c *ownConfig) local(named reference.Named) (*remote, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	parsed, err := parseConfig(raw)
	if err != nil {
		return nil, err
	}
	return &remote{named: named, local: true, id: digest.FromBytes(raw), config: parsed, rawConfig: raw}, nil
}

// layerType is the media type of a layer that starts with these bytes.
func layerType(first []byte) string {
	switch kind, _ := compression(first); kind {
	case "gzip":
		return ocispec.MediaTypeImageLayerGzip
	case "zstd":
		return ocispec.MediaTypeImageLayerZstd
	}
	return ocispec.MediaTypeImageLayer
}
