package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	_ "crypto/sha256" // digest algorithms of go-digest
	_ "crypto/sha512"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/runtime/api"
)

// layer is an unpacked layer in the store, leased.
type layer struct {
	meta    layerMeta
	lease   *Lease
	fetched bool // by this pull, or may not be on disk yet for another reason
}

// layerMeta is kept in a layer's unit, as layerFile.
type layerMeta struct {
	SizeBytes     int64              `json:"size_bytes"`
	Entries       int64              `json:"entries"`
	Devices       int                `json:"devices,omitempty"`        // device nodes left out
	Xattrs        int                `json:"xattrs,omitempty"`         // attributes left out
	OverlayXattrs int                `json:"overlay_xattrs,omitempty"` // attributes refused
	RootOpaque    bool               `json:"root_opaque,omitempty"`
	Implied       []string           `json:"implied,omitempty"`
	Hollow        []string           `json:"hollow,omitempty"`
	Links         []unpack.LowerLink `json:"links,omitempty"`
	Boot          string             `json:"boot,omitempty"` // of the machine, when the layer was committed
}

// fetchLayer brings layer i of an image into the store. Of all goroutines and
// processes that want it, one works and the others wait for it.
func (s *Store) fetchLayer(ctx context.Context, r *remote, i int, rep *reporter) (*layer, error) {
	diffID := r.config.RootFS.DiffIDs[i]
	name := s.layerUnit(diffID)
	unlock, err := s.lockUnit(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()

	blob := r.layers[i]
	l, err := s.leaseLayer(name)
	if err != nil {
		return nil, err
	}
	if l != nil {
		rep.report(Progress{Layer: blob.Digest.String(), Phase: PhasePresent, Done: blob.Size, Total: blob.Size})
		return l, nil
	}
	if l, err = s.download(ctx, r, blob, digest.Digest(diffID), rep); err != nil {
		return nil, err
	}
	rep.report(Progress{Layer: blob.Digest.String(), Phase: PhaseDone, Done: blob.Size, Total: blob.Size})
	return l, nil
}

// leaseLayer leases a layer that is in the store; nil when it is not. One that no image
// has may not be on disk yet: it counts as fetched, so that it is before an image has it.
// And when the machine was started anew since it was committed, it may never get there: it
// is as good as absent. The caller holds the unit's lock, or an image has the layer.
func (s *folder) leaseLayer(name string) (*layer, error) {
	l, known, err := s.leaseUnit(name)
	if l == nil || err != nil {
		return nil, err
	}
	marked, err := s.marked()
	if err != nil {
		l.lease.Release()
		return nil, err
	}
	l.fetched = !marked[name]
	if l.fetched && (known != nil || l.meta.Boot != bootID()) {
		l.lease.Release()
		if _, err := s.collect(name); err != nil {
			return nil, err
		}
		// One that somebody uses stays: it has been good for that.
		if l, known, err = s.leaseUnit(name); l == nil || err != nil {
			return nil, err
		}
		l.fetched = true
	}
	if known != nil {
		l.lease.Release()
		return nil, known
	}
	return l, nil
}

// holdLayer is leaseLayer for who holds no lock and may come when no image has the layer any
// more; not_found when it is gone.
func (s *Store) holdLayer(ctx context.Context, diffID string) (*layer, error) {
	name := s.layerUnit(diffID)
	unlock, err := s.lockUnit(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, err := s.leaseLayer(name)
	if err == nil && l == nil {
		err = api.Errorf(api.NotFound, "layer %s is gone", diffID)
	}
	return l, err
}

// leaseUnit leases a layer's unit; nil when it is not there. known is why what is known of
// it cannot be read.
func (s *folder) leaseUnit(name string) (l *layer, known, err error) {
	lease, err := s.Lease([]string{name})
	if err != nil {
		if api.ErrorCode(err) == api.NotFound {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	l = &layer{lease: lease}
	data, known := os.ReadFile(s.path(path.Join(name, layerFile)))
	if known == nil {
		known = json.Unmarshal(data, &l.meta)
	}
	if known != nil {
		known = fmt.Errorf("read what is known of %s: %w", name, known)
	}
	return l, known, nil
}

// bootID tells one start of the machine from another; "" where the kernel does not say.
var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// download fetches, verifies and unpacks one layer, and commits it.
func (s *Store) download(ctx context.Context, r *remote, blob types.BlobInfo, diffID digest.Digest,
	rep *reporter) (*layer, error) {
	t, work, err := s.newUnit()
	if err != nil {
		return nil, err
	}
	defer t.discard()
	stats, err := s.stream(ctx, r, blob, diffID, work, rep)
	if err != nil {
		return nil, err
	}
	return s.commitLayer(work, s.layerUnit(diffID.String()), stats)
}

// newUnit makes a temporary folder, which the caller must discard, and in it the
// folder work that becomes a unit.
func (s *folder) newUnit() (t *tmp, work string, err error) {
	if t, err = s.newTmp(); err != nil {
		return nil, "", err
	}
	work = filepath.Join(t.path, "layer")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Mkdir(filepath.Join(work, unitRoot), 0o700)); err != nil {
		t.discard()
		return nil, "", err
	}
	return t, work, nil
}

// stream is the one pass over a layer's bytes: received and digested here, decompressed by
// a worker process, digested again here and unpacked by another one into the unit work.
func (s *Store) stream(ctx context.Context, r *remote, blob types.BlobInfo, diffID digest.Digest, work string,
	rep *reporter) (unpack.Stats, error) {
	receiving, cancel := context.WithCancelCause(ctx)
	defer cancel(registry.ErrEnded)
	guard := registry.GuardStall(s.opts.Stall, cancel)
	defer guard.Stop()
	// The requested size is the manifest's, which is verified; the server's
	// header is not.
	var size int64
	rc, err := newBlobReader(receiving, r.local, func() (io.ReadCloser, error) {
		defer guard.Begin()()
		body, n, err := r.src.GetBlob(receiving, types.BlobInfo{Digest: blob.Digest, Size: blob.Size}, none.NoCache)
		if err != nil {
			return nil, err
		}
		size = n
		return guard.Watch(body), nil
	})
	if err != nil {
		return unpack.Stats{}, registry.Stalled(receiving, err)
	}
	defer rc.Close()
	if blob.Size >= 0 {
		size = blob.Size
	}
	received := newVerifier(io.LimitReader(&progressReader{r: rc, rep: rep, p: Progress{
		Layer: blob.Digest.String(), Phase: r.reading, Total: size,
	}}, limitOf(size)), blob.Digest)
	stop := func() { cancel(registry.ErrEnded) }
	res, err := s.unpack(ctx, received, stop, work, diffID.Algorithm(), s.opts.Limits.ForCompressed(size))
	if err != nil {
		return res.Stats, registry.Stalled(receiving, err)
	}
	if err := received.verify(); err != nil {
		return res.Stats, err
	}
	if res.DiffID != diffID {
		return res.Stats, fmt.Errorf("%w: unpacked it has %s, not %s", errDigest, res.DiffID, diffID)
	}
	return res.Stats, nil
}

// unpack makes a unit's files and their manifest in worker processes.
func (s *Store) unpack(ctx context.Context, blob io.Reader, stop func(), work string, alg digest.Algorithm,
	limits unpack.Limits) (unpack.Result, error) {
	manifest, attributes, err := createManifest(work)
	if err != nil {
		return unpack.Result{}, err
	}
	defer manifest.Close()
	defer attributes.Close()
	return unpack.InWorker(ctx, blob, stop, unpack.Request{
		Root: filepath.Join(work, unitRoot), Algorithm: alg, Manifest: manifest, Attributes: attributes,
		Workers: s.workers,
		Options: unpack.Options{Limits: limits, SingleUID: s.opts.SingleUID},
	})
}

// limitOf lets one byte more than promised through, which fails the digest.
func limitOf(size int64) int64 {
	if size < 0 {
		return 1<<63 - 1
	}
	return size + 1
}

// commitLayer makes a verified layer visible and leases it, in the opposite
// order: a collector of another process may see it as soon as it is visible,
// and nothing refers to it yet.
func (s *folder) commitLayer(work, name string, st unpack.Stats) (*layer, error) {
	if err := writeMeta(work, st); err != nil {
		return nil, err
	}
	dir, err := openDir(work)
	if err != nil {
		return nil, err
	}
	if err = flockNow(dir, unix.LOCK_SH); err == nil {
		err = os.Rename(work, s.path(name))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("commit %s: %w", name, err), dir.Close())
	}
	return &layer{meta: metaOf(st), lease: s.leases.adopt(name, dir), fetched: true}, nil
}

// stats are what the layers of an image are repaired by.
func (m *layerMeta) stats() unpack.Stats {
	return unpack.Stats{Implied: m.Implied, Hollow: m.Hollow, Links: m.Links}
}

func metaOf(st unpack.Stats) layerMeta {
	return layerMeta{
		SizeBytes: st.Bytes, Entries: st.Entries, Devices: st.Devices, Xattrs: st.Xattrs,
		OverlayXattrs: st.OverlayXattrs, RootOpaque: st.RootOpaque, Implied: st.Implied, Hollow: st.Hollow,
		Links: st.Links, Boot: bootID(),
	}
}

// writeMeta notes what is known of a layer in its unit.
func writeMeta(work string, st unpack.Stats) error {
	data, err := json.Marshal(metaOf(st))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(work, layerFile), data, 0o600)
}

// verifier digests what is read through it.
type verifier struct {
	r    io.Reader
	want digest.Digest
	sum  digest.Digester
	n    int64
	// first are the first few bytes, by which a compression is known.
	first []byte
}

func newVerifier(r io.Reader, want digest.Digest) *verifier {
	return &verifier{r: r, want: want, sum: want.Algorithm().Digester()}
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	_, _ = v.sum.Hash().Write(p[:n])
	if more := 8 - len(v.first); more > 0 {
		v.first = append(v.first, p[:min(n, more)]...)
	}
	v.n += int64(n)
	return n, err
}

// verify compares the digest, after the reader that used v has ended.
func (v *verifier) verify() error {
	if got := v.sum.Digest(); got != v.want {
		return fmt.Errorf("%w: the %d bytes received have %s, not %s", errDigest, v.n, got, v.want)
	}
	return nil
}

// errDigest marks content that is not what the manifest promised.
var errDigest = errors.New("wrong digest")

// progressWriter reports what is written to it.
type progressWriter struct {
	rep *reporter
	p   Progress
}

func (w *progressWriter) Write(p []byte) (int, error) {
	w.p.Done += int64(len(p))
	w.rep.report(w.p)
	return len(p), nil
}

// progressReader reports what is read through it.
type progressReader struct {
	r   io.Reader
	rep *reporter
	p   Progress
}

func (r *progressReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.p.Done += int64(n)
	r.rep.report(r.p)
	return n, err
}
