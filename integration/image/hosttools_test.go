package image_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestHostPrograms: programs that keep parts of themselves in /etc work in the image host, and who installs something
// there is told what to do.
func TestHostPrograms(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	if out := w.OK(t, "run", "host", "sh", "-c", "su daemon -s /bin/sh -c 'id -un'"); out != "daemon\n" {
		t.Errorf("su: %q", out)
	}
	for _, tt := range []struct{ program, version string }{{"mvn", "Apache Maven"}, {"chromium", "Chromium"},
		{"php", "PHP"}, {"R", "R version"}} {
		if _, err := exec.LookPath("/usr/bin/" + tt.program); err != nil {
			continue // the host's
		}
		if out := w.OK(t, "run", "host", tt.program, "--version"); !strings.Contains(out, tt.version) {
			t.Errorf("%s: %q", tt.program, out)
		}
	}
	w.Run(t, "run", "host", "sh", "-c", "apt-get install -y hello 2>/dev/null || exit 1").Want(t, 1).
		Says(t, "hutch: hint: the image host", "hutch run debian:12")
	if m := w.Run(t, "run", "host", "sh", "-c", "apt-get install -y hello || true"); strings.Contains(m.Stderr,
		"hint") {
		t.Errorf("who succeeds is told: %s", m.Stderr)
	}
}
