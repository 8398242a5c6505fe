package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/runtime/api"
)

// remote is an image in a registry or an archive, resolved to one platform and allowed by
// the signature policy.
type remote struct {
	src    types.ImageSource
	named  reference.Named
	digest digest.Digest // of what the reference stands for
	id     digest.Digest // of the configuration
	config *imageConfig
	layers []types.BlobInfo
	// rawConfig is what config was parsed from.
	rawConfig []byte
	// local says that no registry has it.
	local bool
	// reading is the phase in which a layer's bytes come.
	reading Phase
}

func (r *remote) close() { _ = r.src.Close() }

// openRemote fetches manifests and configuration. The caller must close the
// result.
func (s *Store) openRemote(ctx context.Context, named reference.Named, want platform) (*remote, error) {
	sys, err := s.systemContext(named, want)
	if err != nil {
		return nil, err
	}
	if err := s.registries.Authenticate(ctx, sys, named); err != nil {
		return nil, err
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		return nil, err
	}
	// A registry that says nothing, or that it is busy, holds nobody for ever. What is
	// read here is small; the source outlives the context, as its calls have their own.
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(registry.ErrEnded)
	defer registry.GiveUp(s.opts.Stall, cancel, "the registry has given no manifest within %s: it hangs, or asks to slow down").
		Stop()
	for n := range manifestTries {
		if err := waitBefore(asking, n); err != nil {
			return nil, registry.Stalled(asking, err)
		}
		r := &remote{named: named, reading: PhaseDownloading}
		if err = r.ask(asking, ref, sys, want); err == nil {
			return r, nil
		}
		if !busy(err) || asking.Err() != nil {
			break
		}
	}
	return nil, registry.Stalled(asking, err)
}

// systemContext is how containers/image is to treat an image, of a platform.
func (s *Store) systemContext(named reference.Named, want platform) (*types.SystemContext, error) {
	sys, err := s.registries.System(reference.Domain(named), named.Name())
	if err != nil {
		return nil, err
	}
	sys.OSChoice, sys.ArchitectureChoice, sys.VariantChoice = want.OS, want.Arch, want.Variant
	return sys, nil
}

// ask opens the source and resolves the reference. The source is closed when it fails.
func (r *remote) ask(ctx context.Context, ref types.ImageReference, sys *types.SystemContext, want platform) error {
	src, err := ref.NewImageSource(ctx, sys)
	if err != nil {
		if strings.Contains(err.Error(), "maximum allowed size") { // the library's 4 MiB, as text only
			err = fmt.Errorf("%w: %w", errManifest, err)
		}
		return err
	}
	r.src = src
	if err := r.resolve(ctx, sys, want); err != nil {
		r.close()
		return err
	}
	return nil
}

// resolve follows the manifest to one image.
func (r *remote) resolve(ctx context.Context, sys *types.SystemContext, want platform) error {
	err := r.follow(ctx, sys, want)
	var e *api.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%w: %w", errManifest, err)
}

func (r *remote) follow(ctx context.Context, sys *types.SystemContext, want platform) error {
	top := image.UnparsedInstance(r.src, nil)
	raw, mimeType, err := top.Manifest(ctx)
	if err != nil {
		return err
	}
	if r.digest, err = manifest.Digest(raw); err != nil {
		return err
	}
	chosen := top
	if manifest.MIMETypeIsMultiImage(mimeType) {
		instance, err := choose(raw, mimeType, sys, r.named.String(), want)
		if err != nil {
			return err
		}
		chosen = image.UnparsedInstance(r.src, &instance)
	}
	if err := registry.CheckPolicy(ctx, sys, chosen); err != nil {
		return err
	}
	return r.parse(ctx, sys, chosen, want)
}

