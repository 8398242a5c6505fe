package files_test

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestFilesLarge: 128 MiB in and out, through pipes and through hutch cp, and
// nothing of it in the daemon's memory.
func TestFilesLarge(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	b := newFileBox(t)
	const size = 128 << 20
	local := b.w.Path("large")
	sum := makeLarge(t, local, size)
	before := daemonPeak(t, b.w)
	begin := time.Now()
	b.w.OK(t, "cp", local, b.id+":/var/large")
	in := time.Since(begin)
	if got := b.sh(t, "sha256sum </var/large"); !strings.HasPrefix(got, sum) {
		t.Errorf("inside it is %s, not %s", got, sum)
	}
	begin = time.Now()
	b.w.OK(t, "cp", b.id+":/var/large", b.w.Path("back"))
	t.Logf("in %v, out %v", in, time.Since(begin))
	if got := sumOf(t, b.w.Path("back")); got != sum {
		t.Errorf("back is %s, not %s", got, sum)
	}
	// The same by the API, with pipes whose ends block.
	r, w := blockingPipe(t)
	go func() {
		defer w.Close()
		if f, err := os.Open(local); err == nil {
			defer f.Close()
			_, _ = io.Copy(w, f)
		}
	}()
	n := int64(size)
	wrote, err := b.WriteFile(t.Context(), api.FileWriteParams{FileParams: b.at("/var/piped"), SizeBytes: &n}, r)
	if err != nil || wrote.Written != size {
		t.Fatalf("%+v, %v", wrote, err)
	}
	r, w = blockingPipe(t)
	back := make(chan string)
	go func() {
		h := sha256.New()
		_, _ = io.Copy(h, r)
		back <- fmt.Sprintf("%x", h.Sum(nil))
	}()
	chunk, err := b.ReadFile(t.Context(), api.FileReadParams{FileParams: b.at("/var/piped")}, w)
	w.Close()
	if got := <-back; err != nil || got != sum || chunk.Next != size || !chunk.EOF {
		t.Errorf("%+v, %v: %s, not %s", chunk, err, got, sum)
	}
	if grown := daemonPeak(t, b.w) - before; grown > 32<<10 {
		t.Errorf("hutchd has grown by %d KiB", grown)
	}
}

func makeLarge(t testing.TB, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, h), rand.Reader, size); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func sumOf(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func blockingPipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// daemonPeak is the most memory that hutchd had, in KiB.
func daemonPeak(t testing.TB, w *world.World) int {
	t.Helper()
	pid := world.Decode[api.Info](t, w.OK(t, "rpc", "system.info")).PID
	for line := range strings.Lines(world.Read(t, fmt.Sprintf("/proc/%d/status", pid))) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestFilesPipes: what may be passed, and what becomes of a file when its writer
// gives up.
func TestFilesPipes(t *testing.T) {
	t.Parallel()
	b := newFileBox(t)
	ctx := t.Context()
	regular := world.Open(t, b.w.Path("regular"), os.O_RDWR|os.O_CREATE)
	if err := unix.Mkfifo(b.w.Path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{regular, world.Open(t, "/dev/null", os.O_RDWR), world.Open(t, b.w.Dir, os.O_RDONLY),
		world.Open(t, b.w.Path("fifo"), os.O_RDWR)} {
		_, err := b.ReadFile(ctx, api.FileReadParams{FileParams: b.at("/etc/passwd")}, f)
		world.Fails(t, err, api.InvalidArgument, "fd")
	}
	r, w := blockingPipe(t)
	_, err := b.WriteFile(ctx, api.FileWriteParams{FileParams: b.at("/tmp/x")}, w)
	world.Fails(t, err, api.InvalidArgument, "fd")

	b.put(t, api.FileWriteParams{FileParams: b.at("/tmp/x"), Data: "old"})
	size := int64(100)
	if _, err := w.WriteString("half"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	_, err = b.WriteFile(ctx, api.FileWriteParams{FileParams: b.at("/tmp/x"), SizeBytes: &size}, r)
	world.Fails(t, err, api.InvalidArgument, "ended too early")

	// A cancelled call, of a writer that does not end and of a reader that does not
	// read, leaves nothing, and the worker serves others meanwhile.
	r, w = blockingPipe(t)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := b.WriteFile(short, api.FileWriteParams{FileParams: b.at("/tmp/x")}, r); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("a writer that does not end: %v", err)
		}
	})
	_, w2 := blockingPipe(t)
	wg.Go(func() {
		if _, err := b.PackFiles(short, api.FilePackParams{FileParams: b.at("/usr/bin")}, w2); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("a reader that does not read: %v", err)
		}
	})
	if got := b.get(t, "/tmp/x"); got != "old" {
		t.Errorf("got %q", got)
	}
	wg.Wait()
	w.Close()
	if got := b.sh(t, "cat /tmp/x; ls -A /tmp | grep -c hutch; true"); got != "old0" {
		t.Errorf("got %q", got)
	}
	// A reader that goes away.
	r, w = blockingPipe(t)
	r.Close()
	_, err = b.ReadFile(ctx, api.FileReadParams{FileParams: b.at("/etc/passwd")}, w)
	world.Fails(t, err, api.FailedPrecondition, "pipe")
}

