package sandbox

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestHeadTail(t *testing.T) {
	cases := []struct {
		name, in string
		limit    int64
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
			for _, chunk := range []int{1, 3, 1000} {
				h := newHeadTail(c.limit)
				for in := []byte(c.in); len(in) > 0; {
					n := min(chunk, len(in))
					if w, err := h.Write(in[:n]); w != n || err != nil {
						t.Fatalf("Write = %d, %v", w, err)
					}
					in = in[n:]
				}
				got, enc := h.text("")
				if got != c.want || enc != api.Text || h.omitted() != c.gone {
					t.Errorf("chunks of %d: %q (%s), %d omitted; want %q, %d", chunk, got, enc, h.omitted(), c.want, c.gone)
				}
			}
		})
	}
}

func TestHeadTailBinary(t *testing.T) {
	h := newHeadTail(100)
	_, _ = h.Write([]byte{0xff, 0, 1})
	got, enc := h.text("")
	if want := base64.StdEncoding.EncodeToString([]byte{0xff, 0, 1}); got != want || enc != api.Base64 {
		t.Errorf("got %q (%s), want %q", got, enc, want)
	}
}

func FuzzHeadTail(f *testing.F) {
	f.Add([]byte("hello"), 4, 3)
	f.Fuzz(func(t *testing.T, data []byte, limit, chunk int) {
		if limit < 2 || limit > 1<<12 || chunk < 1 {
			return
		}
		h := newHeadTail(int64(limit))
		for in := data; len(in) > 0; {
			n := min(chunk, len(in))
			_, _ = h.Write(in[:n])
			in = in[n:]
		}
		text, enc := h.text(api.Base64)
		kept, err := base64.StdEncoding.DecodeString(text)
		if err != nil || enc != api.Base64 {
			t.Fatalf("%q: %v", text, err)
		}
		if int64(len(kept))+h.omitted() != int64(len(data)) || len(kept) > limit {
			t.Fatalf("kept %d of %d, omitted %d, limit %d", len(kept), len(data), h.omitted(), limit)
		}
		if !bytes.HasPrefix(data, kept[:len(kept)/2]) || !bytes.HasSuffix(data, kept[(len(kept)+1)/2:]) {
			t.Fatal("not the head and the tail")
		}
		if text, enc := h.text(""); enc == api.Text && !utf8.ValidString(text) {
			t.Fatalf("invalid text %q", text)
		}
	})
}
