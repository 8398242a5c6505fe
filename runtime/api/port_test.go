package api

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestParsePortAddress(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", "127.0.0.1:0"}, {"8080", "127.0.0.1:8080"}, {"0", "127.0.0.1:0"}, {"localhost:1", "127.0.0.1:1"},
		{"0.0.0.0:8080", "0.0.0.0:8080"},
		{"[::1]:65535", "[::1]:65535"}, {"[::]:0", "[::]:0"}, {"/tmp/a b.sock", "/tmp/a b.sock"},
		{":80", ""}, {"80:", ""}, {"127.0.0.1", ""}, {"127.0.0.1:65536", ""}, {"127.0.0.1:-1", ""},
		{"127.0.0.1:+1", ""}, {"::1:80", ""}, {"a.test:80", ""}, {"0177.0.0.1:80", ""},
		{"[::ffff:127.0.0.1]:80", ""}, {"[fe80::1%lo]:80", ""}, {"/tmp/../etc/x", ""}, {"/", ""}, {"/a\x00b", ""},
		{"/" + strings.Repeat("x", 107), ""}, {"tmp/x", ""},
		{"99999999999999999999", ""},
	} {
		a, err := ParsePortAddress(tt.in)
		if got := a.String(); (err != nil) != (tt.want == "") || err == nil && got != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}

func TestParsePublish(t *testing.T) {
	for _, tt := range []struct {
		in, address string
		port        int
	}{
		{"80", "", 80}, {"8080:80", "8080", 80}, {"0:80", "0", 80}, {":80", "0", 80},
		{"127.0.0.1::80", "127.0.0.1:0", 80}, {"0.0.0.0:8080:80", "0.0.0.0:8080", 80},
		{"[::1]:8080:80", "[::1]:8080", 80}, {"/tmp/s:80", "/tmp/s", 80}, {"8080:80/tcp", "8080", 80},
		{"", "", 0}, {"0", "", 0}, {"80:0", "", 0}, {"80/udp", "", 0}, {"a:80", "", 0}, {"8080:http", "", 0},
		{"::1:80:80", "", 0}, {"/tmp/s", "", 0},
	} {
		p, err := ParsePublish(tt.in)
		if (err != nil) != (tt.port == 0) || err == nil && (p.Address != tt.address || p.Port != tt.port) {
			t.Errorf("%q: %+v, %v", tt.in, p, err)
		}
	}
}

func FuzzParsePublish(f *testing.F) {
	for _, s := range []string{"80", "[::1]:0:80", "/a:1", "0.0.0.0:1:2/tcp"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var p PortPublish
		var err error
		cost.Input(t, s, func(s string) { p, err = ParsePublish(s) })
		if err != nil {
			return
		}
		a, err := ParsePortAddress(p.Address)
		if err != nil || p.Port < 1 || p.Port > 65535 {
			t.Fatalf("%q: %+v, %v", s, p, err)
		}
		if again, err := ParsePortAddress(a.String()); err != nil || again != a {
			t.Fatalf("%q: %v is read as %v, %v", s, a, again, err)
		}
	})
}
