package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Export writes an image into a file that the caller has open and keeps: a regular one,
// from where it stands, or a pipe, whose writing end is non-blocking from then on. After an
// error the file holds a part.
func (s *Store) Export(ctx context.Context, ref string, f *os.File, format api.ImageFormat) (api.Exported, error) {
	op := "export " + ref
	if ref == HostRef {
		return api.Exported{},
			api.Errorf(api.FailedPrecondition, "the image %q is this machine's own programs, which are in no layer",
				HostRef).WithOp(op).
				WithHint("Export another image.").WithField("ref")
	}
	img, err := s.Get(ref)
	if err != nil {
		return api.Exported{}, err
	}
	lease, err := s.Lease(img.Layers)
	if err != nil {
		return api.Exported{}, err
	}
	defer lease.Release()
	out, err := openSink(ctx, f)
	if err != nil {
		return api.Exported{}, importError(ctx, err, op, s.dir)
	}
	defer out.close()
	var r api.Exported
	if format == api.FormatRootfs {
		r, err = s.exportRootfs(ctx, img, out)
	} else {
		r, err = s.exportArchive(ctx, img, out, format)
	}
	if errors.Is(err, unix.EPIPE) {
		err = api.Errorf(api.Canceled, "nobody reads the pipe any more: %w", err)
	}
	if err != nil {
		return api.Exported{}, importError(ctx, err, op, s.dir)
	}
	r.Bytes = out.n
	return r, nil
}

// sink is what an export writes.
type sink struct {
	file *os.File // of the caller, or our own duplicate of a pipe
	own  bool
	stop func() bool // of the watch on ctx
	n    int64
}

func openSink(ctx context.Context, f *os.File) (*sink, error) {
	o, err := lookAt(f)
	if err != nil {
		return nil, fmt.Errorf("look at the file to write: %w", err)
	}
	s := &sink{file: f, stop: func() bool { return false }}
	switch {
	case o.pipe != nil:
		s.file, s.own = o.pipe, true
		s.stop = context.AfterFunc(ctx, func() { _ = s.file.SetWriteDeadline(time.Unix(1, 0)) })
	case o.st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, badSink("where the image is to go is neither a file nor a pipe")
	}
	if o.flags&unix.O_PATH != 0 || o.flags&unix.O_ACCMODE == unix.O_RDONLY {
		s.close()
		return nil, badSink("where the image is to go is not open for writing")
	}
	return s, nil
}

func badSink(what string) error {
	return api.Errorf(api.InvalidArgument, "%s", what).WithField("fd").
		WithHint("Open a file for writing, or send the end of a pipe; hutch image save does.")
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.n += int64(n)
	return n, err
}

func (s *sink) close() {
	s.stop()
	if s.own {
		_ = s.file.Close()
	}
}

// exportRootfs writes what a sandbox of the image sees at its start, as one tar stream.
func (s *Store) exportRootfs(ctx context.Context, img *Image, w io.Writer) (api.Exported, error) {
	req := unpack.PackRequest{Store: s.dir, Lower: img.Rootfs().Lower}
	if len(req.Lower) == 1 { // overlayfs wants two
		req = unpack.PackRequest{Root: s.path(req.Lower[0])}
	} else {
		t, err := s.newTmp()
		if err != nil {
			return api.Exported{}, err
		}
		defer t.discard()
		req.Root = filepath.Join(t.path, "merged")
		if err := os.Mkdir(req.Root, 0o700); err != nil {
			return api.Exported{}, err
		}
	}
	req.Options.SingleUID, req.Options.Whole = s.opts.SingleUID, true
	_, err := packTo(ctx, w, req)
	return api.Exported{ID: img.ID, Layers: []string{}}, err
}

// packLayerTo writes a layer of the store.
func (s *Store) packLayerTo(ctx context.Context, w io.Writer, diffID string) error {
	l, err := s.holdLayer(ctx, diffID)
	if err != nil {
		return err
	}
	defer l.lease.Release()
	_, err = packTo(ctx, w, unpack.PackRequest{
		Root:    s.path(path.Join(s.layerUnit(diffID), unitRoot)),
		Options: unpack.PackOptions{Implied: l.meta.Implied, Links: l.meta.Links, SingleUID: s.opts.SingleUID},
	})
	return err
}

// packTo packs a folder in a worker and passes on what comes.
func packTo(ctx context.Context, w io.Writer, req unpack.PackRequest) (stats unpack.PackStats, err error) {
	r, pipe, err := os.Pipe()
	if err != nil {
		return stats, err
	}
	defer r.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(registry.ErrEnded)
	packed := make(chan error, 1)
	go func() {
		var err error
		stats, err = unpack.PackInWorker(ctx, pipe, req)
		packed <- errors.Join(err, pipe.Close())
	}()
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	if err != nil {
		cancel(err) // it has nobody to write to
	}
	if perr := <-packed; err == nil {
		err = perr
	}
	return stats, err
}
