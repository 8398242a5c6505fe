package images

import (
	"encoding/json"
	"testing"
)

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:5000": true, "127.0.0.1:5000": true, "127.8.9.1": true, "[::1]:5000": true, "[::1]": true,
		"docker.io": false, "localhost.example.com": false, "127.0.0.1.example.com:5000": false, "10.0.0.1:5000": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("isLoopback(%q) = %v", host, got)
		}
	}
}
