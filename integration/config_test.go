package integration_test

import "testing"

// TestDefaultImage: the image of a command line that names none is the configured one, and what is wrong with the file is said with its
// name and line. The command line reads none of that itself: hutchd does.
func TestDefaultImage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.importTiny(t, "base:1")
	file := w.path("home/config.yaml")
	for _, tt := range []struct{ text, code, says string }{
		{"", "0", ""},
		{"image: base:1\n", "0", ""},
		{"other: 1\n", "125", "line 1: other not found"},
		{"image: [", "125", "read configuration"},
		{"image: {a: b}", "125", file},
		{"image: host\n---\nimage: host\n", "125", "more than one document"},
	} {
		write(t, file, tt.text)
		r := w.run(t, "run", "-u", "0", "--", "/bin/sh", "-c", "exit 0")
		if tt.code == "0" {
			r.want(t, 0)
		} else {
			r.want(t, 125).says(t, tt.says)
		}
	}
	write(t, file, "image: base:1\n")
	w.ok(t, "run", "-u", "0", "--", "/bin/sh", "-c", "[ -d /dir ]") // which is not the host's
}
