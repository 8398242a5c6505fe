package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"go.podman.io/image/v5/docker/reference"

	"github.com/hutch-sh/hutch/runtime/api"
)

// PullPolicy says when Pull asks the registry.
type PullPolicy string

// The policies; empty means PullMissing.
const (
	PullAlways  PullPolicy = "always"
	PullMissing PullPolicy = "missing"
	PullNever   PullPolicy = "never"
)

// PullOptions of one Pull.
type PullOptions struct {
	// Platform is "os/arch[/variant]"; empty means this machine's.
	Platform string
	// Policy says when the registry is asked.
	Policy PullPolicy
	// Progress, if not nil, is called for every layer, never by two goroutines
	// at once and at most ten times a second for each layer. It must not block.
	Progress func(Progress)
}

// Pull makes an image available: from the store when the policy and the
// platform allow, else from its registry. When it returns an image, every
// layer of it was verified against its digests and is on disk; until then no
// part of it is visible. It can be interrupted by ctx or by a crash at any
// point and be called again. References are normalised as by
// parseRef, aliases of registries.conf apart.
func (s *Store) Pull(ctx context.Context, ref string, o PullOptions) (*Image, error) {
	named, want, err := s.checkPull(ref, o)
	if err != nil {
		return nil, err
	}
	name := named.String()
	release, err := s.pulls.acquire(ctx, name)
	if err != nil {
		return nil, pullError(err, name, s.dir)
	}
	defer release()
	if o.Policy != PullAlways {
		img, err := s.stored(name, want)
		if img != nil || err != nil || o.Policy == PullNever {
			return img, missing(img, err, name)
		}
	}
	img, err := s.pull(ctx, named, want, newReporter(o.Progress))
	if err != nil {
		return nil, pullError(err, name, s.dir)
	}
	return img, nil
}

func (s *Store) checkPull(ref string, o PullOptions) (reference.Named, platform, error) {
	if ref == HostRef {
		return nil, platform{}, api.Errorf(api.InvalidArgument, "the image %q is built in and cannot be pulled",
			HostRef).
			WithHint("Use it as it is; an image of that name in Docker Hub is docker.io/library/%s.", HostRef).
			WithField("image")
	}
	switch o.Policy {
	case "", PullAlways, PullMissing, PullNever:
	default:
		return nil, platform{}, api.Errorf(api.InvalidArgument, "pull policy %q", o.Policy).
			WithHint("It is one of always, missing and never.").WithField("pull")
	}
	named, err := s.registries.Parse(ref)
	if err != nil {
		return nil, platform{}, err
	}
	want, err := parsePlatform(o.Platform)
	return named, want, err
}

// stored finds an image in the store; nil without an error when it is not
// there or is for another platform.
func (s *Store) stored(name string, want platform) (*Image, error) {
	img, err := s.Get(name)
	if api.ErrorCode(err) == api.NotFound && err != nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	have, err := parsePlatform(img.Platform)
	if err != nil || !want.accepts(have) {
		return nil, nil
	}
	return img, nil
}

// missing is the error of a pull that may not ask the registry.
func missing(img *Image, err error, name string) error {
	if img != nil || err != nil {
		return err
	}
	return api.Errorf(api.NotFound, "image %s is not in the store and the policy is %q", name, PullNever).
		WithHint("hutch image pull %s", name)
}

// pull fetches an image and writes its reference.
func (s *Store) pull(ctx context.Context, named reference.Named, want platform, rep *reporter) (*Image, error) {
	start := time.Now()
	r, err := s.openRemote(ctx, named, want)
	if err != nil {
		return nil, err
	}
	defer r.close()
	img, err := s.fetch(ctx, r, rep)
	if err != nil {
		return nil, err
	}
	s.log.Debug("pulled", "ref", img.Ref, "digest", img.Digest, "layers", len(img.Layers), "dur_ms", time.Since(start).
		Milliseconds())
	return img, nil
}

// fetch brings the layers of an image into the store and names it.
func (s *Store) fetch(ctx context.Context, r *remote, rep *reporter) (*Image, error) {
	layers, fetched, err := s.fetchLayers(ctx, r, rep)
	// The layers stay leased until the reference names them, so that no
	// collector of any process takes them away in between.
	defer release(layers)
	if err != nil {
		return nil, err
	}
	return s.name(ctx, r, layers, fetched)
}

