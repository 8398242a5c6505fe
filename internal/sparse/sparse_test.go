package sparse

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriter: however the bytes come, they are in the file, and long zeros take no room.
func TestWriter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 511, 4096, 65536, 300_000} { // bytes of a Write
		for round := range 6 {
			var want []byte
			room := int64(64 << 10)
			for range rnd.IntN(7) {
				part := make([]byte, rnd.IntN(200_000))
				if round%2 == 0 && most > 1 {
					part = make([]byte, rnd.IntN(8<<20))
				}
				if rnd.IntN(2) == 0 {
					part = part[:min(len(part), 100_000)]
					for i := range part {
						part[i] = byte(rnd.IntN(3)) // with zeros in it
					}
				}
				want = append(want, part...)
				room += 100_000 + 2*Block
			}
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			if err != nil {
				t.Fatal(err)
			}
			w := NewWriter(int(f.Fd()))
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+rnd.IntN(most))
				if most == 1 && len(rest) > 70_000 {
					n = min(len(rest), 60_000) // bytes one by one take long
				}
				if k, err := w.Write(rest[:n]); k != n || err != nil {
					t.Fatalf("%d of %d, %v", k, n, err)
				}
				rest = rest[n:]
			}
			if err := w.End(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(f.Name())
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 > room {
				t.Errorf("writes of up to %d: %d bytes take %d on the disk, want at most %d (%v)", most, len(want),
					st.Blocks*512, room, err)
			}
			_ = f.Close()
		}
	}
}
