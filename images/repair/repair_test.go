package repair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stackOf is a stack of folders, lowest first, and which of their folders are implied, and of those which are hollow.
func stackOf(t *testing.T, roots []string, implied, hollow []map[string]bool) *Stack {
	t.Helper()
	k := &Stack{}
	t.Cleanup(k.Close)
	for i, dir := range roots {
		f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		must(t, err)
		k.layers = append(k.layers, stackLayer{root: f, implied: implied[i]})
		if hollow != nil {
			k.layers[i].hollow = hollow[i]
		}
		for p := range implied[i] {
			if p != "" && (i > 0 || k.layers[i].hollow[p]) {
				k.implied = append(k.implied, p)
			}
		}
	}
	return k
}

// plainLook says by the definition what Stack.look does: of each layer from the top, the folder itself and all above it
// are looked at.
func plainLook(k *Stack, p string) (shown, right *Folder, absent string) {
	at := func(l *stackLayer, p string) (fd int, err error) {
		if p == "" {
			p = "."
		}
		return sys.OpenBeneath(int(l.root.Fd()), p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	hollow := func() string {
		if absent == "hollow" {
			return "gone"
		}
		return absent
	}
	for i, l := range slices.Backward(k.layers) {
		cut := false
		for q := filepath.Dir(p); q != "." && q != "/"; q = filepath.Dir(q) {
			if fd, err := at(&l, q); err == nil {
				cut = cut || isOpaque(fd)
				_ = unix.Close(fd)
			}
		}
		fd, err := at(&l, p)
		if errors.Is(err, unix.ENOENT) && !cut {
			continue
		} else if err != nil {
			up, err := at(&l, strings.TrimPrefix(filepath.Dir("/"+p), "/"))
			if err == nil && absent == "hollow" && isNode(up, filepath.Base(p)) {
				absent = fmt.Sprintf("link to layer %d's", i)
			}
			_ = unix.Close(up)
			break
		}
		a, err := attrsOf(p, fd)
		if err != nil {
			break
		}
		cut = cut || isOpaque(fd)
		_ = unix.Close(fd)
		if shown == nil {
			shown, right, absent = a, a, "hollow"
		}
		if !l.hollow[p] {
			absent = ""
		}
		if !l.implied[p] {
			return shown, a, hollow()
		}
		if cut {
			break
		}
	}
	return shown, right, hollow()
}

func plainFixes(k *Stack) []string {
	list := map[string]string{}
	for _, p := range k.implied {
		shown, right, absent := plainLook(k, p)
		if right == nil || absent == "" && sameAttrs(shown, right) {
			continue
		}
		for q := filepath.Dir(p); q != "."; q = filepath.Dir(q) {
			if _, _, absent := plainLook(k, q); absent != "" {
				p = q
			}
		}
		for q := p; ; q = filepath.Dir(q) {
			if q == "." {
				q = ""
			}
			if _, right, absent := plainLook(k, q); right != nil {
				list[q] = fmt.Sprintf("%s %o %s", q, right.st.Mode, absent)
			}
			if q == "" {
				break
			}
		}
	}
	var lines []string
	for _, l := range list {
		lines = append(lines, l)
	}
	slices.Sort(lines)
	return lines
}

// TestFixesLikeTheDefinition: the walk through all layers at once finds what looking each folder up by itself finds.
func TestFixesLikeTheDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "a-b", "b", "c"}
	found := 0
	for range 150 {
		var roots []string
		var implied, hollow []map[string]bool
		for range 1 + rnd.IntN(4) {
			root, marks, hollows := t.TempDir(), map[string]bool{}, map[string]bool{}
			for range rnd.IntN(12) {
				var p string
				for range 1 + rnd.IntN(14) { // deeper than keptLevels
					p = filepath.Join(p, names[min(rnd.IntN(8), len(names)-1)])
				}
				dir := filepath.Join(root, p)
				switch rnd.IntN(6) {
				case 0:
					_ = os.MkdirAll(filepath.Dir(dir), 0o755) // one may be a file
					_ = os.WriteFile(dir, nil, 0o600)
				case 1:
					_ = os.MkdirAll(filepath.Dir(dir), 0o755)
					_ = os.Symlink("a", dir)
				default:
					if os.MkdirAll(dir, 0o755) == nil {
						must(t, os.Chmod(dir, os.FileMode(0o700+rnd.IntN(3))))
						if rnd.IntN(6) == 0 {
							must(t, unix.Setxattr(dir, "user.overlay.opaque", []byte("y"), 0))
						}
					}
				}
			}
			must(t, filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() && rnd.IntN(2) == 0 {
					p := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
					marks[p], hollows[p] = true, p != "" && rnd.IntN(3) == 0
				}
				return err
			}))
			roots, implied, hollow = append(roots, root), append(implied, marks), append(hollow, hollows)
		}
		k := stackOf(t, roots, implied, hollow)
		want := plainFixes(k)
		fixes, err := k.Fixes(t.Context())
		must(t, err)
		var got []string
		for _, f := range fixes {
			as := ""
			if f.from > 0 {
				as = fmt.Sprintf("link to layer %d's", f.from-1)
			} else if f.gone {
				as = "gone"
			}
			got = append(got, fmt.Sprintf("%s %o %s", f.path, f.st.Mode, as))
		}
		slices.Sort(got)
		if found += len(want); !slices.Equal(got, want) {
			t.Fatalf("found %q, want %q", got, want)
		}
	}
	if found < 80 {
		t.Errorf("only %d folders were to be repaired", found)
	}
}

// TestFixesDeep: one name of the deepest kind that there is costs in proportion to its length and to the layers that
// have it, and whoever does not want to know any more is not waited for.
func TestFixesDeep(t *testing.T) {
	const depth = 2000
	var roots []string
	var implied []map[string]bool
	for i := range 4 {
		root, marks := t.TempDir(), map[string]bool{}
		for p, d := "", 0; d < depth; d++ {
			p = strings.TrimPrefix(p+"/a", "/")
			must(t, os.Mkdir(filepath.Join(root, p), 0o755-os.FileMode(i%2)))
			if i > 0 {
				marks[p] = true
			}
		}
		roots, implied = append(roots, root), append(implied, marks)
	}
	k := stackOf(t, roots, implied, nil)
	// Each of the folders may take as long as 30 bytes of a parser's input: it is opened in each layer.
	cost.Once(t, 30*len(roots)*depth, func() {
		fixes, err := k.Fixes(t.Context())
		if err != nil || len(fixes) != depth+1 { // all, and the root
			t.Errorf("%d, %v", len(fixes), err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stackOf(t, roots, implied, nil).Fixes(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
