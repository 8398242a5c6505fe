package unpack

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
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
