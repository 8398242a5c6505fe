package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/runtime/api"
)

// CommitOptions of one Commit.
type CommitOptions struct {
	// Folders are the absolute paths of what was written over the image, top-most first: upper folders of
	// overlays, in which nothing is mounted. They may be hostile and should stand still. Each becomes a layer.
	Folders []string
	Pack    unpack.PackOptions // MaxEntries and SingleUID are the store's
	// Base is the image below: its name when it was used, its configuration and the
	// folders of Rootfs.Lower, which the caller has leased.
	Base   Base
	Change *api.ConfigChanges
	// Author and Message go to the image's history.
	Author, Message string
	// Progress, if not nil, is called as PullOptions.Progress is, for the layer NewLayer.
	Progress func(Progress)
}

// NewLayer is what Progress calls the layer that a commit makes: its digest is known in
// the end.
const NewLayer = "new"

// Base is an image as a sandbox uses it, which its name may not mean any more.
type Base struct {
	Ref    string
	Config Config
	Lower  []string
}

// Commit makes an image of another one and what was written over it: one more layer, and
// a configuration with changes. It returns how many files no layer can hold, too, and names
// some.
func (s *Store) Commit(ctx context.Context, ref string, o CommitOptions) (*Image, unpack.PackStats, error) {
	op := "commit to " + ref
	named, _, err := s.checkImport(ref, ImportOptions{Format: api.FormatRootfs})
	if err != nil {
		return nil, unpack.PackStats{}, err
	}
	release, err := s.pulls.acquire(ctx, named.String())
	if err != nil {
		return nil, unpack.PackStats{}, importError(ctx, err, op, s.dir)
	}
	defer release()
	img, stats, err := s.commit(ctx, named, o)
	if err != nil {
		if errors.Is(err, unpack.ErrChanged) {
			err = api.Errorf(api.Unavailable, "%w", err).
				WithHint("Try again; a sandbox that is stopped changes nothing.")
		}
		return nil, stats, importError(ctx, err, op, s.dir)
	}
	return img, stats, nil
}

func (s *Store) commit(ctx context.Context, named reference.Named, o CommitOptions) (*Image, unpack.PackStats, error) {
	var stats unpack.PackStats
	config, err := s.configOver(o.Base)
	if err != nil {
		return nil, stats, err
	}
	if n := len(config.RootFS.DiffIDs); n+len(o.Folders) > maxLayers {
		return nil, stats, api.Errorf(api.InvalidArgument, "the image has %d layers, and overlayfs takes no more", n).
			WithHint("Export it and import that: one layer remains.")
	}
	var layers []*layer
	fetched := false // or of an image that was removed while the sandbox ran
	defer func() { release(layers) }()
	for _, d := range config.RootFS.DiffIDs {
		l, err := s.holdLayer(ctx, d.String())
		if api.ErrorCode(err) == api.NotFound {
			err = api.Errorf(api.NotFound, "layer %s of the image below is gone", d).
				WithHint("hutch image pull %s", o.Base.Ref)
		}
		if err != nil {
			return nil, stats, err
		}
		layers, fetched = append(layers, l), fetched || l.fetched
	}
	now := time.Now().UTC().Truncate(time.Second)
	config.Created = &now
	for _, folder := range slices.Backward(o.Folders) {
		top, diffID, packed, err := s.packLayer(ctx, folder, o)
		stats.Nodes += packed.Nodes
		stats.Names = append(stats.Names, packed.Names...)
		if err != nil {
			return nil, stats, err
		}
		history := ocispec.History{Created: config.Created, CreatedBy: "hutch commit", Author: o.Author,
			Comment: o.Message, EmptyLayer: top == nil}
		if top != nil {
			layers, fetched = append(layers, top), fetched || top.fetched
			config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, diffID)
		}
		config.History = append(config.History, history)
	}
	config.Author = o.Author
	config.apply(o.Change)
	r, err := config.local(named)
	if err != nil {
		return nil, stats, err
	}
	img, err := s.name(ctx, r, layers, fetched)
	return img, stats, err
}

