package sandbox

import (
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestReadSaved: what a hutchd before has written is read, also of builds that had one word where there is a list, or
// an object, now.
func TestReadSaved(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"now",
			`{"record":{"id":"sb_1","network":{"mode":"allow","require":["ebpf"],"enforcement":{"ebpf":"on"}}},"spec":{"network":{"mode":"allow","require":["ebpf"]}},"user":4294967295}`},
		{"before",
			`{"record":{"id":"sb_1","network":{"mode":"allow","require":"ebpf","enforcement":"ebpf"}},"spec":{"network":{"mode":"allow","require":"ebpf"}},"user":4294967295}`},
	} {
		from, err := readSaved([]byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		want := []api.NetRequire{api.RequireEBPF}
		if !slices.Equal(from.Record.Network.Require, want) || !slices.Equal(from.Spec.Network.Require, want) ||
			from.Record.Network.Mode != api.NetAllow || from.User != 1<<32-1 {
			t.Errorf("%s: %+v", c.name, from)
		}
	}
	for _, text := range []string{`{"record":7}`, `{"record":{"network":{"require":7}}}`, `{`, ``, `[]`,
		`{"spec":{"network":{"require":{}}}}`} {
		if from, err := readSaved([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, from)
		}
	}
}

func FuzzReadSaved(f *testing.F) {
	f.Add([]byte(`{"record":{"network":{"require":"ebpf","enforcement":"ebpf"}},"spec":{"network":{"require":"ebpf"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) { cost.Input(t, data, func(data []byte) { _, _ = readSaved(data) }) })
}
