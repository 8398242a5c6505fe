package images

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
)

// What a registry is asked again after a failure that may pass. The library itself goes on
// where a connection broke (Range) and waits as long as a 429 asks it to; these come on top.
const (
	manifestTries = 3
	blobTries     = 5
	// blobProgress is how many bytes more make the count of a blob's tries start again.
	blobProgress = 1 << 20
)

// firstWait is the mean time before the second try; each later one is twice the one before.
const firstWait = 500 * time.Millisecond

// waitBefore waits before try n, counted from 0, which needs no waiting. It has jitter,
// because whoever else pulls from this registry has seen it fail at the same moment.
func waitBefore(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	mean := firstWait << (n - 1)
	t := time.NewTimer(mean/2 + rand.N(mean))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// busy says that a registry failed in a way that may pass. After a 429 the library has
// already waited, five times.
func busy(err error) bool {
	if err == nil {
		return false
	}
	switch registry.StatusOf(err) {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return false
}

// broken says that a connection ended before it should.
func broken(err error) bool {
	var request *url.Error
	var op *net.OpError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.As(err, &request) ||
		errors.As(err, &op)
}

// blobReader reads a blob from a registry, over as many connections as it takes. What a
// later one repeats is dropped: whether the pieces fit, the digest of the whole says.
type blobReader struct {
	ctx  context.Context
	open func() (io.ReadCloser, error)
	file bool // not from a registry: open it once

	body   io.ReadCloser // nil when there is none
	offset int64         // of what was read
	tries  int           // since the offset was mark
	mark   int64
}

// newBlobReader opens the blob. open may be called until Close, unless it gives the bytes
// of a file, which stay what they are.
func newBlobReader(ctx context.Context, file bool, open func() (io.ReadCloser, error)) (*blobReader, error) {
	b := &blobReader{ctx: ctx, open: open, file: file}
	return b, b.reopen(nil)
}

// reopen makes body give what follows offset. cause is why it has to; its error is cause
// or a later one.
func (b *blobReader) reopen(cause error) error {
	for b.tries < blobTries {
		if err := waitBefore(b.ctx, b.tries); err != nil {
			return err
		}
		b.tries++
		cause = b.skip()
		// A connection that breaks before there was a byte is what its error says: no
		// route, no name, a redirect to nowhere.
		again := busy(cause) || b.offset > 0 && broken(cause)
		if cause == nil || b.ctx.Err() != nil || !again {
			return cause
		}
	}
	return cause
}

// skip opens the blob and drops what was read already.
func (b *blobReader) skip() error {
	_ = b.Close()
	body, err := b.open()
	if err != nil {
		return err
	}
	b.body = body
	if _, err := io.CopyN(io.Discard, body, b.offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

func (b *blobReader) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.offset += int64(n)
	if err == nil || errors.Is(err, io.EOF) || b.ctx.Err() != nil || b.file || !broken(err) {
		return n, err
	}
	if b.offset-b.mark >= blobProgress {
		b.tries, b.mark = 1, b.offset
	}
	if err = b.reopen(err); err != nil {
		_ = b.Close()
		b.body = io.NopCloser(errReader{err}) // what there is may not fit
	}
	return n, err
}

// errReader gives nothing but an error.
type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// Close ends the connection.
func (b *blobReader) Close() error {
	if b.body == nil {
		return nil
	}
	body := b.body
	b.body = nil
	return body.Close()
}
