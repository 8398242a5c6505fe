package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

func packDir(t testing.TB, dir string, o PackOptions) ([]byte, PackStats) {
	t.Helper()
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	var b bytes.Buffer
	stats, err := Pack(t.Context(), root, &b, o)
	must(t, err)
	return b.Bytes(), stats
}

func unpackDir(t testing.TB, stream []byte, single bool) (string, Stats) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	stats, err := Unpack(root, bytes.NewReader(stream), Options{SingleUID: single})
	must(t, err)
	return dir, stats
}

func entriesOf(t testing.TB, stream []byte) []string {
	t.Helper()
	var names []string
	for r := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		must(t, err)
		names = append(names, h.Name)
	}
}

// TestPackInverts packs what was unpacked: the layer makes the same tree again, and is the
// same from then on.
func TestPackInverts(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Require(t, probe.Check{Name: "root", Status: probe.No,
			Detail: "the layers have folders that only root may read", Remedy: "run the tests as root"})
	}
	for seed := range uint64(30) {
		single := seed%2 == 1
		first, stats := unpackDir(t, randomLayer(t, rand.New(rand.NewPCG(seed, 11))), single)
		stream, _ := packDir(t, first, PackOptions{Implied: stats.Implied, SingleUID: single})
		second, again := unpackDir(t, stream, single)
		if !maps.Equal(snapshot(t, first), snapshot(t, second)) {
			t.Fatalf("seed %d: packed and unpacked it is\n%q, was\n%q", seed, snapshot(t, second), snapshot(t, first))
		}
		if !slices.Equal(stats.Implied, again.Implied) {
			t.Errorf("seed %d: implied %q, was %q", seed, again.Implied, stats.Implied)
		}
		if twice, _ := packDir(t, second, PackOptions{Implied: again.Implied, SingleUID: single}); !bytes.Equal(stream,
			twice) {
			t.Fatalf("seed %d: packed again it differs", seed)
		}
	}
}

// TestPackHostile packs what only a sandbox would have.
func TestPackHostile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Chmod(dir, 0o755))
	for _, d := range []string{"etc", "tmp", ".wh.dir", "gone", "secret"} {
		must(t, os.Mkdir(at(d), 0o755))
	}
	must(t, os.WriteFile(at("etc/hosts"), []byte("own"), 0o644))
	must(t, os.WriteFile(at("etc/new"), []byte("new"), 0o644))
	must(t, os.WriteFile(at(".wh.passwd"), nil, 0o644))
	must(t, os.WriteFile(at(".wh.dir/below"), nil, 0o644))
	must(t, os.WriteFile(at("secret/closed"), []byte("c"), 0))
	if os.Geteuid() != 0 { // the worker is root of its namespace, this test is not
		must(t, os.Chmod(at("secret/closed"), 0o400))
	}
	must(t, os.Symlink("/etc/shadow", at("link")))
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	must(t, unix.Mknod(at("gone/file"), unix.S_IFCHR|0o600, 0))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: at("socket")}))
	for name, value := range map[string]string{
		"user.overlay.opaque": "y", "user.overlay.origin": "x", "user.hutch.x": "1", "user.ok": "1\x002",
		"user.a=b": "1", "user.empty": "",
	} {
		must(t, unix.Setxattr(at("gone"), name, []byte(value), 0))
	}
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	}
	stream, stats := packDir(t, dir,
		PackOptions{Omit: []string{"etc/hosts"}, Plain: map[string]uint32{".": 0o755, "etc": 0o755, "tmp": 0o755}})
	want := []string{"etc/", "etc/new", "gone/", "gone/.wh..wh..opq", "gone/.wh.file", "link", "pipe", "secret/",
		"secret/closed"}
	left := []string{".wh.dir", ".wh.passwd", "null", "socket"}
	if os.Geteuid() != 0 { // whose folders are not root's, and therefore not plain
		want = append([]string{"./"}, append(want, "tmp/")...)
		left = slices.DeleteFunc(left, func(s string) bool { return s == "null" })
	}
	if got := entriesOf(t, stream); !slices.Equal(got, want) {
		t.Errorf("packed %q", got)
	}
	if !slices.Equal(stats.Names, left) || stats.Nodes != int64(len(left)) || stats.Xattrs != 2 {
		t.Errorf("left out %+v", stats)
	}
	for r := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		if h.Name == "gone/" && (len(h.PAXRecords) == 0 || h.PAXRecords["SCHILY.xattr.user.ok"] != "1\x002") {
			t.Errorf("attributes %q", h.PAXRecords)
		}
		for k := range h.PAXRecords {
			if strings.Contains(k, "overlay") || strings.Contains(k, "hutch") {
				t.Errorf("%s: %s", h.Name, k)
			}
		}
	}
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	if _, err := Pack(t.Context(), root, io.Discard, PackOptions{MaxEntries: 5}); !errors.Is(err, ErrLimit) {
		t.Errorf("too many: %v", err)
	}
}

