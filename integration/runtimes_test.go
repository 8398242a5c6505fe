package integration_test

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
)

// TestRuntimes: names of the configuration file stand for images wherever one is named.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	ref := push(t, registry, "tiny", tinyImage(t)) // with the tag 1
	host := strings.TrimSuffix(ref, "tiny:1")
	w.configure(t, "image: tiny\nruntimes:\n  tiny: tiny@1\n  \"tiny@*\": \""+host+"tiny:*\"\n  me: host\n")
	for _, name := range []string{"tiny", "tiny@1"} {
		if got := w.ok(t, "run", name); got != "tiny\n" {
			t.Errorf("%s: %q", name, got)
		}
		if got := w.ok(t, "image", "inspect", name); !strings.Contains(got, ref) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := w.ok(t, "run", "--", "sh", "-c", "echo default"); got != "default\n" { // the configured image
		t.Errorf("%q", got)
	}
	w.ok(t, "run", "me", "true")
	w.ok(t, "image", "pull", "-q", "tiny@1")
	w.ok(t, "image", "verify", "tiny")
	w.ok(t, "image", "tag", "tiny@1", "mine")
	// The version is the registry's business, and the error names what was asked for there.
	w.run(t, "run", "tiny@2", "true").want(t, 125).says(t, host+"tiny:2", "try:")
	w.run(t, "run", "--pull", "never", "python@3.11", "true").want(t, 125).says(t, "docker.io/library/python:3.11-slim")
	w.ok(t, "image", "rm", "tiny")

	// Read again, another table.
	w.configure(t, "runtimes:\n  tiny: mine\n")
	w.ok(t, "config", "reload")
	if got := w.ok(t, "run", "--pull", "never", "tiny"); got != "tiny\n" {
		t.Errorf("reloaded: %q", got)
	}
	w.configure(t, "runtimes:\n  a: b\n  b: a\n")
	w.run(t, "config", "check").want(t, 125).says(t, "circles", "line 2")
	w.configure(t, "")
	w.removeLayers(t)
}
