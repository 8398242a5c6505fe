package images

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestTag: a name more is an image more, with the same layers.
func TestTag(t *testing.T) {
	s := openStore(t, Options{})
	ref := push(t, it.StartRegistry(t), "app", twoLayers())
	img, err := s.Pull(t.Context(), ref, PullOptions{})
	must(t, err)
	for _, by := range []string{ref, img.ID, img.Digest, "mine:1"} {
		got, err := s.Tag(by, "mine:1")
		if err != nil && by != "mine:1" || got == nil {
			t.Fatalf("%s: %v", by, err)
		}
		if got.Ref != "docker.io/library/mine:1" || got.ID != img.ID || !equalJSON(got.Layers, img.Layers) {
			t.Errorf("%s: %+v", by, got)
		}
	}
	must(t, s.Remove(ref, nil))
	if got, err := s.Get("mine:1"); err != nil || got.ID != img.ID {
		t.Errorf("%+v, %v", got, err)
	}
	for _, tt := range [][2]string{{"none", "x"}, {"mine:1", "Not A name"}, {"host", "x"}, {"mine:1", "host"},
		{"mine:1", "x@sha256:" + strings.Repeat("0", 64)}} {
		_, err := s.Tag(tt[0], tt[1])
		var e *api.Error
		if !errors.As(err, &e) || e.Hint == "" || e.Code != api.InvalidArgument && e.Code != api.NotFound {
			t.Errorf("%v: %v", tt, err)
		}
	}
}

