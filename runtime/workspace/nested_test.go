package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestInOrder(t *testing.T) {
	got, err := inOrder([]api.Mount{{Target: "/a/b/c"}, {Target: "/z"}, {Target: "/a/"}, {Target: "/a/b"}})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range got {
		targets = append(targets, m.Target)
	}
	if want := []string{"/z", "/a", "/a/b", "/a/b/c"}; !slices.Equal(targets, want) {
		t.Errorf("got %v, want %v", targets, want)
	}
	_, err = inOrder([]api.Mount{{Source: "/x", Target: "/a/b"}, {Source: "/y", Target: "/a//b/"}})
	if api.ErrorCode(err) != api.InvalidArgument {
		t.Errorf("one target twice: %v, want invalid_argument", err)
	}
}

// TestCheckNested: a target in a folder of the caller's must exist there, without
// a symlink on the way; hutch makes nothing in such a folder.
func TestCheckNested(t *testing.T) {
	dir := t.TempDir()
	outer := At(dir, 0)
	if err := os.MkdirAll(filepath.Join(outer, "real/deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(outer, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target string
		mode   api.MountMode
		ok     bool
	}{
		{"/w/real", api.ModeRW, true},
		{"/w/real/deep", api.ModeRO, true},
		{"/elsewhere", api.ModeRW, true},
		{"/wide/real", api.ModeRW, true},
		{"/w/missing", api.ModeRW, false},
		{"/w/real/missing", api.ModeRO, false},
		{"/w/link", api.ModeRW, false},
		{"/w/link/deep", api.ModeRW, false},
		{"/w/missing", api.ModeOverlay, true},
	} {
		before := []api.Mount{{Source: "/home/u/w", Target: "/w", Mode: c.mode}}
		err := checkNested(dir, before, api.Mount{Source: "/home/u/x", Target: c.target})
		if (err == nil) != c.ok || err != nil && api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%s in a folder mounted %s: %v, want allowed %v", c.target, c.mode, err, c.ok)
		}
		if _, err := os.Lstat(filepath.Join(outer, "missing")); !os.IsNotExist(err) {
			t.Fatalf("it was made: %v", err)
		}
	}
}
