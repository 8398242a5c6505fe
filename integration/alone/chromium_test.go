package alone_test

import (
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestChromium: a browser locks its renderers up, with no switch that turns that off, and nothing that it tries by
// itself is reported; under the default profile it says that it cannot.
func TestChromium(t *testing.T) {
	testenv.Axes(t, testenv.User)
	const chromium = "/usr/lib/chromium/chromium" // Debian's /usr/bin/chromium is a script that reads the host's /etc
	if _, err := os.Stat(chromium); err != nil {
		testenv.Require(t, probe.Check{
			Name: "chromium", Status: probe.No, Detail: err.Error(), Remedy: "apt-get install chromium",
		})
	}
	w := world.New(t)
	render := func(profile string) world.Result {
		return w.Run(t, "run", "--seccomp", profile, "--ids", "real", "-u", "1000", "-e", "HOME=/tmp", "--timeout",
			"2m", "host", "--",
			chromium, "--headless", "--disable-gpu", "--dump-dom",
			"data:text/html,<p id=x></p><script>x.textContent=6*7</script>")
	}
	if r := render("browser"); !strings.Contains(r.Stdout, `<p id="x">42</p>`) {
		if strings.Contains(r.Stderr, "no such user") || strings.Contains(r.Stderr, "not mapped") {
			testenv.Require(t, probe.SubIDs())
		}
		t.Errorf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
	} else if strings.Contains(r.Stderr, "was refused") { // what it tries by itself is no news
		t.Errorf("%s", r.Stderr)
	}
	if r := render("default"); r.Code == 0 || !strings.Contains(r.Stderr, "No usable sandbox") {
		t.Errorf("under the default profile: exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}
