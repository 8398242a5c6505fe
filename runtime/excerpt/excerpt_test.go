package excerpt

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// of makes the excerpt of in that a stream with this limit gives.
func of(in []byte, limit int) *Excerpt {
	x := &Excerpt{Total: int64(len(in))}
	if len(in) <= limit {
		x.Head = in
		return x
	}
	x.Head, x.Tail = in[:limit/2], in[len(in)-limit/2:]
	return x
}

func TestExcerpt(t *testing.T) {
	cases := []struct {
		name, in string
		limit    int
		want     string
		gone     int64
	}{
		{"empty", "", 10, "", 0},
		{"fits", "0123456789", 10, "0123456789", 0},
		{"one too many", "0123456789a", 10, "01234\n[hutch: 1 bytes omitted]\n6789a", 1},
		{"long", strings.Repeat("x", 100) + "tail!", 10, "xxxxx\n[hutch: 95 bytes omitted]\ntail!", 95},
		{"cut between runes", "aaäxxxxxüzz", 8, "aaä\n[hutch: 5 bytes omitted]\nüzz", 5},
		{"cut inside runes", "aaaäxxxxxüzzz", 8, "aaa\n[hutch: 9 bytes omitted]\nzzz", 7},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x := of([]byte(c.in), c.limit)
			got, enc := x.Text("")
			if got != c.want || enc != api.Text || x.Omitted() != c.gone {
				t.Errorf("%q (%s), %d omitted; want %q, %d", got, enc, x.Omitted(), c.want, c.gone)
			}
		})
	}
}

func TestExcerptBinary(t *testing.T) {
	got, enc := of([]byte{0xff, 0, 1}, 100).Text("")
	if want := base64.StdEncoding.EncodeToString([]byte{0xff, 0, 1}); got != want || enc != api.Base64 {
		t.Errorf("got %q (%s), want %q", got, enc, want)
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add([]byte("hello"), 4)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		if limit < 2 || limit > 1<<12 {
			return
		}
		x := of(data, limit)
		var text string
		var enc api.Encoding
		cost.Of(t, limit, func() { text, enc = x.Text(api.Base64) })
		kept, err := base64.StdEncoding.DecodeString(text)
		if err != nil || enc != api.Base64 {
			t.Fatalf("%q: %v", text, err)
		}
		if int64(len(kept))+x.Omitted() != int64(len(data)) || len(kept) > limit {
			t.Fatalf("kept %d of %d, omitted %d, limit %d", len(kept), len(data), x.Omitted(), limit)
		}
		if text, enc := x.Text(""); enc == api.Text && !utf8.ValidString(text) {
			t.Fatalf("invalid text %q", text)
		}
	})
}

// TestEncode: a piece ends between runes unless it is the last one, and what is no text comes as base64, whole.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		in   string
		want api.Encoding
		last bool
		text string
		enc  api.Encoding
		cut  int
	}{
		{"aä", "", false, "aä", api.Text, 0},
		{"a\xc3", "", false, "a", api.Text, 1},
		{"a\xc3", "", true, "YcM=", api.Base64, 0},
		{"\xff\xc3", "", false, "/8M=", api.Base64, 0},
		{"a", api.Base64, false, "YQ==", api.Base64, 0},
	} {
		if text, enc, cut := Encode([]byte(c.in), c.want, c.last); text != c.text || enc != c.enc || cut != c.cut {
			t.Errorf("%q: %q (%s), %d cut; want %q (%s), %d", c.in, text, enc, cut, c.text, c.enc, c.cut)
		}
	}
}

func TestDecode(t *testing.T) {
	if data, err := Decode("data", "YQ==", api.Base64); err != nil || string(data) != "a" {
		t.Errorf("%q, %v", data, err)
	}
	if data, err := Decode("data", "YQ==", api.Text); err != nil || string(data) != "YQ==" {
		t.Errorf("%q, %v", data, err)
	}
	var e *api.Error
	if _, err := Decode("stdin", "?", api.Base64); !errors.As(err, &e) || e.Code != api.InvalidArgument ||
		e.Field != "stdin" {
		t.Errorf("%v", err)
	}
	if got := Valid([]byte("a\xffb")); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}
