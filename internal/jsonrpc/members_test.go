package jsonrpc

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// FuzzMembers: what is JSON is split as encoding/json splits it, and nothing else breaks.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":1,"a":[2,{"b":"]}"}]}`, `{"a":"\\","b":"\"}","":null}`,
		`{"m\u0065thod":-1.5e3 , "x" : true}`, `{"é":"\ud800"}`, `[1]`, `null`, `1`, `"a"`, `{"a":{}}x`, `{"a"`,
		`{"a":`, `{"a":1,}`, `{,}`, `{"a":}`, `{"`, `{"\`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got map[string]json.RawMessage
		var ok bool
		cost.Input(t, data, func(data []byte) { got, ok = Members(data) })
		if !json.Valid(data) {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(data, &want); (err == nil && want != nil) != ok || len(got) != len(want) {
			t.Fatalf("%q: %v %q, want %v %q", data, ok, got, err, want)
		}
		for name, value := range want {
			if string(got[name]) != string(value) {
				t.Errorf("%q: %s is %q, want %q", data, name, got[name], value)
			}
		}
	})
}

func BenchmarkMembers(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"fs.write","params":{"data":"` + strings.Repeat("QUJD", 1<<19) + `"}}`)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, ok := Members(line); !ok {
			b.Fatal("no object")
		}
	}
}
