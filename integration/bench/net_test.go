package main

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestNetload: each command does what it says, and one that fails says why.
func TestNetload(t *testing.T) {
	testenv.Require(t, compiler())
	h := testHost(t)
	s, err := h.serve()
	if err != nil {
		t.Fatal(err)
	}
	r, err := openDirect(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what string
		port uint16
		n    int
	}{
		{"connect", s.byte, 3}, {"down", s.source, bulk}, {"up", s.sink, bulk}, {"http", s.http, 20},
		{"hold", s.byte, 10}, {"drop", s.byte, 1},
	} {
		sample, err := r.prepared(tc.what, tc.port, tc.n).Run(t.Context())
		if err != nil || sample.Wall <= 0 {
			t.Errorf("%s: %v, %v", tc.what, sample.Wall, err)
		}
	}
	if _, err := r.load.do("connect", target{r.address, 1}, 1); err == nil ||
		!strings.Contains(err.Error(), "Connection refused") {
		t.Errorf("nothing listens on port 1: %v", err)
	}
}
