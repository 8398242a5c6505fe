package unpack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/testenv/tarfix"
)

// seen is what Unpack asks of one.
type seen struct {
	tar.Header
	content []byte
	err     error
}

func (e seen) String() string {
	h := &e.Header
	return fmt.Sprintf("%q %q %c %d %o %d:%d %v %v %q, %d bytes %x, %v", h.Name, h.Linkname, h.Typeflag, h.Size, h.Mode,
		h.Uid, h.Gid,
		h.ModTime, h.AccessTime, h.PAXRecords, len(e.content), e.content[:min(len(e.content), 64)], e.err)
}

// same compares without making texts, which is most of what comparing takes.
func (e seen) same(o seen) bool {
	a, b := &e.Header, &o.Header
	return a.Name == b.Name && a.Linkname == b.Linkname && a.Typeflag == b.Typeflag && a.Size == b.Size &&
		a.Mode == b.Mode &&
		a.Uid == b.Uid && a.Gid == b.Gid && a.ModTime.Equal(b.ModTime) && a.AccessTime.Equal(b.AccessTime) &&
		maps.Equal(a.PAXRecords, b.PAXRecords) && bytes.Equal(e.content, o.content) && text(e.err) == text(o.err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// readAllOf reads entries; of the content at most want(i) bytes of the i-th.
func readAllOf(t interface {
	Next() (*tar.Header, error)
	io.Reader
}, want func(i int) int64) (all []seen, err error) {
	for i := 0; ; i++ {
		h, err := t.Next()
		if err != nil {
			return all, err
		}
		copied := *h // a reader may use it again
		copied.PAXRecords = maps.Clone(h.PAXRecords)
		content, err := io.ReadAll(io.LimitReader(t, want(i)))
		all = append(all, seen{copied, content, err})
	}
}

// sameAsTar compares a tarStream with archive/tar on a stream, when everything, nothing and
// some of each content is read.
func sameAsTar(t *testing.T, stream []byte) (entries int) {
	t.Helper()
	for _, want := range []func(i int) int64{
		func(int) int64 { return 1 << 14 }, func(int) int64 { return 0 },
		func(i int) int64 { return int64(i*97) % 700 },
	} {
		got, err := readAllOf(&tarStream{r: bufio.NewReader(bytes.NewReader(stream))}, want)
		expected, expectedErr := readAllOf(tar.NewReader(bytes.NewReader(stream)), want)
		if text(err) != text(expectedErr) {
			t.Errorf("error %v, of archive/tar %v", err, expectedErr)
		}
		if !slices.EqualFunc(got, expected, seen.same) {
			t.Errorf("entries\n%v\nof archive/tar\n%v", got, expected)
		}
		entries = len(got)
	}
	return entries
}

// mixedStream has entries of all formats and types, in an order of chance.
func mixedStream(t testing.TB, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	long := strings.Repeat("folder/", 20)
	for i := range 60 {
		h := &tar.Header{
			Name: fmt.Sprint("f", i), Typeflag: []byte{tar.TypeReg, tar.TypeReg, tar.TypeReg, tar.TypeDir,
				tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar}[random.IntN(8)],
			Mode: 0o644, Uid: random.IntN(2) * 3_000_000, Gid: 7,
			ModTime: time.Unix(1_700_000_000, int64(random.IntN(2))*500),
			Format:  []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU}[random.IntN(3)],
		}
		switch {
		case random.IntN(4) == 0:
			h.Name = long + h.Name
		case random.IntN(6) == 0 && h.Format != tar.FormatUSTAR:
			h.Name = long + long + h.Name + "\xc3\xa4"
		}
		if h.Format == tar.FormatUSTAR {
			h.Uid = 5
		}
		if h.Format != tar.FormatPAX {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		if h.Format == tar.FormatGNU && random.IntN(2) == 0 {
			h.AccessTime = time.Unix(1_600_000_000, 0)
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(random.IntN(1500))
		}
		if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink {
			h.Linkname = "f0"
		}
		must(t, w.WriteHeader(h))
		_, err := w.Write(bytes.Repeat([]byte{byte(i)}, int(h.Size)))
		must(t, err)
		if random.IntN(20) == 0 {
			must(t, w.Flush())
			must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "global",
				PAXRecords: map[string]string{"comment": "c"}}))
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

// TestTarStream: streams of all formats are read as archive/tar reads them, also damaged ones.
func TestTarStream(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for seed := range uint64(20) {
		stream := mixedStream(t, seed)
		if n := sameAsTar(t, stream); n < 60 {
			t.Errorf("only %d entries", n)
		}
		for range 30 {
			damaged := bytes.Clone(stream)
			switch random.IntN(3) {
			case 0:
				damaged = damaged[:random.IntN(len(damaged))]
			case 1:
				damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
			case 2:
				at := random.IntN(len(damaged)/tarBlock) * tarBlock
				damaged[at+random.IntN(tarBlock)] = byte(random.IntN(256))
				if sum := checksum(damaged[at : at+tarBlock]); string(damaged[at+257:at+262]) == "ustar" {
					copy(damaged[at+148:], fmt.Sprintf("%06o\x00 ", sum))
				}
			}
			sameAsTar(t, damaged)
		}
	}
}

// TestTarStreamIsPlain: what makers of layers write most is not left to archive/tar.
func TestTarStreamIsPlain(t *testing.T) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatGNU, tar.FormatPAX} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range []string{"a", strings.Repeat("folder/", 20) + "a"} {
			must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 3, Mode: 0o755, Uid: 1000,
				ModTime: time.Unix(1, 0), Format: format}))
			_, err := w.Write([]byte("abc"))
			must(t, err)
		}
		must(t, w.Close())
		s := &tarStream{r: bufio.NewReader(&b)}
		_, err := s.Next()
		if must(t, err); s.other != nil || s.header.Name != "a" {
			t.Errorf("%v: %+v", format, s.header)
		}
		// The next has a long name; what follows it is again read here.
		_, err = s.Next()
		if must(t, err); s.other != nil || s.left != 3 {
			t.Errorf("%v: %d bytes left", format, s.left)
		}
		if _, err := s.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%v: %v", format, err)
		}
	}
}

// FuzzTarStream: whatever is in a stream, archive/tar reads the same. A header whose checksum is
// wrong is nothing to either, so all get the right one. What is read of the content is little: an entry
// of few bytes may have a gigabyte of holes, and archive/tar is not what is tested.
func FuzzTarStream(f *testing.F) {
	f.Add(mixedStream(f, 1)[:4*tarBlock])
	f.Add(mixedStream(f, 2)[:24*tarBlock])
	nothing := func(int) int64 { return 0 }
	f.Fuzz(func(t *testing.T, stream []byte) {
		sameAsTar(t, stream)
		stream = tarfix.Checksums(stream)
		cost.Input(t, stream, func(stream []byte) {
			_, _ = readAllOf(&tarStream{r: bufio.NewReader(bytes.NewReader(stream))}, nothing)
		})
		sameAsTar(t, stream)
	})
}
