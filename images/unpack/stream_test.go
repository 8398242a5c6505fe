package unpack

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	return p
}

func TestReadAhead(t *testing.T) {
	errBroken := errors.New("broken")
	for _, size := range []int{0, 1, aheadBytes - 1, aheadBytes, aheadBytes + 1, 9*aheadBytes + 7} {
		data := noise(size)
		for name, tt := range map[string]struct {
			r   io.Reader
			err error
		}{
			"whole":  {bytes.NewReader(data), nil},
			"halves": {iotest.HalfReader(bytes.NewReader(data)), nil},
			"broken": {io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errBroken)), errBroken},
			// The end of a stream and a stream cut short stay different.
			"cut": {io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF},
		} {
			a := readAhead(tt.r)
			got, err := io.ReadAll(struct{ io.Reader }{a})
			if !bytes.Equal(got, data) || !errors.Is(err, tt.err) {
				t.Errorf("%s, %d bytes: read %d, %v", name, size, len(got), err)
			}
			_ = a.Close()
		}
		a := readAhead(bytes.NewReader(data))
		var b bytes.Buffer
		if n, err := a.WriteTo(&b); err != nil || n != int64(size) || !bytes.Equal(b.Bytes(), data) {
			t.Errorf("WriteTo of %d bytes: %d, %v", size, n, err)
		}
		_ = a.Close()
	}
	// Closing ends the goroutine of a stream nobody reads.
	_ = readAhead(endless{}).Close()
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestDecompress(t *testing.T) {
	data := bytes.Repeat([]byte("layer "), 5000)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(data)
	must(t, errors.Join(err, w.Close()))
	enc, err := zstd.NewWriter(nil)
	must(t, err)
	zst := enc.EncodeAll(data, nil)
	wide, err := zstd.NewWriter(nil, zstd.WithWindowSize(2*maxZstdWindow))
	must(t, err)
	var huge bytes.Buffer
	wide.Reset(&huge)
	_, err = wide.Write(data) // streamed, so that the frame names its window
	must(t, errors.Join(err, wide.Flush(), wide.Close()))
	for name, tt := range map[string]struct {
		blob []byte
		ok   bool
	}{
		"plain":                        {data, true},
		"gzip":                         {z.Bytes(), true},
		"gzip in members":              {append(bytes.Clone(z.Bytes()), z.Bytes()...), true},
		"zstd":                         {zst, true},
		"zstd after a skippable frame": {append([]byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2}, zst...), true},
		"empty":                        {nil, true},
		"one byte":                     {[]byte{0x1f}, true},
		"gzip cut":                     {z.Bytes()[:len(z.Bytes())-3], false},
		"gzip header":                  {[]byte{0x1f, 0x8b, 0xff, 0xff}, false},
		"zstd cut":                     {zst[:len(zst)-3], false},
		"zstd window":                  {huge.Bytes(), false},
	} {
		r, err := decompress(bytes.NewReader(tt.blob))
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			_ = r.Close()
		}
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
