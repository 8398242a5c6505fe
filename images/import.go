package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/runtime/api"
)

// ImportOptions of one Import.
type ImportOptions struct {
	Format api.ImageFormat
	// Image chooses one of several images in an archive, by name or digest.
	Image string
	// Platform is "os/arch[/variant]"; empty means this machine's.
	Platform string
	// Changes to the configuration, of a root file system only.
	Changes *api.ConfigChanges
	// Progress is as in PullOptions.
	Progress func(Progress)
}

// Import makes an image of a file that the caller has open and keeps: an archive
// that holds images, or a tar stream of a root file system. The file is a regular
// one, or a pipe, which is read to its end. ref is what the image will be called;
// it may be empty when the archive gives it a name.
//
// Layers go the way of those of a pull: verified, unpacked by a confined worker,
// visible when all of them are there.
func (s *Store) Import(ctx context.Context, f *os.File, ref string, o ImportOptions) (*Image, error) {
	op := "import " + ref
	if ref == "" {
		op = "import an image"
	}
	named, want, err := s.checkImport(ref, o)
	if err != nil {
		return nil, err
	}
	in, err := openSource(ctx, f)
	if err != nil {
		return nil, importError(ctx, err, op, s.dir)
	}
	defer in.close()
	var img *Image
	if o.Format == api.FormatRootfs {
		img, err = s.importRootfs(ctx, in, named, want, o)
	} else {
		img, err = s.importArchive(ctx, in, named, want, o)
	}
	if err != nil {
		return nil, importError(ctx, err, op, s.dir)
	}
	return img, nil
}

func (s *Store) checkImport(ref string, o ImportOptions) (named reference.Named, want platform, err error) {
	switch {
	case ref == HostRef:
		return nil, want, api.Errorf(api.InvalidArgument, "the image %q is built in, and cannot be another", HostRef).
			WithHint("Choose another name.").WithField("ref")
	case ref == "" && o.Format == api.FormatRootfs:
		return nil, want, api.Errorf(api.InvalidArgument, "ref: a root file system has no name of its own").
			WithHint("Give the image a name.").WithField("ref")
	case ref != "":
		if named, err = s.parseName(ref); err != nil {
			return nil, want, err
		}
	}
	want, err = parsePlatform(o.Platform)
	return named, want, err
}

// parseName is parseRef for images that get a name.
func (s *Store) parseName(ref string) (reference.Named, error) {
	named, err := s.registries.Parse(ref)
	if err != nil {
		return nil, err
	}
	return noDigest(named, ref)
}

// noDigest refuses names with a digest, which is not chosen.
func noDigest(named reference.Named, ref string) (reference.Named, error) {
	if _, ok := named.(reference.Digested); ok {
		return nil, api.Errorf(api.InvalidArgument, "image reference %q: a digest is not chosen", ref).
			WithField("ref").WithHint("Give a name and a tag, such as tools:1.")
	}
	return named, nil
}

// importSource is what an import reads: a regular file, or a pipe.
type importSource struct {
	file *os.File // of the caller, or our own duplicate of a pipe
	size int64    // -1 for a pipe
	own  bool
	stop func() bool // of the watch on ctx

	spool *os.File // what came through a pipe, or nil
}

// openSource finds out what f is. A pipe becomes one whose reads end with ctx: its
// reading end is non-blocking from then on, for whoever else has it, too.
func openSource(ctx context.Context, f *os.File) (*importSource, error) {
	o, err := lookAt(f)
	if err != nil {
		return nil, fmt.Errorf("look at the file to import: %w", err)
	}
	s := &importSource{file: f, size: -1, stop: func() bool { return false }}
	switch {
	case o.st.Mode&unix.S_IFMT == unix.S_IFREG:
		s.size = o.st.Size
	case o.pipe != nil:
		s.file, s.own = o.pipe, true
		s.stop = context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	default:
		return nil, badSource("what is to be imported is neither a file nor a pipe")
	}
	if o.flags&unix.O_PATH != 0 || o.flags&unix.O_ACCMODE == unix.O_WRONLY {
		s.close()
		return nil, badSource("what is to be imported is not open for reading")
	}
	return s, nil
}

// opened is what a file of a caller is.
type opened struct {
	st    unix.Stat_t
	flags int
	// pipe is a duplicate, whose reads and writes can be ended, of a pipe or a socket; else
	// nil. It is the caller's of lookAt.
	pipe *os.File
}

