package world

import (
	"os/exec"
	"strings"
	"testing"
)

// SameTree says whether the sandbox has what a folder of the host's has: names, types, sizes, times of files and, if
// folders says so, of folders.
func SameTree(t *testing.T, w *World, sb, dir, there string, folders bool) {
	t.Helper()
	list := `cd "$1" && find . -mindepth 1 \( -type f -printf '%p f %s %T@\n' -o -type l -printf '%p l %l\n' -o -type d -printf '%p d` +
		map[bool]string{true: " %T@"}[folders] + `\n' \) | LC_ALL=C sort`
	out, err := exec.Command("sh", "-c", list, "sh", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := w.OK(t, "exec", sb, "sh", "-c", list, "sh", there)
	if theirs == string(out) {
		return
	}
	a, b := strings.Split(string(out), "\n"), strings.Split(theirs, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("%s is not %s: %q, want %q", there, dir, b[i], a[i])
			return
		}
	}
	t.Errorf("%s has %d lines, want %d", there, len(b), len(a))
}
