package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// lookedAt is a folder with so many files in it.
func lookedAt(t testing.TB, files int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range files {
		at := filepath.Join(dir, fmt.Sprint(i/100))
		if i%100 == 0 {
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(at, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestForeignLook: a look ends at its bounds and comes to what is nearest to the top; it follows no link, and only
// files and folders count.
func TestForeignLook(t *testing.T) {
	dir := lookedAt(t, 300)
	of := &foreign{source: "/src", is: func(_ int, name string, st *unix.Stat_t) bool {
		return name == "foreign" || st.Mode&unix.S_IFMT == unix.S_IFLNK
	}, why: func(*unix.Stat_t) string { return "why" }}
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if got := of.look(t.Context(), dir, 1000, soon()); got != "" {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "2/foreign"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := of.look(t.Context(), dir, 1000, soon()); !strings.HasPrefix(got,
		"/src/2/foreign cannot be changed: why") {
		t.Errorf("%q", got)
	}
	for what, got := range map[string]string{
		"names": of.look(t.Context(), dir, 3, soon()), "time": of.look(t.Context(), dir, 1000, time.Now()),
		"nothing": of.look(t.Context(), filepath.Join(dir, "none"), 1000, soon()),
	} {
		if got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// TestForeignIn: a folder is looked through where its mode and its user leave something that cannot be changed.
func TestForeignIn(t *testing.T) {
	for _, tt := range []struct {
		mode           api.MountMode
		volume         string
		mapped, single bool
		want           bool
	}{
		{api.ModeOverlay, "", false, false, true}, {api.ModeOverlay, "", false, true, true},
		{api.ModeOverlay, "", true, false, true}, {api.ModeRW, "", true, false, true},
		{api.ModeRW, "", false, false, true}, {api.ModeRW, "", false, true, false},
		{api.ModeRO, "", false, false, false},
		{api.ModeTmpfs, "", false, false, false}, {api.ModeRW, "v", false, false, false},
	} {
		m := api.Mount{Source: "/src", Mode: tt.mode, Volume: tt.volume}
		if got := foreignIn(m, tt.mapped, tt.single) != nil; got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// BenchmarkForeignLook is what a look takes before each sandbox with a folder, and behind a command that failed.
func BenchmarkForeignLook(b *testing.B) {
	of := &foreign{is: isUnmapped}
	dir := lookedAt(b, lateNames)
	for _, names := range []int{earlyNames, lateNames} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			for b.Loop() {
				of.look(b.Context(), dir, names, time.Now().Add(time.Minute))
			}
		})
	}
}
