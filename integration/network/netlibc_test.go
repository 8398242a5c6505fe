package network_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestNetworkLibc: each library that resolves names in its own way finds what it may, and
// is told at once that there is nothing else: some wait for seconds after any other answer
// than "no such name".
func TestNetworkLibc(t *testing.T) {
	t.Parallel()
	w := newNetWorld(t, []string{"web.test", "evil.test"})
	port := webServer(t, "hello")
	sb := w.allowing(t, fmt.Sprintf("web.test:%d", port))
	for name, tt := range map[string]struct {
		program     func(testing.TB) string
		none, other string // what it says when there is no such name, and of EACCES
	}{
		"Go": {func(t testing.TB) string { return testenv.Bin(t, "test-resolve") }, "no such host",
			"permission denied"},
		"glibc":       {compiled("cc"), "Name or service not known", "Permission denied"},
		"musl":        {compiled("musl-gcc"), "Name does not resolve", "Permission denied"},
		"musl static": {compiled("musl-gcc", "-static"), "Name does not resolve", "Permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			inside := "/tmp/" + strings.ReplaceAll(name, " ", "-")
			w.OK(t, "cp", tt.program(t), sb+":"+inside)
			to := func(name string, port uint16) string { return fmt.Sprintf("%s %s %d", inside, name, port) }
			w.fetches(t, sb, to("web.test", port), "hello web.test")
			w.fetches(t, sb, to("WEB.tEst.", port), "hello")
			w.denied(t, sb, to("evil.test", port), tt.none, byName("evil.test", "mode allow"))
			w.denied(t, sb, to("web.test", 9), "", byName("web.test", "mode allow"))
			// 10.0.0.1, in every way in which C libraries let it be written.
			for _, literal := range []string{"10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fd00::1"} {
				w.denied(t, sb, to(literal, port), tt.other, nil)
			}
			if name != "Go" { // for which these are names, and no such
				for _, literal := range []string{"012.0.0.1", "0xa000001", "167772161", "10.1"} {
					w.denied(t, sb, to(literal, port), tt.other, nil)
				}
			}
			took := regexp.MustCompile(`looked up in (\d+) ms`).
				FindStringSubmatch(w.in(t, sb, to("evil.test", port)).Stdout)
			if took == nil {
				t.Fatal("it does not say how long it took")
			}
			if ms, err := strconv.Atoi(took[1]); err != nil ||
				time.Duration(ms)*time.Millisecond >= testenv.Patience(time.Second) {
				t.Errorf("it took %s ms to learn that there is no such name", took[1])
			}
		})
	}
	w.OK(t, "rm", "-f", sb)
}

// compiled is testdata/resolve.c, made by a compiler.
func compiled(compiler string, flags ...string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		world.Needs(t, compiler)
		out := filepath.Join(t.TempDir(), "resolve")
		cmd := exec.Command(compiler, append(flags, "-o", out, "testdata/resolve.c")...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", cmd.Args, err, text)
		}
		return out
	}
}
