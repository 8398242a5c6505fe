package main

import (
	"testing"

	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMayFetch: a model names images of the registries that its user has named, and with a network of Docker Hub.
func TestMayFetch(t *testing.T) {
	none, some := api.NetPolicy{}, api.NetPolicy{Mode: api.NetAllow, Allow: []string{"a.test"}}
	for _, tt := range []struct {
		image   string
		network api.NetPolicy
		want    bool
	}{
		{"", none, true}, {"ghcr.io/mine/own:1", none, true}, {"python@3.12", none, true},
		{"debian:12", none, false}, {"debian:12", some, true}, {"docker.io/library/debian", some, true},
		{"someone/some", some, true},
		{"debian:12", api.NetPolicy{Tier: api.TierRestricted}, false},
		{"debian:12", api.NetPolicy{Tier: api.TierStandard}, true},
		{"ghcr.io/mine/other:1", some, false}, {"127.0.0.1:5000/x", some, false}, {"localhost/x", some, false},
		{"[::1]:80/x", some, false},
		{"quay.io/x/y", none, true}, {"quay.io:443/x/y", none, false}, {"QUAY.IO/x", none, false},
		{"python@sha256:0123", none, false}, {"evil.test/python@3.12", some, false},
	} {
		b := &boxes{cfg: mcpapi.Config{Spec: api.Spec{Image: "ghcr.io/mine/own:1", Network: tt.network},
			Registries: []string{"quay.io"}}}
		if got := b.mayFetch(tt.image); got != tt.want {
			t.Errorf("%q with network %+v: %v, want %v", tt.image, tt.network, got, tt.want)
		}
	}
}
