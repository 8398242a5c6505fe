package testenv

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

func TestIsStatic(t *testing.T) {
	busybox := StaticBusybox(t)
	if static, err := isStatic(busybox); err != nil || !static {
		t.Errorf("%s: %v, %v", busybox, static, err)
	}
	for _, name := range []string{"git", "perl"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if static, err := isStatic(path); err != nil || static {
			t.Errorf("%s: %v, %v", path, static, err)
		}
	}
	if _, err := isStatic("programs_test.go"); err == nil {
		t.Error("a source file is a program")
	}
}

// TestSkips: each says what is missing, or nothing.
func TestSkips(t *testing.T) {
	root := os.Geteuid() == 0
	for name, tt := range map[string]struct {
		ask    func(t testing.TB)
		passes bool
		want   string
	}{
		"Root":    {Root, root, "skip: root: no (uid "},
		"NotRoot": {NotRoot, !root, "skip: ordinary user: no (uid 0); remedy: "},
		"Arch":    {func(t testing.TB) { Arch(t, "m68k", runtime.GOARCH) }, true, ""},
		"Arch, other": {func(t testing.TB) { Arch(t, "m68k", "vax") }, false, "skip: architecture: no (" +
			runtime.GOARCH + "); remedy: a machine with m68k or vax"},
		"Short": {func(t testing.TB) { Short(t, "takes long") }, !testing.Short(),
			"skip: time: no (-short: takes long); remedy: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(RequireVar, "")
			r := &recorder{TB: t}
			tt.ask(r)
			if (r.ended == "") != tt.passes || !tt.passes && !strings.HasPrefix(r.ended, tt.want) {
				t.Errorf("ended by %q, want %q", r.ended, tt.want)
			}
		})
	}
}
