package unpack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	archive "github.com/moby/go-archive"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestLikeMoby unpacks random honest layers with this package and with the
// extractor of Docker, and compares the trees. Where the two mean to differ
// (".." in names, what follows a whiteout of the same layer) nothing is
// generated.
func TestLikeMoby(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Require(t, probe.Check{Name: "root", Status: probe.No,
			Detail: "the peer sets owners and trusted.* attributes", Remedy: "run the tests as root"})
	}
	for seed := range uint64(40) {
		stream := randomLayer(t, rand.New(rand.NewPCG(seed, 7)))
		ours := t.TempDir()
		root, err := os.Open(ours)
		must(t, err)
		_, err = Unpack(root, bytes.NewReader(stream), Options{})
		must(t, root.Close())
		must(t, err)
		theirs := t.TempDir()
		must(t, archive.Unpack(bytes.NewReader(stream), theirs,
			&archive.TarOptions{WhiteoutFormat: archive.OverlayWhiteoutFormat}))
		got, want := comparable(t, ours), comparable(t, theirs)
		if maps.Equal(got, want) {
			continue
		}
		for p := range want {
			if got[p] != want[p] {
				t.Errorf("seed %d: %s is\n%q, moby makes\n%q", seed, p, got[p], want[p])
			}
		}
		for p := range got {
			if _, ok := want[p]; !ok {
				t.Errorf("seed %d: %s is %s, moby makes none", seed, p, got[p])
			}
		}
		if t.Failed() {
			return
		}
	}
}

// comparable is a snapshot in which opaque folders of both look alike, with
// the times of everything but implied folders.
func comparable(t *testing.T, dir string) map[string]string {
	m := snapshot(t, dir)
	delete(m, "") // the peer ignores the root's entry
	for p, s := range m {
		st, err := os.Lstat(filepath.Join(dir, p))
		must(t, err)
		if st.ModTime().Year() < 2020 {
			s += " " + st.ModTime().UTC().Format(time.RFC3339Nano)
		}
		s = strings.ReplaceAll(s, "trusted.overlay.", "user.overlay.")
		s = strings.ReplaceAll(s, ` user.overlay.origin=""`, "")
		// A whiteout's mode means nothing; the peer's depends on the umask.
		if strings.HasPrefix(s, "20") {
			s = "whiteout"
		}
		m[p] = s
	}
	return m
}

// randomLayer makes a layer of some dozens of entries in a small name space,
// so that names collide.
func randomLayer(t *testing.T, r *rand.Rand) []byte {
	var entries []any
	var files []tar.Header
	name := func() string {
		parts := make([]string, 1+r.IntN(4))
		for i := range parts {
			parts[i] = fmt.Sprintf("d%d", r.IntN(3))
		}
		return strings.Join(parts, "/")
	}
	for range 40 {
		h := tar.Header{
			Mode: int64([]int{0o644, 0o755, 0o600, 0o4755, 0o2711, 0o1777, 0o000}[r.IntN(7)]), Uid: r.IntN(3),
			Gid:     r.IntN(70_000),
			ModTime: time.Unix(1_400_000_000+int64(r.IntN(1e6)), int64(r.IntN(2))*5e8), Format: tar.FormatPAX,
		}
		switch k := r.IntN(12); {
		case k < 3:
			// In a set-gid folder the peer's implied folders inherit the group.
			h.Mode &^= 0o2000
			h.Typeflag, h.Name = tar.TypeDir, []string{"", "./", "/"}[r.IntN(3)]+name()+"/"
			entries = append(entries, h)
		case k < 8:
			content := strings.Repeat("x", r.IntN(3)*r.IntN(20))
			h.Typeflag, h.Name, h.Size = tar.TypeReg, name()+fmt.Sprintf("/f%d", r.IntN(4)), int64(len(content))
			if r.IntN(3) == 0 {
				h.PAXRecords = map[string]string{"SCHILY.xattr.user.k": "v\x00w"}
			}
			files = slices.DeleteFunc(files, func(f tar.Header) bool { return f.Name == h.Name })
			files = append(files, h)
			entries = append(entries, entry{h, content})
		case k == 8:
			h.Typeflag, h.Name, h.Linkname = tar.TypeSymlink, name()+fmt.Sprintf("/s%d", r.IntN(3)),
				[]string{"/etc/passwd", "../../../x", "f0"}[r.IntN(3)]
			entries = append(entries, h)
		case k == 9 && len(files) > 0:
			// The peer sets what the link's own header says; honest layers
			// repeat the file's.
			l := files[r.IntN(len(files))]
			l.Typeflag, l.Linkname, l.Size, l.Name = tar.TypeLink, l.Name, 0, name()+fmt.Sprintf("/h%d", r.IntN(9))
			entries = append(entries, l)
		case k == 10:
			h.Typeflag, h.Name = tar.TypeFifo, name()+"/p"
			entries = append(entries, h)
		case k == 11:
			base := fmt.Sprintf(".wh.gone%d", r.IntN(1000))
			if r.IntN(3) == 0 {
				base = ".wh..wh..opq"
			}
			entries = append(entries, fileE(name()+"/"+base, ""))
		}
	}
	// A whiteout in an opaque folder is superfluous; we drop it, the peer does
	// not.
	opaque := make(map[string]bool)
	for _, e := range entries {
		if f, ok := e.(entry); ok && strings.HasSuffix(f.Name, ".wh..wh..opq") {
			opaque[filepath.Dir(f.Name)] = true
		}
	}
	entries = slices.DeleteFunc(entries, func(e any) bool {
		f, ok := e.(entry)
		return ok && strings.Contains(f.Name, ".wh.gone") && opaque[filepath.Dir(f.Name)]
	})
	return layer(t, entries...)
}
