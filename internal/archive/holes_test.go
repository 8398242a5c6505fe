package archive

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sparse"
)

// TestHoles: a file comes back byte by byte, and what is zero in it for long takes no room.
func TestHoles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	data := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(1 + rnd.IntN(255))
		}
		return b
	}
	zero := func(n int) []byte { return make([]byte, n) }
	for name, tt := range map[string]struct {
		parts [][]byte
		most  int64 // bytes on the disk
	}{
		"none":          {[][]byte{data(300_000)}, 1 << 20},
		"short zeros":   {[][]byte{data(1000), zero(sparse.Block - 1001), data(1), zero(5000)}, 1 << 20},
		"all":           {[][]byte{zero(8 << 20)}, 64 << 10},
		"in the middle": {[][]byte{data(100), zero(16 << 20), data(100)}, 300 << 10},
		"at the end":    {[][]byte{data(70_001), zero(9_000_001)}, 300 << 10},
		"at the begin":  {[][]byte{zero(4<<20 + 1), data(2)}, 200 << 10},
		"an odd many times": {[][]byte{data(3), zero(3 << 20), data(65537), zero(2<<20 + 3), data(1),
			zero(sparse.Block)}, 700 << 10},
		"empty": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := t.TempDir(), t.TempDir()
			want := bytes.Join(tt.parts, nil)
			if err := os.WriteFile(filepath.Join(src, "f"), want, 0o600); err != nil {
				t.Fatal(err)
			}
			var tarred bytes.Buffer
			if _, err := Pack(t.Context(), &tarred, folderFD(t, src), ".", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := Unpack(t.Context(), &tarred, folderFD(t, dst), Options{Hostile: true}); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dst, "f"))
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(dst, "f"), &st); err != nil || st.Blocks*512 > tt.most {
				t.Errorf("%d bytes on the disk, want at most %d (%v)", st.Blocks*512, tt.most, err)
			}
		})
	}
}
