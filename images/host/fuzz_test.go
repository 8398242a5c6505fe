package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func FuzzConffiles(f *testing.F) {
	f.Add("Package: x\nConffiles:\n /etc/a 9dd4e461268c8034f5c8564e155c67a6\n")
	f.Add("\nConffiles:\n /etc/a\n x\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(dpkgStatus)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, dpkgStatus), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var found map[string]string
		cost.Of(t, len(text), func() { found = (Root{Dir: dir}).conffiles() })
		for p, sum := range found {
			if !strings.HasPrefix(p, "/etc/") || filepath.Clean(p) != p || len(sum) != 32 || notConffiles[p] {
				t.Errorf("%q %q", p, sum)
			}
		}
	})
}
