package cli

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestParseMount(t *testing.T) {
	for _, tt := range []struct {
		in    string
		want  api.Mount
		fails string
	}{
		{"type=bind,src=/a,dst=/b", api.Mount{Source: "/a", Target: "/b", Mode: api.ModeRW}, ""},
		{"type=bind,source=./a,target=/b,readonly", api.Mount{Source: "./a", Target: "/b", Mode: api.ModeRO}, ""},
		{"type=bind,source=a,destination=/b,readonly=false", api.Mount{Source: "./a", Target: "/b", Mode: api.ModeRW}, ""},
		{"type=bind,src=/a,dst=/b,mode=overlay", api.Mount{Source: "/a", Target: "/b", Mode: api.ModeOverlay}, ""},
		{"src=cache,dst=/c", api.Mount{Volume: "cache", Target: "/c", Mode: api.ModeRW}, ""},
		{"type=tmpfs,dst=/t", api.Mount{}, "no tmpfs"},
		{"type=npipe,src=a,dst=/t", api.Mount{}, "none of bind and volume"},
		{"type=bind,src=/a", api.Mount{}, "wants src=SRC"},
		{"type=bind,src=/a,dst=b", api.Mount{}, "absolute"},
		{"type=bind,src=/a,dst=/b:ro", api.Mount{}, "no colon"},
		{"type=bind,src=/a,dst=/b,bind-propagation=rshared", api.Mount{}, "keys are"},
		{"type=volume,src=/a,dst=/b", api.Mount{}, "type=bind"},
		{"type=bind,src=/a,dst=/b,mode=x", api.Mount{}, "unknown mode"},
		{"", api.Mount{}, "keys are"},
	} {
		got, err := ParseMount(tt.in)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: %v", tt.in, err)
			}
		} else if err != nil || got.Source != tt.want.Source || got.Target != tt.want.Target || got.Mode != tt.want.Mode || got.Volume != tt.want.Volume {
			t.Errorf("%s: %+v, %v", tt.in, got, err)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add("type=bind,src=/a,dst=/b,readonly")
	f.Add("src=v,dst=/b,mode=overlay")
	f.Fuzz(func(t *testing.T, s string) {
		var m api.Mount
		var err error
		cost.Of(t, len(s), func() { m, err = ParseMount(s) })
		if err == nil && (!strings.HasPrefix(m.Target, "/") || m.Target == "/" || m.Source == "" && m.Volume == "") {
			t.Errorf("%q: %+v", s, m)
		}
	})
}