// choose picks the instance for a platform from a list of manifests.
func choose(raw []byte, mimeType string, sys *types.SystemContext, ref string, want platform) (digest.Digest, error) {
	list, err := manifest.ListFromBlob(raw, mimeType)
	if err != nil {
		return "", fmt.Errorf("list of manifests: %w", err)
	}
	instance, err := list.ChooseInstance(sys)
	if err == nil || want.Variant != "" {
		return instance, orWrongPlatform(err, ref, want, raw)
	}
	for _, v := range variantsOf(want.Arch) {
		one := *sys
		one.VariantChoice = v
		if instance, err = list.ChooseInstance(&one); err == nil {
			return instance, nil
		}
	}
	return "", orWrongPlatform(err, ref, want, raw)
}

func orWrongPlatform(err error, ref string, want platform, list []byte) error {
	if err == nil {
		return nil
	}
	return wrongPlatform(ref, want, platformsOf(list))
}

// platformsOf lists the platforms of a manifest list or image index.
func platformsOf(raw []byte) []string {
	var list struct {
		Manifests []struct {
			Platform struct {
				OS           string `json:"os"`
				Architecture string `json:"architecture"`
				Variant      string `json:"variant"`
			} `json:"platform"`
		} `json:"manifests"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var all []string
	for _, m := range list.Manifests {
		p := platform{m.Platform.OS, m.Platform.Architecture, m.Platform.Variant}
		if p.OS != "unknown" && p.OS != "" { // attestations are "unknown/unknown"
			all = append(all, p.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// parse reads the configuration and the list of layers of one image.
func (r *remote) parse(ctx context.Context, sys *types.SystemContext, unparsed *image.UnparsedImage,
	want platform) error {
	_, mimeType, err := unparsed.Manifest(ctx)
	if err != nil {
		return err
	}
	switch mimeType {
	case manifest.DockerV2Schema1MediaType, manifest.DockerV2Schema1SignedMediaType:
		return api.Errorf(api.Unimplemented, "%s has a Docker schema 1 manifest, which names no layer contents",
			r.named).
			WithHint("Push the image again with a current tool.")
	}
	img, err := image.FromUnparsedImage(ctx, sys, unparsed)
	if err != nil {
		return err
	}
	blob, err := img.ConfigBlob(ctx)
	if err != nil {
		return err
	}
	if r.config, err = parseConfig(blob); err != nil {
		return err
	}
	r.rawConfig = blob
	r.id = img.ConfigInfo().Digest
	if have := r.config.platform(); !want.accepts(have) {
		return wrongPlatform(r.named.String(), want, []string{have.String()})
	}
	return r.setLayers(img.LayerInfos())
}

// maxLayers is what overlayfs stacks (OVL_MAX_STACK, fs/overlayfs/params.c),
// less the layer that fixLayer may add.
const maxLayers = 499

// setLayers pairs the layers of the manifest with those of the configuration.
func (r *remote) setLayers(infos []types.BlobInfo) error {
	for _, l := range infos {
		if err := checkDigest(l.Digest.String()); err != nil {
			return fmt.Errorf("manifest: layer: %w", err)
		}
		// A manifest must not make this process fetch from places of its choice.
		if len(l.URLs) > 0 || strings.Contains(l.MediaType, "foreign") {
			return api.Errorf(api.Unimplemented,
				"layer %s of %s is a foreign one, to be fetched from elsewhere than its registry", l.Digest, r.named).
				WithHint("Such are layers of Windows, or of licences that forbid to pass them on: use an image without them.")
		}
		r.layers = append(r.layers, types.BlobInfo{Digest: l.Digest, Size: l.Size, MediaType: l.MediaType})
	}
	if n := len(r.layers); n > maxLayers {
		return api.Errorf(api.InvalidArgument, "the image has %d layers, overlayfs takes %d", n, maxLayers).
			WithHint("Build the image again with fewer layers.")
	}
	if n, m := len(r.layers), len(r.config.RootFS.DiffIDs); n != m {
		return api.Errorf(api.InvalidArgument, "the manifest of %s has %d layers, its configuration %d", r.named, n, m).
			WithHint("The image is damaged; push it again.")
	}
	return nil
}
