package unpack

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	archive "github.com/moby/go-archive"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

func benchUnpack(dir string, stream []byte, manifest io.Writer) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = Unpack(root, bytes.NewReader(stream), Options{SingleUID: os.Geteuid() != 0, Manifest: manifest})
	return err
}

// BenchmarkUnpack unpacks 10,000 files of 8 KiB in 1,000 folders with this
// package and with the extractor of Docker. TMPDIR chooses the file system.
func BenchmarkUnpack(b *testing.B) {
	var entries []any
	content := strings.Repeat("0123456789abcdef", 512)
	for i := range 1000 {
		dir := fmt.Sprintf("usr/lib/d%d/s%d/", i%50, i)
		entries = append(entries, dirE(dir))
		for j := range 10 {
			entries = append(entries, fileE(fmt.Sprintf("%sfile%d.txt", dir, j), content))
		}
	}
	stream := layer(b, entries...)
	for name, f := range map[string]func(dir string) error{
		"hutch":          func(dir string) error { return benchUnpack(dir, stream, nil) },
		"hutch-manifest": func(dir string) error { return benchUnpack(dir, stream, io.Discard) },
		"moby": func(dir string) error {
			return archive.Unpack(bytes.NewReader(stream), dir, &archive.TarOptions{NoLchown: os.Geteuid() != 0,
				WhiteoutFormat: archive.OverlayWhiteoutFormat})
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			parent := b.TempDir()
			for i := 0; b.Loop(); i++ {
				dir := filepath.Join(parent, fmt.Sprint(i))
				must(b, os.Mkdir(dir, 0o755))
				must(b, f(dir))
				b.StopTimer()
				must(b, os.RemoveAll(dir))
				b.StartTimer()
			}
		})
	}
}

// BenchmarkSmall unpacks 100,000 files of 100 bytes in 1,000 folders, beside the least that
// could make them: open, write and close, one after the other.
func BenchmarkSmall(b *testing.B) {
	const folders, each = 1000, 100
	var entries []any
	content := strings.Repeat("x", 100)
	for i := range folders {
		dir := fmt.Sprintf("d%d/", i)
		entries = append(entries, dirE(dir))
		for j := range each {
			entries = append(entries, fileE(fmt.Sprintf("%sfile%d", dir, j), content))
		}
	}
	stream := layer(b, entries...)
	var blob bytes.Buffer
	z := gzip.NewWriter(&blob)
	_, err := z.Write(stream)
	must(b, errors.Join(err, z.Close()))
	for _, bb := range []struct {
		name string
		f    func(dir string) error
	}{
		{"hutch", func(dir string) error { return benchUnpack(dir, stream, nil) }},
		{"hutch-manifest", func(dir string) error { return benchUnpack(dir, stream, io.Discard) }},
		{"least", func(dir string) error { return leastFiles(dir, folders, each, []byte(content)) }},
		{"least-pull", func(dir string) error { return leastPull(dir, blob.Bytes(), folders, each, []byte(content)) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			parent := b.TempDir()
			for i := 0; b.Loop(); i++ {
				dir := filepath.Join(parent, fmt.Sprint(i))
				must(b, os.Mkdir(dir, 0o755))
				must(b, bb.f(dir))
				b.StopTimer()
				must(b, os.RemoveAll(dir))
				b.StartTimer()
			}
		})
	}
}

// leastPull does what no pull of such a layer can leave out, on two CPUs and with nothing between its parts: two
// threads make the files while a third decompresses the layer and computes both digests.
func leastPull(dir string, blob []byte, folders, each int, content []byte) error {
	var g errgroup.Group
	for half := range 2 {
		g.Go(func() error {
			at := filepath.Join(dir, fmt.Sprint(half))
			if err := unix.Mkdir(at, 0o755); err != nil {
				return err
			}
			return leastFiles(at, folders/2, each, content)
		})
	}
	g.Go(func() error {
		packed, plain := sha256.New(), sha256.New()
		z, err := gzip.NewReader(io.TeeReader(bytes.NewReader(blob), packed))
		if err != nil {
			return err
		}
		_, err = io.Copy(plain, z)
		return errors.Join(err, z.Close())
	})
	return g.Wait()
}

func leastFiles(dir string, folders, each int, content []byte) error {
	for i := range folders {
		sub := filepath.Join(dir, fmt.Sprint("d", i))
		if err := unix.Mkdir(sub, 0o755); err != nil {
			return err
		}
		at, err := unix.Open(sub, dirFlags, 0)
		if err != nil {
			return err
		}
		for j := range each {
			fd, err := unix.Openat(at, fmt.Sprint("file", j),
				unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
			if err != nil {
				return err
			}
			if _, err := unix.Write(fd, content); err != nil {
				return err
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		if err := unix.Close(at); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkInWorker unpacks a compressed layer as a pull does. cpu-ms are of this process and
// its workers together, which other load on the machine disturbs less than the time.
func BenchmarkInWorker(b *testing.B) {
	var entries []any
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		var content strings.Builder // compresses to a third
		for content.Len() < 20_000 {
			fmt.Fprintf(&content, "word%d of a text, ", random.IntN(3000))
		}
		entries = append(entries, fileE(fmt.Sprintf("f%d", i), content.String()))
	}
	var blob bytes.Buffer
	z := gzip.NewWriter(&blob)
	stream := layer(b, entries...)
	_, err := z.Write(stream)
	must(b, errors.Join(err, z.Close()))
	b.SetBytes(int64(len(stream)))
	parent, before := b.TempDir(), cpuTime(b)
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(parent, fmt.Sprint(i))
		must(b, os.Mkdir(dir, 0o755))
		_, err := InWorker(b.Context(), bytes.NewReader(blob.Bytes()), func() {},
			Request{Root: dir, Algorithm: digest.SHA256, Options: Options{SingleUID: os.Geteuid() != 0}})
		must(b, err)
		b.StopTimer()
		must(b, os.RemoveAll(dir))
		b.StartTimer()
	}
	b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// cpuTime is that of this process and of those it has waited for.
func cpuTime(b *testing.B) (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		must(b, unix.Getrusage(who, &r))
		sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return sum
}