// TestDiskUse: shared layers count once in the sum.
func TestDiskUse(t *testing.T) {
	s := openStore(t, Options{})
	base := it.NewLayer(it.Tar(it.Text("base", strings.Repeat("b", 100_000))), it.Gzip)
	own := it.NewLayer(it.Tar(it.Text("own", strings.Repeat("o", 50_000))), it.Gzip)
	registry := it.StartRegistry(t)
	a := push(t, registry, "a", it.Image{Layers: []it.Layer{base}})
	b := push(t, registry, "b", it.Image{Layers: []it.Layer{base, own}})
	for _, ref := range []string{a, b} {
		_, err := s.Pull(t.Context(), ref, PullOptions{})
		must(t, err)
	}
	img, err := s.Get(b)
	must(t, err)
	lease, err := s.Lease(img.Layers)
	must(t, err)
	d, err := s.DiskUse(t.Context())
	must(t, err)
	of := map[string]api.ImageUse{d.Images[0].Ref: d.Images[0], d.Images[1].Ref: d.Images[1]}
	if d.Bytes != of[b].Bytes || of[a].UniqueBytes != 0 || of[b].UniqueBytes < 50_000 || of[b].UniqueBytes > 100_000 ||
		of[a].Bytes < 100_000 || d.UnusedBytes != 0 {
		t.Errorf("%+v", d)
	}
	if !of[a].InUse || !of[b].InUse {
		t.Errorf("in use: %+v", d)
	}
	// A reference that is gone leaves unused bytes, as soon as nobody has a lease.
	must(t, os.Remove(s.path(refFile(b))))
	if d, err = s.DiskUse(t.Context()); err != nil || d.UnusedBytes != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	lease.Release()
	if d, err = s.DiskUse(t.Context()); err != nil || d.UnusedBytes < 50_000 || d.UnusedBytes > 100_000 ||
		d.Images[0].InUse {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestPrune: what is in use, also by another process, is never removed.
func TestPrune(t *testing.T) {
	s := openStore(t, Options{})
	registry := it.StartRegistry(t)
	refs := make(map[string]*Image)
	for _, name := range []string{"mine", "theirs", "unused"} {
		ref := push(t, registry, name, it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("f", name)), it.Gzip)}})
		img, err := s.Pull(t.Context(), ref, PullOptions{})
		must(t, err)
		refs[name] = img
	}
	other := openStoreAt(t, s.Dir(), Options{SingleUID: s.opts.SingleUID}) // as a second daemon would
	mine, err := s.Lease(refs["mine"].Layers)
	must(t, err)
	theirs, err := other.Lease(refs["theirs"].Layers)
	must(t, err)
	// Without all, images stay.
	if removed, freed, err := s.Prune(false, nil); err != nil || len(removed) > 0 || freed != 0 {
		t.Errorf("%v, %d, %v", removed, freed, err)
	}
	removed, freed, err := s.Prune(true, nil)
	if err != nil || !slices.Equal(removed, []string{refs["unused"].Ref}) || freed == 0 {
		t.Errorf("%v, %d, %v", removed, freed, err)
	}
	for _, name := range []string{"mine", "theirs"} {
		if _, err := s.Get(refs[name].Ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mine.Release()
	theirs.Release()
	if removed, _, err = s.Prune(true, nil); err != nil || len(removed) != 2 {
		t.Errorf("%v, %v", removed, err)
	}
	wantClean(t, s, 0)
}

// damages are what can happen to a layer, and what Verify says of it.
var damages = map[string]struct {
	do   func(root string) error
	says string
}{
	"content": {func(r string) error { return overwrite(filepath.Join(r, "etc/os")) }, `"etc/os" has another content`},
	"cut":     {func(r string) error { return os.Truncate(filepath.Join(r, "bin/sh"), 1) }, "has another size"},
	"mode": {func(r string) error { return os.Chmod(filepath.Join(r, "bin/sh"), 0o700) },
		`"bin/sh" has another mode`},
	"missing": {func(r string) error { return os.Remove(filepath.Join(r, "etc/os")) }, `"etc/os" is missing`},
	"last":    {func(r string) error { return os.Remove(filepath.Join(r, "zz")) }, `"zz" is missing`},
	"added": {func(r string) error { return os.WriteFile(filepath.Join(r, "etc/new"), nil, 0o600) },
		`"etc/new" was not in the layer`},
	"link":   {func(r string) error { return relink(filepath.Join(r, "ln")) }, `"ln" has another`},
	"kind":   {func(r string) error { return refolder(filepath.Join(r, "etc/os")) }, "is of another kind"},
	"folder": {func(r string) error { return os.RemoveAll(filepath.Join(r, "etc")) }, `"etc" is missing`},
	"attribute changed": {func(r string) error {
		return unix.Setxattr(filepath.Join(r, "etc/marked"), "user.mine", []byte("w"), 0)
	}, `"etc/marked" has other extended attributes`},
	"attribute added": {func(r string) error {
		return unix.Setxattr(filepath.Join(r, "etc/os"), "user.mine",
			[]byte("v"), 0)
	}, `"etc/os" has other extended attributes`},
	"attribute removed": {func(r string) error { return unix.Removexattr(filepath.Join(r, "etc/marked"), "user.mine") },
		`"etc/marked" has other extended attributes`},
	"folder opaque": {func(r string) error {
		return unix.Setxattr(filepath.Join(r, "bin"), "user.overlay.opaque", []byte("y"), 0)
	}, `"bin" has other extended attributes`},
	"attributes": {func(r string) error { return os.Truncate(filepath.Join(path.Dir(r), attributesFile), 0) },
		`"etc/marked" has other extended attributes`},
	"manifest": {func(r string) error {
		return os.WriteFile(filepath.Join(path.Dir(r), manifestFile), []byte("nonsense\n"), 0o600)
	}, "is none"},
	"manifest empty": {func(r string) error { return os.Truncate(filepath.Join(path.Dir(r), manifestFile), 0) },
		"was not in the layer"},
}

// overwrite changes a file and neither its size nor its time.
func overwrite(p string) error {
	st, err := os.Stat(p)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(p, []byte(strings.Repeat("?", int(st.Size()))), 0o600),
		os.Chtimes(p, st.ModTime(), st.ModTime()))
}

func relink(p string) error   { return errors.Join(os.Remove(p), os.Symlink("elsewhere", p)) }
func refolder(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }

