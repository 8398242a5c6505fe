package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/runtime/api"
)

// pushTries is how often a part of an image is sent when the registry is busy or fails, or
// the connection breaks.
const pushTries = blobTries

// Push sends an image to a registry, under its own name or, unless that is "", as target.
// Layers that the registry has are not sent.
func (s *Store) Push(ctx context.Context, ref, target string, progress func(Progress)) (api.Pushed, error) {
	if ref == HostRef {
		return api.Pushed{},
			api.Errorf(api.FailedPrecondition, "the image %q is this machine's own programs, which are in no layer",
				HostRef).
				WithOp("push").WithHint("Push another image.").WithField("ref")
	}
	img, err := s.Get(ref)
	if err != nil {
		return api.Pushed{}, err
	}
	if target == "" {
		target = img.Ref
	}
	named, err := s.parseName(target)
	if err != nil {
		return api.Pushed{}, err
	}
	lease, err := s.Lease(img.Layers)
	if err != nil {
		return api.Pushed{}, err
	}
	defer lease.Release()
	r, err := s.push(ctx, img, named, newReporter(progress))
	if err != nil {
		return api.Pushed{}, pushError(ctx, err, "push "+named.String(), s.dir)
	}
	return r, nil
}

func (s *Store) push(ctx context.Context, img *Image, named reference.Named, rep *reporter) (api.Pushed, error) {
	rec, err := s.readRecord(img.Ref)
	if err != nil {
		return api.Pushed{}, err
	}
	want, err := parsePlatform(img.Platform)
	if err != nil {
		return api.Pushed{}, err
	}
	sys, err := s.systemContext(named, want)
	if err != nil {
		return api.Pushed{}, err
	}
	if err := s.registries.Authenticate(ctx, sys, named); err != nil {
		return api.Pushed{}, err
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		return api.Pushed{}, err
	}
	dest, err := ref.NewImageDestination(ctx, sys)
	if err != nil {
		return api.Pushed{}, err
	}
	defer dest.Close()
	p := &pusher{s: s, dest: dest, rep: rep}
	return p.image(ctx, &rec, named)
}

// pusher sends one image.
type pusher struct {
	s    *Store
	dest types.ImageDestination
	rep  *reporter
	met  bool // the registry has answered
}

func (p *pusher) image(ctx context.Context, rec *record, named reference.Named) (api.Pushed, error) {
	t, err := p.s.newTmp()
	if err != nil {
		return api.Pushed{}, err
	}
	defer t.discard()
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	var ids []digest.Digest
	for _, d := range rec.DiffIDs { // all at once, so that the sum is known
		p.rep.report(Progress{Layer: d, Phase: PhaseWaiting, Total: -1})
	}
	for _, d := range rec.DiffIDs {
		blob, id, err := p.layer(ctx, t, d)
		if err != nil {
			return api.Pushed{}, fmt.Errorf("layer %s: %w", d, err)
		}
		m.Layers, ids = append(m.Layers, blob), append(ids, id)
	}
	config, err := exportedConfig(rec, ids)
	if err != nil {
		return api.Pushed{}, err
	}
	m.Config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(config),
		Size: int64(len(config))}
	if err := p.small(ctx, t, m.Config, config); err != nil {
		return api.Pushed{}, fmt.Errorf("configuration: %w", err)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return api.Pushed{}, err
	}
	// The manifest comes last: without it the registry shows nothing.
	err = p.again(ctx, func() error { return p.dest.PutManifest(ctx, data, nil) })
	if err != nil {
		return api.Pushed{}, fmt.Errorf("manifest: %w", err)
	}
	r := api.Pushed{Ref: named.String(), Digest: digest.FromBytes(data).String(), ID: m.Config.Digest.String()}
	for _, l := range m.Layers {
		r.Layers = append(r.Layers, l.Digest.String())
	}
	return r, nil
}