// lookAt finds out what f is, and makes it non-blocking if it is a pipe.
func lookAt(f *os.File) (o opened, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return o, err
	}
	cerr := rc.Control(func(fd uintptr) {
		if err = unix.Fstat(int(fd), &o.st); err != nil {
			return
		}
		if o.flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil {
			return
		}
		if kind := o.st.Mode & unix.S_IFMT; kind == unix.S_IFIFO || kind == unix.S_IFSOCK {
			var dup int
			if err = unix.SetNonblock(int(fd), true); err == nil {
				dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			}
			if err == nil {
				o.pipe = os.NewFile(uintptr(dup), "pipe")
			}
		}
	})
	return o, errors.Join(cerr, err)
}

func badSource(what string) error {
	return api.Errorf(api.InvalidArgument, "%s", what).WithField("fd").
		WithHint("Open the archive for reading, or send it through a pipe; hutch image import does.")
}

func (s *importSource) close() {
	s.stop()
	if s.own {
		_ = s.file.Close()
	}
	if s.spool != nil {
		_ = s.spool.Close()
	}
}

// reader starts at the beginning of a file, wherever it was read before.
func (s *importSource) reader() io.Reader {
	if s.size < 0 {
		return s.file
	}
	return io.NewSectionReader(s.file, 0, s.size)
}

// seekable gives a source that can be read anywhere: what comes through a pipe is
// kept in t meanwhile.
func (s *importSource) seekable(t *tmp, limit int64) (io.ReaderAt, int64, error) {
	if s.size >= 0 {
		return s.file, s.size, nil
	}
	fd, err := unix.Openat(t.fd(), "spool", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("keep what comes through the pipe: %w", err)
	}
	s.spool = os.NewFile(uintptr(fd), filepath.Join(t.path, "spool"))
	n, err := io.Copy(s.spool, io.LimitReader(s.file, limit+1))
	if err != nil {
		return nil, 0, fmt.Errorf("keep what comes through the pipe: %w", err)
	}
	if n > limit {
		return nil, 0, fmt.Errorf("%w of %d bytes through a pipe", unpack.ErrLimit, limit)
	}
	return s.spool, n, nil
}

// importArchive imports an image of an archive.
func (s *Store) importArchive(ctx context.Context, in *importSource, named reference.Named, want platform,
	o ImportOptions) (*Image, error) {
	t, err := s.newTmp()
	if err != nil {
		return nil, err
	}
	defer t.discard()
	file, size, err := in.seekable(t, s.opts.Limits.MaxBytes)
	if err != nil {
		return nil, err
	}
	index, err := indexTar(ctx, file, size)
	if err != nil {
		return nil, err
	}
	open := openOCI
	if o.Format == api.FormatDockerArchive || o.Format == api.FormatArchive && index.has("manifest.json") {
		open = openDocker // what docker has written since 25 is both, and this knows the names
	}
	src, err := open(index, o.Image)
	if err != nil {
		return nil, err
	}
	if named == nil {
		if named, err = nameOf(src); err != nil {
			return nil, err
		}
	}
	release, err := s.pulls.acquire(ctx, named.String())
	if err != nil {
		return nil, err
	}
	defer release()
	sys, err := s.systemContext(named, want)
	if err != nil {
		return nil, err
	}
	r := &remote{src: src, named: named, local: true, reading: PhaseReading}
	if err := r.resolve(ctx, sys, want); err != nil {
		return nil, err
	}
	return s.fetch(ctx, r, newReporter(o.Progress))
}

// nameOf is the name that an archive gives its image.
func nameOf(src *fileSource) (reference.Named, error) {
	hint := "Give the image a name, after the archive's."
	if src.name == "" {
		return nil, api.Errorf(api.InvalidArgument, "ref: the archive gives the image no name").WithField("ref").
			WithHint("%s", hint)
	}
	named, err := registry.Parse(src.name) // no alias of this machine: who wrote it knew none
	if err == nil {
		named, err = noDigest(named, src.name)
	}
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "ref: the archive calls the image %q: %w", src.name, err).
			WithField("ref").WithHint("%s", hint)
	}
	return named, nil
}

// importRootfs makes an image of one layer, whose digests are what comes out of it.
func (s *Store) importRootfs(ctx context.Context, in *importSource, named reference.Named, want platform,
	o ImportOptions) (*Image, error) {
	release, err := s.pulls.acquire(ctx, named.String())
	if err != nil {
		return nil, err
	}
	defer release()
	rep := newReporter(o.Progress)
	blob, diffID, l, err := s.unpackRootfs(ctx, in, rep)
	if err != nil {
		return nil, fmt.Errorf("root file system: %w", err)
	}
	defer l.lease.Release()
	config := newConfig(want, time.Now())
	config.append(diffID, "hutch image import")
	config.apply(o.Changes)
	r, err := config.remote(named, []types.BlobInfo{blob})
	if err != nil {
		return nil, err
	}
	img, err := s.name(ctx, r, []*layer{l}, l.fetched)
	if err == nil {
		rep.report(Progress{Layer: rootfsLayer, Phase: PhaseDone, Done: blob.Size, Total: blob.Size})
	}
	return img, err
}