func release(layers []*layer) {
	for _, l := range layers {
		l.lease.Release()
	}
}

// name writes the reference of an image whose layers are in the store and leased;
// fetched says that some are new.
func (s *Store) name(ctx context.Context, r *remote, layers []*layer, fetched bool) (*Image, error) {
	rec, used := r.record(layers)
	fix, err := s.fixLayer(ctx, rec.DiffIDs, used)
	if err != nil {
		return nil, fmt.Errorf("repair folders: %w", err)
	}
	if fix != nil {
		defer fix.lease.Release()
		rec.Fixed, fetched = true, fetched || fix.fetched
	}
	if fetched {
		// Once for all layers, before anything refers to them: after a power
		// cut a renamed folder could otherwise hold empty files.
		if err := s.sync(); err != nil {
			return nil, err
		}
	}
	if err := s.writeRef(rec); err != nil {
		return nil, err
	}
	return s.readRef(refFile(rec.Ref))
}

// record makes the record of a pulled image, and says which layers it uses.
func (r *remote) record(layers []*layer) (rec record, used []*layer) {
	rec.Image = Image{
		Ref: r.named.String(), Digest: r.digest.String(), ID: r.id.String(),
		Platform: r.config.platform().String(), Created: r.config.created(), Pulled: time.Now().UTC(),
		Config: r.config.config(),
	}
	rec.RawConfig = r.rawConfig
	if r.local {
		rec.Origin = originLocal
	}
	for i, l := range layers {
		if l.meta.RootOpaque {
			// It hides all lower layers, and overlayfs does not see the mark.
			rec.DiffIDs, rec.SizeBytes, used = nil, 0, nil
		}
		diffID := r.config.RootFS.DiffIDs[i]
		if at := slices.Index(rec.DiffIDs, diffID); at >= 0 {
			// overlayfs refuses (ELOOP) the same folder twice, and builders
			// emit the same empty layer for every step without effect. Of equal
			// layers the top-most alone gives the same view: it holds all that
			// the others hold.
			rec.DiffIDs, used = slices.Delete(rec.DiffIDs, at, at+1), slices.Delete(used, at, at+1)
			rec.SizeBytes -= l.meta.SizeBytes
		}
		rec.DiffIDs, used = append(rec.DiffIDs, diffID), append(used, l)
		rec.SizeBytes += l.meta.SizeBytes
	}
	return rec, used
}

// fetchLayers brings all layers into the store, some at a time, and leases
// them. Layers that were obtained before an error are in the result too.
func (s *Store) fetchLayers(ctx context.Context, r *remote, rep *reporter) (got []*layer, fetched bool, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.ParallelLayers)
	all := make([]*layer, len(r.layers))
	for _, l := range r.layers { // all at once, so that the sum is known
		rep.report(Progress{Layer: l.Digest.String(), Phase: PhaseWaiting, Total: l.Size})
	}
	for i := range r.layers {
		g.Go(func() error {
			l, err := s.fetchLayer(ctx, r, i, rep)
			if err != nil {
				return fmt.Errorf("layer %s: %w", r.layers[i].Digest, err)
			}
			all[i] = l
			return nil
		})
	}
	err = g.Wait()
	for _, l := range all {
		if l != nil {
			got = append(got, l)
			fetched = fetched || l.fetched
		}
	}
	return got, fetched, err
}

// sync writes everything that was unpacked to the disk.
func (s *folder) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(d.Fd()))
	if err != nil {
		err = fmt.Errorf("syncfs %s: %w", s.dir, err)
	}
	return errors.Join(err, d.Close())
}

// reportEvery is the least time between two reports of bytes of one layer.
const reportEvery = 100 * time.Millisecond

// reporter passes reports on, one at a time.
type reporter struct {
	mu   sync.Mutex
	fn   func(Progress) // may be nil
	last map[string]time.Time
}

func newReporter(fn func(Progress)) *reporter {
	return &reporter{fn: fn, last: make(map[string]time.Time)}
}

func (r *reporter) report(p Progress) {
	if r.fn == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Phase != PhaseDone && p.Done > 0 && p.Done != p.Total {
		if time.Since(r.last[p.Layer]) < reportEvery {
			return
		}
	}
	r.last[p.Layer] = time.Now()
	r.fn(p)
}
