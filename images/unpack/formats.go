package unpack

import (
	"bufio"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// maxWindow bounds the memory that a zstd frame or an xz block can ask for: what they refer back to. It is that of zstd
// --long and --ultra -22, and what zstd(1) takes unless it is told to take more; xz -9 asks for 64 MiB. gzip and bzip2
// cannot ask for any. Podman and docker take 512 MiB, but several layers are decompressed at a time, and a small image
// would take gigabytes of the host's.
const maxWindow = 128 << 20

// ErrWindow marks a layer that takes more memory to decompress.
var ErrWindow = fmt.Errorf("its compression looks back over more than %d MiB", maxWindow>>20)

// magicBytes are as many as tell how a layer is compressed.
const magicBytes = 10

// formats are how a layer may be compressed. The media type is not always right, and the digest of the result is
// checked anyway.
var formats = []struct {
	is   func(magic string) bool
	open func(io.Reader) (io.ReadCloser, error)
}{
	{isGzip, func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
	{isZstd, openZstd},
	{isXz, openXz},
	{isBzip2, func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(bzip2.NewReader(r)), nil }},
}

// compressed says whether a layer that begins so has to go through decompress.
func compressed(magic []byte) bool {
	for _, f := range formats {
		if f.is(string(magic)) {
			return true
		}
	}
	return false
}

// decompress finds out how a layer is compressed by its first bytes.
func decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, inputBuffer)
	magic, err := br.Peek(magicBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, f := range formats {
		if f.is(string(magic)) {
			return f.open(br)
		}
	}
	return io.NopCloser(br), nil
}

// inputBuffer is the unit of reading what is compressed.
const inputBuffer = 64 << 10

func openZstd(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

func openXz(r io.Reader) (io.ReadCloser, error) {
	d, err := xz.NewReader(r, maxWindow)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(d), nil
}

// decompressError gives what was wrong with a blob its kind.
func decompressError(err error) error {
	// The decoder says in either way that a window is too large; the size of what comes out is not its to bound.
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) ||
		errors.Is(err, xz.ErrMemlimit) {
		return ErrWindow
	}
	return fmt.Errorf("%w: decompress: %w", ErrDamaged, err)
}

// isGzip knows a member (RFC 1952).
func isGzip(m string) bool { return strings.HasPrefix(m, "\x1f\x8b") }

// isZstd knows a frame and a skippable frame (RFC 8878, 3.1).
func isZstd(m string) bool {
	return strings.HasPrefix(m, "\x28\xb5\x2f\xfd") || len(m) >= 4 && m[0]&0xf0 == 0x50 && m[1:4] == "\x2a\x4d\x18"
}

// isXz knows a stream (The .xz File Format, 2.1.1.1).
func isXz(m string) bool { return strings.HasPrefix(m, "\xfd7zXZ\x00") }

// isBzip2 knows a stream: its magic, the size of its blocks and the magic of the first block, or of the end where there
// is none.
func isBzip2(m string) bool {
	return len(m) >= 10 && m[:3] == "BZh" && m[3] >= '1' && m[3] <= '9' &&
		(m[4:10] == "1AY&SY" || m[4:10] == "\x17\x72\x45\x38\x50\x90")
}
