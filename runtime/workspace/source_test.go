package workspace

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheckSource(t *testing.T) {
	h := &Host{Forbidden: []string{"/home/u/.local/share/hutch", "/run/hutch/hutchd.sock"}}
	for path, ok := range map[string]bool{
		"/home/u/project":                   true,
		"/home/u/.local/share/hutch2":       true,
		"/run/hutch":                        false, // holds the socket
		"/home/u":                           false, // holds the state
		"/":                                 false,
		"/home/u/.local/share/hutch":        false,
		"/home/u/.local/share/hutch/images": false,
		"/home/u/x/../.local/share/hutch/a": false,
	} {
		if err := h.checkSource(path); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", path, err, ok)
		}
	}
}

// TestCheckSourceLinks: what is trusted is found by links, which may be others than when the daemon started, and by
// bind mounts; none of them may be in a folder that is mounted.
func TestCheckSourceLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"home/config", "dotfiles/hutch", "var/home/work"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := &Host{Forbidden: []string{filepath.Join(dir, "home/config/hutch/config.yaml"), filepath.Join(dir, "h/state")}}
	check := func(name string, ok bool) {
		t.Helper()
		if err := h.checkSource(filepath.Join(dir, name)); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", name, err, ok)
		}
	}
	check("dotfiles", true)
	// while the daemon runs
	for name, to := range map[string]string{"home/config/hutch": "../../dotfiles/hutch", "h": "var/home"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	check("dotfiles", false)
	check("dotfiles/hutch", false)
	check("home/config", false)
	check("var/home/state", false)
	check("h/work", true) // beside the state, behind the same link
	check("var/home/work", true)
	for name, ok := range map[string]bool{"dotfiles": false, "home/config": false, "var/home/work": true,
		"var/home": false} {
		src, err := OpenPath(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.checkSame("/by/another/name", src); (err == nil) != ok {
			t.Errorf("%s by another name: %v, want allowed %v", name, err, ok)
		}
		_ = src.Close()
	}
}
