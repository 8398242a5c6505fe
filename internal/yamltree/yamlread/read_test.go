package yamlread

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/yamltree"
)

// served is what another process gets of a text.
func served(t *testing.T, text string) (a yamltree.Answer) {
	t.Helper()
	var out bytes.Buffer
	if err := Serve(strings.NewReader(text), &out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestServe: what another process is told is what Parse has found.
func TestServe(t *testing.T) {
	for _, text := range []string{
		"", "# nothing\n", "a: 1\nb: [x, 0x10, 1.5, yes, ~, .inf]\nc: {d: 'e', f: !!binary aGk=}\n", "- &x 1\n- *x\n",
		"a: [", "a: 1\n---\nb: 2\n", "2001-01-01", "\xff",
	} {
		want, err := Parse([]byte(text))
		a := served(t, text)
		if !reflect.DeepEqual(a.Root, want) {
			t.Errorf("%q: %+v, want %+v", text, a.Root, want)
		}
		if said := a.Error != ""; said != (err != nil && !errors.Is(err, io.EOF)) || said && a.Error != err.Error() {
			t.Errorf("%q: %q, want %v", text, a.Error, err)
		}
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]any{
		"5": 5, "-0x10": -16, "0o17": 15, "12345678901234567890": json.Number("12345678901234567890"),
		"1.5":  json.Number("1.5"),
		"true": true, "yes": "yes", "~": nil, "''": "", "'5'": "5", "!!str 5": "5", "text": "text",
		"2001-01-01": "2001-01-01T00:00:00Z",
	} {
		n, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := n.Plain(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v, want %#v", text, got, err, want)
		}
	}
	for _, text := range []string{".inf", ".nan", "!!int x"} {
		n, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := n.Plain(); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestTruth(t *testing.T) {
	for text, want := range map[string]string{"true": "true", "yes": "true", "off": "false", "False": "false", "1": "",
		"~": "", "x": ""} {
		n, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := n.Truth()
		if (err != nil) != (want == "") || err == nil && got != (want == "true") {
			t.Errorf("%s: %t, %v, want %q", text, got, err, want)
		}
	}
}

// FuzzServe: whatever the text, another process gets what Parse has found.
func FuzzServe(f *testing.F) {
	f.Add("a: [1, {b: c}]")
	f.Add("&a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		var want *yamltree.Node
		var perr error
		cost.Input(t, text, func(text string) { want, perr = Parse([]byte(text)) })
		a := served(t, text)
		if (a.Root == nil) != (want == nil) || (a.Error != "") != (perr != nil && !errors.Is(perr, io.EOF)) {
			t.Errorf("%+v %q, want %+v %v", a.Root, a.Error, want, perr)
		}
	})
}