// rootfsLayer stands for the one layer, whose digest nobody knows before its end.
const rootfsLayer = "rootfs"

// unpackRootfs unpacks a stream of which nothing is known before. Both digests are this
// process's own.
func (s *Store) unpackRootfs(ctx context.Context, in *importSource, rep *reporter) (blob types.BlobInfo,
	diffID digest.Digest, l *layer, err error) {
	t, work, err := s.newUnit()
	if err != nil {
		return blob, "", nil, err
	}
	defer t.discard()
	limits := s.opts.Limits
	if in.size >= 0 {
		limits = limits.ForCompressed(in.size)
	}
	received := &verifier{sum: digest.Canonical.Digester(), r: &progressReader{r: in.reader(), rep: rep, p: Progress{
		Layer: rootfsLayer, Phase: PhaseReading, Total: in.size,
	}}}
	stop := func() { _ = in.file.SetReadDeadline(time.Unix(1, 0)) } // reads of regular files end by themselves
	res, err := s.unpack(ctx, received, stop, work, digest.Canonical, limits)
	switch {
	case err != nil:
		return blob, "", nil, err
	case res.Stats.Entries == 0:
		return blob, "", nil, fmt.Errorf("%w: it holds no file", errArchive)
	case isArchive(filepath.Join(work, unitRoot)):
		return blob, "", nil,
			api.Errorf(api.InvalidArgument, "the file is no root file system but an archive that holds images").
				WithField("format").
				WithHint("hutch image import archive:FILE, or hutch load -i FILE; on the socket the format archive")
	}
	blob = types.BlobInfo{Digest: received.sum.Digest(), Size: received.n, MediaType: layerType(received.first)}
	name := s.layerUnit(res.DiffID.String())
	unlock, err := s.lockUnit(ctx, name)
	if err != nil {
		return blob, "", nil, err
	}
	defer unlock()
	if l, err = s.leaseLayer(name); l == nil && err == nil {
		l, err = s.commitLayer(work, name, res.Stats)
	}
	return blob, res.DiffID, l, err
}

// isArchive reports whether a root is that of an archive with images: it has the files by which these are found, and no
// folder of a system.
func isArchive(root string) bool {
	has := func(name string) bool { _, err := os.Lstat(filepath.Join(root, name)); return err == nil }
	return !has("bin") && !has("usr") && !has("etc") &&
		(has("oci-layout") && has("index.json") || isDockerManifest(filepath.Join(root, "manifest.json")))
}

// isDockerManifest tells docker's manifest.json from those of web pages and others. The file is an image's: it may be a
// link, or a pipe.
func isDockerManifest(file string) bool {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false
	}
	in := json.NewDecoder(io.LimitReader(f, 1<<20)) // the first image's is enough
	if t, err := in.Token(); err != nil || t != json.Delim('[') {
		return false
	}
	var first map[string]json.RawMessage
	return in.Decode(&first) == nil && first["Config"] != nil && first["Layers"] != nil
}

// importError gives an error of an import its code and hint, once, at the boundary.
func importError(ctx context.Context, err error, op, dir string) error {
	if ctx.Err() != nil { // whatever the end of ctx broke
		err = context.Cause(ctx)
	}
	var e *api.Error
	if errors.As(err, &e) {
		if e.Op == "" {
			e.Op = op
		}
		return e
	}
	for _, classify := range []func(error) *api.Error{canceled, badLayer, badArchive} {
		if e := classify(err); e != nil {
			return e.WithOp(op)
		}
	}
	return storeError(err, op, dir)
}

// badArchive knows archives that are not what they should be.
func badArchive(err error) *api.Error {
	if errors.Is(err, errArchive) || errors.Is(err, errManifest) || errors.Is(err, errDigest) ||
		errors.Is(err, unpack.ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF) {
		return api.Errorf(api.InvalidArgument, "%w", err).WithField("fd").
			WithHint("Check that the archive is whole and of this format: oci-archive, docker-archive, or without one a root file system as tar, plain or compressed with gzip, zstd, xz or bzip2.")
	}
	return nil
}
