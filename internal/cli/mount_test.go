package cli

import (
	"reflect"
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
		{"type=bind,source=a,destination=/b,readonly=false",
			api.Mount{Source: "./a", Target: "/b", Mode: api.ModeRW}, ""},
		{"type=bind,src=/a,dst=/b,mode=overlay", api.Mount{Source: "/a", Target: "/b", Mode: api.ModeOverlay}, ""},
		{"src=cache,dst=/c", api.Mount{Volume: "cache", Target: "/c", Mode: api.ModeRW}, ""},
		{"type=tmpfs,dst=/t", api.Mount{Target: "/t", Mode: api.ModeTmpfs}, ""},
		{"type=tmpfs,dst=/t,tmpfs-size=1m,tmpfs-mode=0700",
			api.Mount{Target: "/t", Mode: api.ModeTmpfs, SizeBytes: 1 << 20, Permissions: "0700"}, ""},
		{"type=tmpfs,src=/a,dst=/t", api.Mount{}, "no src"},
		{"type=tmpfs,dst=/t,ro", api.Mount{}, "can be written"},
		{"type=bind,src=/a,dst=/t,tmpfs-size=1m", api.Mount{}, "for type=tmpfs"},
		{"type=npipe,src=a,dst=/t", api.Mount{}, "none of bind, volume and tmpfs"},
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
		} else if err != nil || !reflect.DeepEqual(got, tt.want) {
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
		if err == nil && (!strings.HasPrefix(m.Target, "/") || m.Target == "/" || m.OfHost() && m.Source == "") {
			t.Errorf("%q: %+v", s, m)
		}
	})
}

func TestParseTmpfs(t *testing.T) {
	for _, tt := range []struct {
		in    string
		want  api.Mount
		fails string
	}{
		{"/t", api.Mount{Target: "/t", Mode: api.ModeTmpfs}, ""},
		{"/t:rw,noexec,nosuid,size=64m,mode=1770", api.Mount{Target: "/t", Mode: api.ModeTmpfs, SizeBytes: 64 << 20,
			NoExec: true, Permissions: "1770"}, ""},
		{"t", api.Mount{}, "absolute"},
		{"/", api.Mount{}, "not /"},
		{"/t:size=0", api.Mount{}, "no size"},
		{"/t:size=x", api.Mount{}, "x"},
		{"/t:ro", api.Mount{}, "options are"},
		{"/t:", api.Mount{}, "options are"},
	} {
		got, err := ParseTmpfs(tt.in)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: %v", tt.in, err)
			}
		} else if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v", tt.in, got, err)
		}
	}
}