// TestVerify: every damage is found, told and repaired; what is whole stays as it is.
func TestVerify(t *testing.T) {
	registry := it.StartRegistry(t)
	img := it.Image{Layers: []it.Layer{
		it.NewLayer(it.Tar(it.Dir("etc/"), it.Text("etc/os", "one"), it.Exec("bin/sh", "elf"), it.Symlink("ln", "etc"),
			it.Text("zz", "last"), it.Hardlink("hard", "zz"),
			it.File{Name: "etc/marked", Content: "m",
				Xattrs: map[string]string{"user.mine": "v", "security.capability": "\x01\x00\x00\x02\x00\x04" +
					strings.Repeat("\x00", 14)}}), it.Gzip),
		it.NewLayer(it.Tar(it.Whiteout("etc", "os"), it.Opaque("bin")), it.Zstd),
	}}
	ref := push(t, registry, "app", img)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{})
			got, err := s.Pull(t.Context(), ref, PullOptions{})
			must(t, err)
			_, err = s.Tag(ref, "other:1")
			must(t, err)
			checks, err := s.Verify(t.Context(), "", VerifyOptions{})
			if err != nil || len(checks) != 2 || checks[0].Status != api.LayerGood ||
				checks[1].Status != api.LayerGood || len(checks[0].Images) != 2 || checks[0].Files < 7 {
				t.Fatalf("whole: %+v, %v", checks, err)
			}
			must(t, damage.do(s.path(got.Layers[0])))
			checks, err = s.Verify(t.Context(), ref, VerifyOptions{})
			if err != nil || checks[0].Status != api.LayerDamaged || checks[1].Status != api.LayerGood ||
				!strings.Contains(strings.Join(checks[0].Problems, "\n"), damage.says) {
				t.Fatalf("damaged: %+v, %v", checks, err)
			}
			// Not while it is used.
			lease, err := s.Lease(got.Layers)
			must(t, err)
			if _, err := s.Verify(t.Context(), ref,
				VerifyOptions{Repair: true}); api.ErrorCode(err) != api.FailedPrecondition {
				t.Errorf("repaired under a sandbox: %v", err)
			}
			lease.Release()
			// By a tag, too, whose own name no registry has.
			checks, err = s.Verify(t.Context(), "other:1", VerifyOptions{Repair: true})
			if err != nil || checks[0].Status != api.LayerRepaired {
				t.Fatalf("repair: %+v, %v", checks, err)
			}
			checks, err = s.Verify(t.Context(), ref, VerifyOptions{})
			if err != nil || checks[0].Status != api.LayerGood {
				t.Errorf("repaired: %+v, %v", checks, err)
			}
			if left, _ := filepath.Glob(filepath.Join(s.path(tmpDir), "*")); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestVerifyMany: more problems than fit are counted.
func TestVerifyMany(t *testing.T) {
	s := openStore(t, Options{})
	var files []it.File
	for i := range maxProblems + 5 {
		files = append(files, it.Text(fmt.Sprintf("f%03d", i), "x"))
	}
	img, err := importing(t, s, it.Tar(files...), false, "x", ImportOptions{Format: api.FormatRootfs})
	must(t, err)
	for _, f := range files {
		must(t, os.Chmod(filepath.Join(s.path(img.Layers[0]), f.Name), 0o600))
	}
	checks, err := s.Verify(t.Context(), "x", VerifyOptions{})
	if err != nil || len(checks[0].Problems) != maxProblems || checks[0].MoreProblems != 5 {
		t.Errorf("%+v, %v", checks, err)
	}
	// No registry has it.
	if _, err := s.Verify(t.Context(), "x", VerifyOptions{Repair: true}); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("repair: %v", err)
	}
	if _, err := s.Verify(t.Context(), "none", VerifyOptions{}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("unknown: %v", err)
	}
}

// TestOlderStore: within a version of the store, what an older build left out is
// unknown, and what a newer one added is not minded.
func TestOlderStore(t *testing.T) {
	s := openStore(t, Options{})
	img, err := importing(t, s, it.Tar(it.Text("f", "x")), false, "x", ImportOptions{Format: api.FormatRootfs})
	must(t, err)
	file := s.path(refFile(img.Ref))
	must(t, os.WriteFile(file,
		fmt.Appendf(nil, `{"ref":%q,"id":%q,"platform":"linux/amd64","config":{"cmd":["x"],"newer":1},"layers":null,"diff_ids":[%q],"newer":true}`,
			img.Ref, img.ID, strings.Replace(strings.TrimSuffix(path.Base(path.Dir(img.Layers[0])), singleSuffix),
				"-", ":",
				1)), 0o600))
	must(t, os.Remove(filepath.Join(path.Dir(s.path(img.Layers[0])), attributesFile)))
	must(t, unix.Setxattr(filepath.Join(s.path(img.Layers[0]), "f"), "user.x", []byte("y"), 0))
	if checks, err := s.Verify(t.Context(), "x", VerifyOptions{}); err != nil || checks[0].Status != api.LayerGood {
		t.Errorf("without recorded attributes: %+v, %v", checks, err)
	}
	must(t, os.Remove(filepath.Join(path.Dir(s.path(img.Layers[0])), manifestFile)))
	must(t, os.WriteFile(filepath.Join(path.Dir(s.path(img.Layers[0])), "newer"), nil, 0o600))
	must(t, s.Close())
	s = openStoreAt(t, s.Dir(), Options{SingleUID: s.opts.SingleUID})
	got, err := s.Get("x")
	must(t, err)
	if !equalJSON(got.Layers, img.Layers) || got.Config.Cmd[0] != "x" {
		t.Errorf("%+v", got)
	}
	checks, err := s.Verify(t.Context(), "x", VerifyOptions{Repair: true})
	if err != nil || checks[0].Status != api.LayerUnknown {
		t.Errorf("%+v, %v", checks, err)
	}
	_, err = s.Tag("x", "y")
	must(t, err)
}
