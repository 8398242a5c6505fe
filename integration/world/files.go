package world

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Fails checks an error's code, that it has a hint, and what it says.
func Fails(t testing.TB, err error, code api.Code, parts ...string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code || e.Hint == "" {
		t.Errorf("got %v (%+v), want %s with a hint", err, e, code)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// Python runs a script in a new sandbox of the host image and returns its
// output without the last newline.
func (w *World) Python(t testing.TB, script string, flags ...string) string {
	t.Helper()
	NeedsPython(t)
	args := append(append([]string{"run"}, flags...), "host", "--", "/usr/bin/python3", "-c", script)
	return strings.TrimSuffix(w.OK(t, args...), "\n")
}

// Open is os.OpenFile for tests; the file is closed with the test.
func Open(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Write writes a file, and returns its path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Read reads a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Apply applies; root names the folder.
func Apply(t *testing.T, w *World, dir string, code int, args ...string) Result {
	t.Helper()
	if os.Getuid() == 0 {
		args = append([]string{"--folder", dir}, args...)
	}
	return w.Run(t, append([]string{"workspace", "apply"}, args...)...).Want(t, code)
}

// List is every file below a folder with what it holds.
func List(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.WriteString(p + "\n")
		if e.Type().IsRegular() {
			b.WriteString(Read(t, p))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