// layer packs, compresses and sends a layer. It returns its blob and its diffID, which is
// another one than the store's where another program had packed it.
func (p *pusher) layer(ctx context.Context, t *tmp, diffID string) (blob ocispec.Descriptor, id digest.Digest,
	err error) {
	f, err := spoolFile(t)
	if err != nil {
		return blob, "", err
	}
	defer f.Close()
	plain, packed := digest.Canonical.Digester(), digest.Canonical.Digester()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, packed.Hash()), gzip.BestSpeed)
	if err != nil {
		return blob, "", err
	}
	told := &progressWriter{rep: p.rep, p: Progress{Layer: diffID, Phase: PhasePacking, Total: -1}}
	if err := errors.Join(p.s.packLayerTo(ctx, io.MultiWriter(z, plain.Hash(), told), diffID), z.Close()); err != nil {
		return blob, "", err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return blob, "", err
	}
	blob = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: packed.Digest(), Size: size}
	return blob, plain.Digest(), p.blob(ctx, f, blob, Progress{Layer: diffID, Phase: PhasePushing, Total: size})
}

// small sends the configuration.
func (p *pusher) small(ctx context.Context, t *tmp, d ocispec.Descriptor, data []byte) error {
	f, err := spoolFile(t)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return p.blob(ctx, f, d, Progress{})
}

// blob sends what the file holds, unless the registry has it. report says what to tell.
func (p *pusher) blob(ctx context.Context, f *os.File, d ocispec.Descriptor, report Progress) error {
	info := types.BlobInfo{Digest: d.Digest, Size: d.Size, MediaType: d.MediaType}
	tell := func(phase Phase) {
		if report.Layer != "" {
			p.rep.report(Progress{Layer: report.Layer, Phase: phase, Done: d.Size, Total: d.Size})
		}
	}
	return p.again(ctx, func() error {
		there, _, err := p.dest.TryReusingBlob(ctx, info, none.NoCache, false)
		if err != nil {
			return err
		}
		p.met = true
		if there {
			tell(PhasePresent)
			return nil
		}
		sending, cancel := context.WithCancelCause(ctx)
		defer cancel(registry.ErrEnded)
		guard := registry.GiveUp(p.s.opts.Stall, cancel, "the registry has taken nothing for %s")
		defer guard.Stop()
		var r io.Reader = guard.Watch(io.NopCloser(io.NewSectionReader(f, 0, d.Size)))
		if report.Layer != "" {
			r = &progressReader{r: r, rep: p.rep, p: report}
		}
		sent, err := p.dest.PutBlob(sending, r, info, none.NoCache, report.Layer == "")
		if err != nil {
			return registry.Stalled(sending, err)
		}
		if sent.Digest != d.Digest || sent.Size != d.Size {
			return fmt.Errorf("%w: the registry took %s of %d bytes, not %s of %d", errDigest, sent.Digest, sent.Size,
				d.Digest, d.Size)
		}
		tell(PhaseDone)
		return nil
	})
}

// again does what a registry may refuse for a moment, and what a connection that broke may
// have left undone. The library sends a blob over one connection and does not tell where
// another could go on, so it begins anew. Who has not answered yet may not be there.
func (p *pusher) again(ctx context.Context, do func() error) (err error) {
	for n := range pushTries {
		if err := waitBefore(ctx, n); err != nil {
			return err
		}
		err = do()
		passing := busy(err) || p.met && broken(err)
		if err == nil || ctx.Err() != nil || !passing {
			break
		}
	}
	return err
}

// spoolFile makes a file without a name.
func spoolFile(t *tmp) (*os.File, error) {
	const name = "spool"
	fd, err := unix.Openat(t.fd(), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep a layer: %w", err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(t.path, name))
	if err := unix.Unlinkat(t.fd(), name, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// pushError gives an error of a push its code and hint, once, at the boundary.
func pushError(ctx context.Context, err error, op, dir string) error {
	var e *api.Error
	switch status := registry.StatusOf(err); {
	case ctx.Err() != nil:
		return api.Errorf(api.Canceled, "%w", context.Cause(ctx)).WithOp(op).
			WithHint("Push again: layers that were sent are there.")
	case errors.As(err, &e):
	case errors.Is(err, errDigest):
		return api.Errorf(api.Unavailable, "%w", err).WithOp(op).
			WithHint("Push again; if it stays, the registry or a proxy in between is broken.")
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return api.Errorf(api.PermissionDenied, "the registry does not let you push: %w", err).WithOp(op).
			WithHint("Log in (hutch login), and check that you may write there.")
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return api.Errorf(api.FailedPrecondition, "the registry takes no such image: %w", err).WithOp(op).
			WithHint("Check the name; a mirror or a cache of another registry takes none.")
	}
	return remoteError(err, op, dir)
}
