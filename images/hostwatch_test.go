package images

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/host"
)

// TestHostWatch: whatever changes a source, or makes one, is seen at once, and what changes nothing is not taken for
// it.
func TestHostWatch(t *testing.T) {
	root := fakeHost(t, debianLike)
	s := openStore(t, Options{})
	built := func() *HostImage {
		t.Helper()
		img, err := s.Host(HostOptions{Root: root})
		must(t, err)
		return img
	}
	cert, certs := filepath.Join(root, "etc/ssl/certs/new.crt"), filepath.Join(root, "etc/ssl/certs")
	was := built()
	if s.host.watch == nil {
		t.Fatal("nothing is watched")
	}
	for _, step := range []struct {
		name string
		act  func() error
		same bool
	}{
		{"nothing", func() error { return nil }, true},
		{"made", func() error { return os.WriteFile(cert, []byte("one"), 0o644) }, false},
		{"written, in place, as long, and as old", func() error {
			st, err := os.Stat(cert)
			must(t, err)
			f, err := os.OpenFile(cert, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString("two")
			must(t, err)
			must(t, f.Close())
			return os.Chtimes(cert, st.ModTime(), st.ModTime())
		}, false},
		{"mode", func() error { return os.Chmod(cert, 0o600) }, false},
		{"replaced", func() error {
			must(t, os.WriteFile(cert+".tmp", []byte("three"), 0o644))
			return os.Rename(cert+".tmp", cert)
		}, false},
		{"read", func() error { _, err := os.ReadFile(cert); return err }, true},
		{"another file", func() error { return os.WriteFile(filepath.Join(root, "srv-file"), []byte("x"), 0o600) },
			true},
		{"removed", func() error { return os.Remove(cert) }, false},
		{"folder moved", func() error { return os.Rename(certs, certs+"-") }, false},
		{"and back", func() error { return os.Rename(certs+"-", certs) }, false},
		{"in it again", func() error { return os.WriteFile(cert, []byte("four"), 0o644) }, false},
		{"by a part of the way", func() error { return os.MkdirAll(filepath.Join(root, "nix/store/x"), 0o755) }, false},
	} {
		must(t, step.act())
		now := built()
		if same := now == was; same != step.same {
			t.Errorf("%s: the same %v, want %v", step.name, same, step.same)
		}
		if again := built(); again != now {
			t.Errorf("%s: another one without a change", step.name)
		}
		was = now
	}
	// What the kernel does not tell of is seen later.
	other := filepath.Join(t.TempDir(), "name")
	must(t, os.Link(cert, other))
	was = built()
	must(t, os.WriteFile(other, []byte("five!"), 0o644))
	s.host.watch.Made = time.Now().Add(-host.Relook)
	if now := built(); now == was {
		t.Error("what was written by another name is never seen")
	}
}

// TestHostNotWatched: where inotify is used up, the host is looked at as before.
func TestHostNotWatched(t *testing.T) {
	root := fakeHost(t, debianLike)
	s := openStore(t, Options{})
	was, err := s.Host(HostOptions{Root: root})
	must(t, err)
	s.host.watch.Close()
	s.host.watch = nil
	must(t, os.WriteFile(filepath.Join(root, "etc/ssl/certs/new.crt"), []byte("one"), 0o644))
	if now, err := s.Host(HostOptions{Root: root}); err != nil || now != was {
		t.Errorf("looked at again within a moment: %v", err)
	}
	s.host.checked = time.Time{}
	if now, err := s.Host(HostOptions{Root: root}); err != nil || now == was {
		t.Errorf("a change is not seen: %v", err)
	}
}
