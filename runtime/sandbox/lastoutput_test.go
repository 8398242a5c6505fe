package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// TestKeepLastOutput: what a command has written is kept whole, or nothing of it.
func TestKeepLastOutput(t *testing.T) {
	for _, tt := range []struct {
		name string
		room int // bytes of the longest name below the sandbox's folder
		err  error
	}{{"kept", 100, nil}, {"not all", len("/output/0"), unix.ENAMETOOLONG}} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for left := unix.PathMax - 1 - tt.room - len(dir); left > 1; left = unix.PathMax - 1 - tt.room - len(dir) {
				dir += "/" + strings.Repeat("d", min(left-1, 200))
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(t.TempDir(), "0")
			if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			st, err := storedStream(file)
			if err != nil {
				t.Fatal(err)
			}
			defer st.close()
			s := &Sandbox{dir: dir}
			r := &running{id: "ex", s: s, exec: &guestapi.Exec{}, done: make(chan struct{}),
				io: &stdio{streams: []*stream{st}}}
			close(r.done)
			s.ended = []*running{r}
			if err := s.keepLastOutput(); !errors.Is(err, tt.err) {
				t.Errorf("%v, want %v", err, tt.err)
			}
			if _, err := os.Lstat(filepath.Join(dir, outputDir)); errors.Is(err, fs.ErrNotExist) != (tt.err != nil) {
				t.Errorf("its folder: %v", err)
			}
			if tt.err != nil {
				return
			}
			if got, err := os.ReadFile(filepath.Join(dir, outputDir, "0")); string(got) != "text" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestRecallOutput: what is no record of a command is refused, and the error says why.
func TestRecallOutput(t *testing.T) {
	s := &Sandbox{dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(s.dir, outputDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, outputDir, aboutFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Manager{}).recallOutput(s); err == nil || !strings.Contains(err.Error(), "no exit code") ||
		len(s.ended) > 0 {
		t.Errorf("%v", err)
	}
}
