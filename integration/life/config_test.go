package life_test

import (
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
)

// TestDefaultImage: the image of a command line that names none is the configured one, and what is wrong with the file
// is said with its name and line. The command line reads none of that itself: hutchd does.
func TestDefaultImage(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	file := w.Path("home/config.yaml")
	for _, tt := range []struct{ text, code, says string }{
		{"", "0", ""},
		{"image: base:1\n", "0", ""},
		{"other: 1\n", "125", "line 1: other not found"},
		{"image: [", "125", "read configuration"},
		{"image: {a: b}", "125", file},
		{"image: host\n---\nimage: host\n", "125", "more than one document"},
	} {
		world.Write(t, file, tt.text)
		r := w.Run(t, "run", "-u", "0", "--", "/bin/sh", "-c", "exit 0")
		if tt.code == "0" {
			r.Want(t, 0)
		} else {
			r.Want(t, 125).Says(t, tt.says)
		}
	}
	world.Write(t, file, "image: base:1\n")
	w.OK(t, "run", "-u", "0", "--", "/bin/sh", "-c", "[ -d /dir ]") // which is not the host's
}
