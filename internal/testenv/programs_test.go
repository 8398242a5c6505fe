package testenv

import (
	"os/exec"
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