// packLayer makes a layer of a folder: one worker packs it and another one unpacks that,
// so that what was checked of the layers of others is checked of this one, too. It is nil
// when nothing is in it.
func (s *Store) packLayer(ctx context.Context, folder string, o CommitOptions) (l *layer, diffID digest.Digest,
	stats unpack.PackStats, err error) {
	t, work, err := s.newUnit()
	if err != nil {
		return nil, "", stats, err
	}
	defer t.discard()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", stats, err
	}
	defer r.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(registry.ErrEnded)
	o.Pack.SingleUID, o.Pack.MaxEntries = s.opts.SingleUID, s.opts.Limits.MaxEntries
	packed := make(chan error, 1)
	go func() {
		var err error
		stats, err = unpack.PackInWorker(ctx, w, unpack.PackRequest{Root: folder, Options: o.Pack})
		packed <- errors.Join(err, w.Close())
	}()
	stop := func() { _ = r.SetReadDeadline(time.Unix(1, 0)) }
	told := &progressReader{r: r, rep: newReporter(o.Progress), p: Progress{Layer: NewLayer, Phase: PhasePacking,
		Total: -1}}
	res, err := s.unpack(ctx, told, stop, work, digest.Canonical, s.opts.Limits)
	if err != nil {
		cancel(err) // it has nobody to write to
	}
	// A stream that was cut short can look whole to who reads it.
	if perr := <-packed; perr != nil && (err == nil || !errors.Is(perr, err)) {
		err = perr
	}
	if err != nil || res.Stats.Entries == 0 {
		return nil, "", stats, err
	}
	defer func() {
		if err == nil {
			told.rep.report(Progress{Layer: NewLayer, Phase: PhaseDone, Done: told.p.Done, Total: told.p.Done})
		}
	}()
	name := s.layerUnit(res.DiffID.String())
	unlock, err := s.lockUnit(ctx, name)
	if err != nil {
		return nil, "", stats, err
	}
	defer unlock()
	if l, err = s.leaseLayer(name); l == nil && err == nil {
		l, err = s.commitLayer(work, name, res.Stats)
	}
	return l, res.DiffID, stats, err
}

// configOver is the configuration of an image in use, with the layers that are in use:
// what Config leaves out is known where the store has an image of the same layers and
// configuration.
func (s *Store) configOver(b Base) (*ownConfig, error) {
	diffIDs, err := diffIDsOf(b.Lower)
	if err != nil {
		return nil, err
	}
	rec, err := s.recordLike(b, diffIDs)
	if err != nil {
		return nil, err
	}
	want, err := parsePlatform("")
	if err != nil {
		return nil, err
	}
	c := newConfig(want, time.Now())
	if rec == nil || len(rec.RawConfig) == 0 {
		c.Config = ociConfig(b.Config)
	} else if err := json.Unmarshal(rec.RawConfig, &c.Image); err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", rec.Ref, err)
	}
	// Those that the image has more lie below an opaque root, or are there twice (record).
	if !slices.Equal(stringsOf(c.RootFS.DiffIDs), diffIDs) {
		c.History = nil
		for range diffIDs {
			c.History = append(c.History, ocispec.History{CreatedBy: b.Ref})
		}
	}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", nil
	for _, d := range diffIDs {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.Digest(d))
	}
	return c, nil
}

func stringsOf(ids []digest.Digest) []string {
	list := make([]string, 0, len(ids))
	for _, d := range ids {
		list = append(list, d.String())
	}
	return list
}

// diffIDsOf are the diffIDs of folders of Rootfs.Lower, lowest first, without those that
// fixLayer made.
func diffIDsOf(lower []string) ([]string, error) {
	var ids []string
	for _, folder := range slices.Backward(lower) {
		dir, name := path.Split(unit(folder))
		name = strings.TrimSuffix(name, singleSuffix)
		if strings.HasPrefix(name, "fix-") {
			continue
		}
		id := strings.Replace(name, "-", ":", 1)
		if dir != layersDir+"/" || checkDigest(id) != nil {
			return nil, api.Errorf(api.FailedPrecondition, "the image below is not made of layers: %s is the host's",
				folder).
				WithHint("Use the host image for what need not be kept, or make the sandbox of another image.")
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// recordLike finds an image with these layers and this configuration, best one of the
// same name; nil when there is none.
func (s *Store) recordLike(b Base, diffIDs []string) (*record, error) {
	entries, err := os.ReadDir(s.path(refsDir))
	if err != nil {
		return nil, err
	}
	var found *record
	for _, e := range entries {
		data, err := os.ReadFile(s.path(path.Join(refsDir, e.Name())))
		if err != nil {
			continue // removed meanwhile
		}
		rec, err := decodeStored(data)
		if err != nil || !slices.Equal(rec.DiffIDs, diffIDs) || !sameConfig(rec.Config, b.Config) {
			continue
		}
		if found == nil || rec.Ref == b.Ref {
			found = &rec
		}
	}
	return found, nil
}

// sameConfig minds no difference between what is empty and what is not there.
func sameConfig(a, b Config) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// ociConfig is the configuration in the words of the specification.
func ociConfig(c Config) ocispec.ImageConfig {
	return ocispec.ImageConfig{
		User: c.User, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd, WorkingDir: c.WorkingDir, Labels: c.Labels,
		StopSignal: c.StopSignal, Volumes: addTo(nil, c.Volumes), ExposedPorts: addTo(nil, c.ExposedPorts),
	}
}