// TestFilesConcurrent: many calls at the same time, as several users.
func TestFilesConcurrent(t *testing.T) {
	t.Parallel()
	b := newFileBox(t)
	var wg sync.WaitGroup
	text := strings.Repeat("0123456789abcdef", 4096) // more than a packet
	for i := range 40 {
		wg.Go(func() {
			for j := range world.Rounds(10) {
				p := b.at(fmt.Sprintf("/tmp/c%d", i))
				data := fmt.Sprint(i, j, text)
				if _, err := b.WriteFile(t.Context(), api.FileWriteParams{FileParams: p, Data: data}, nil); err != nil {
					t.Error(err)
				}
				r, err := b.ReadFile(t.Context(), api.FileReadParams{FileParams: p}, nil)
				if err != nil || r.Data != data {
					t.Errorf("%d bytes, %v", len(r.Data), err)
				}
			}
		})
	}
	wg.Wait()
	if got := b.sh(t, "ps -eo args | grep -c '[f]d/[0-9]* files'"); got != "1" {
		t.Errorf("%s workers", got)
	}
}

// TestFilesOwners: who owns what an archive brings in.
func TestFilesOwners(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	b := newFileBox(t)
	for keep, want := range map[bool]uint32{false: 0, true: 1000} {
		if testenv.CurrentKind() == mustrun.NoSubUID {
			want = 0 // there is nobody else
		}
		r, w := blockingPipe(t)
		go func() {
			defer w.Close()
			tw := tar.NewWriter(w)
			_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o4755, Uid: 1000, Gid: 1000,
				ModTime: time.Unix(1e9, 0)})
			_ = tw.Close()
		}()
		if _, err := b.UnpackFiles(t.Context(), api.FileUnpackParams{FileParams: b.at("/tmp"), KeepOwner: keep},
			r); err != nil {
			t.Fatal(err)
		}
		f, err := b.StatFile(t.Context(), api.FileStatParams{FileParams: b.at("/tmp/f")})
		if err != nil || f.UID != want || f.GID != want || f.Mode != "4755" || f.MTime.Unix() != 1e9 {
			t.Errorf("keep %v: %+v, %v", keep, f, err)
		}
	}
}

// TestFilesIdle: a worker that nobody uses ends, and takes nothing with it.
func TestFilesIdle(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	b := newFileBox(t)
	b.put(t, api.FileWriteParams{FileParams: b.at("/tmp/x"), Data: "x"})
	run := b.start(t, "/usr/bin/python3", "-c", `
import glob, os, select
for name in glob.glob("/proc/[0-9]*/cmdline"):
    with open(name, "rb") as f:
        if f.read().split(b"\0")[1:2] == [b"files"]:
            p = select.poll()
            p.register(os.pidfd_open(int(name.split("/")[2])))
            print("ended" if p.poll(40000) else "lives")
`)
	r, err := b.ExecWait(t.Context(), api.WaitParams{Exec: run})
	if err != nil || r.Stdout != "ended\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if got := b.get(t, "/tmp/x"); got != "x" {
		t.Errorf("got %q", got)
	}
}