// TestPackSparse: a file without content costs nothing, and what reads archives reads it.
func TestPackSparse(t *testing.T) {
	dir := t.TempDir()
	sparse := func(name string, size int64, at ...int64) {
		f, err := os.Create(filepath.Join(dir, name))
		must(t, err)
		must(t, f.Truncate(size))
		for _, off := range at {
			_, err = f.WriteAt(bytes.Repeat([]byte("x"), 5000), off)
			must(t, err)
		}
		must(t, unix.Fsetxattr(int(f.Fd()), "user.k", []byte("v"), 0))
		must(t, f.Close())
	}
	sparse("end", 1<<20, 1<<20-5000)
	sparse("middle", 1<<20+17, 0, 300_001)
	sparse("z", 10_000_000)
	must(t, os.Link(filepath.Join(dir, "z"), filepath.Join(dir, "zz")))
	single := os.Geteuid() != 0
	stream, _ := packDir(t, dir, PackOptions{SingleUID: single})
	again, _ := unpackDir(t, stream, single)
	same := func(as, other string) {
		t.Helper()
		for _, name := range []string{"end", "middle", "z", "zz"} {
			a, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
			b, err := os.ReadFile(filepath.Join(other, name))
			must(t, err)
			if !bytes.Equal(a, b) {
				t.Errorf("%s makes another %s", as, name)
			}
		}
	}
	same("unpack", again)
	var v [8]byte
	if n, err := unix.Getxattr(filepath.Join(again, "end"), "user.k", v[:]); err != nil || string(v[:n]) != "v" {
		t.Errorf("attribute %q, %v", v[:max(n, 0)], err)
	}
	sparse("empty", 1<<40)
	all, stats := packDir(t, dir, PackOptions{})
	if len(all) > 100_000 || stats.Bytes < 1<<40 {
		t.Errorf("a layer of %d bytes with files of %d", len(all), stats.Bytes)
	}
	// GNU tar, where there is one.
	tarPath, err := exec.LookPath("tar")
	if err != nil {
		return
	}
	theirs := t.TempDir()
	cmd := exec.Command(tarPath, "--no-same-owner", "-C", theirs, "-xf", "-")
	cmd.Stdin = bytes.NewReader(all)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	same("tar", theirs)
	if st, err := os.Stat(filepath.Join(theirs, "empty")); err != nil || st.Size() != 1<<40 {
		t.Errorf("tar makes of empty: %v, %v", st, err)
	}
}

// TestPackInWorker: the worker packs as the function does, and its errors come back.
func TestPackInWorker(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		must(t, os.WriteFile(filepath.Join(dir, name), noise(300_000), 0o644))
	}
	if os.Geteuid() == 0 { // as an ordinary user the worker sees its own files as root's
		must(t, os.Chown(filepath.Join(dir, "a"), 7, 8))
	}
	work := func(o PackOptions) ([]byte, PackStats, error) {
		r, w, err := os.Pipe()
		must(t, err)
		defer r.Close()
		out := make(chan []byte)
		go func() {
			data, _ := io.ReadAll(r)
			out <- data
		}()
		stats, err := PackInWorker(t.Context(), w, PackRequest{Root: dir, Options: o})
		must(t, w.Close())
		return <-out, stats, err
	}
	got, stats, err := work(PackOptions{})
	must(t, err)
	want, _ := packDir(t, dir, PackOptions{})
	if os.Geteuid() == 0 && !bytes.Equal(got, want) || stats.Bytes != 600_000 || len(got) != len(want) {
		t.Errorf("%d bytes, want %d: %+v", len(got), len(want), stats)
	}
	// A request may be longer than an argument of a program.
	links := make([]LowerLink, 3000)
	for i := range links {
		links[i] = LowerLink{Name: fmt.Sprintf("links/%080d", i), Target: "lower"}
	}
	if got, _, err := work(PackOptions{Links: links}); err != nil ||
		!bytes.Contains(got, []byte(links[len(links)-1].Name)) {
		t.Errorf("many links: %d bytes, %v", len(got), err)
	}
	if _, _, err := work(PackOptions{MaxEntries: 1}); !errors.Is(err, ErrLimit) {
		t.Errorf("a limit: %v", err)
	}
}

func TestPaxTime(t *testing.T) {
	for want, in := range map[string][2]int64{"1.5": {1, 5e8}, "0": {0, 0}, "-1.5": {-2, 5e8}, "-0.5": {-1, 5e8},
		"-3": {-3, 0}, "7.000000001": {7, 1}} {
		if got := paxTime(in[0], int(in[1])); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}
