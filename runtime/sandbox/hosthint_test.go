package sandbox

import (
	"strings"
	"testing"
)

// TestHintOf: who installs something in the image host is told what to do, and nobody else is.
func TestHintOf(t *testing.T) {
	for _, tt := range []struct {
		command  string
		writable bool
		want     string // in the hint; "" is none
	}{
		{"apt-get install -y hello", false, "an image of a distribution"},
		{"sudo apt update && sudo apt install hello", true, "an image of a distribution"},
		{"/usr/bin/dnf install x", false, "an image of a distribution"},
		{"cd /tmp; pip install six", false, "virtual environment"},
		{"python3 -m pip install -r requirements.txt", false, "virtual environment"},
		{"pip install six", true, ""},
		{"pip list", false, ""},
		{"echo pip; ls install", false, ""},
		{"npm i -g left-pad", false, "--prefix"},
		{"npm install left-pad", false, ""},
		{"(make && make install)", false, "DESTDIR"},
		{"make test", false, ""},
		{"gem install x", false, "--user-install"},
		{"./apt.sh", false, ""},
		{"", false, ""},
	} {
		got := hintOf([]string{"sh", "-c", tt.command}, tt.writable)
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.command, got, tt.want)
		}
	}
}
