package b64

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestAlphabet(t *testing.T) {
	var all []byte
	for i := range 256 {
		for j := range 256 {
			all = append(all, byte(i), byte(j))
		}
	}
	for n := range 64 {
		checkEncode(t, all[:len(all)-n])
		checkEncode(t, all[:n])
	}
}

func checkEncode(t *testing.T, data []byte) {
	t.Helper()
	text := AppendEncode([]byte("x"), data)
	if want := base64.StdEncoding.AppendEncode([]byte("x"), data); !bytes.Equal(text, want) {
		t.Fatalf("%d bytes: encoded to %.40q, want %.40q", len(data), text, want)
	}
	back, err := AppendDecode([]byte("y"), text[1:])
	if err != nil || !bytes.Equal(back[1:], data) {
		t.Fatalf("%d bytes came back as %d, %v", len(data), len(back)-1, err)
	}
}

// FuzzDecode: the same text is good and bad as for encoding/base64, and means the
// same.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "QUJDREVGR0hJSktM", "QUJDREVGR0hJ\nSktM", "QUJDREVG=0hJSktM", "QUJDREVGRw==",
		"QUJDREVGR0g=", "QUJDREVG\xff0hJSktM"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got []byte
		var err error
		cost.Input(t, text, func(text []byte) { got, err = AppendDecode(nil, text) })
		want, werr := base64.StdEncoding.AppendDecode(nil, text)
		if (err == nil) != (werr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q, %v", text, got, err, want, werr)
		}
		checkEncode(t, text)
	})
}

func BenchmarkEncode(b *testing.B) {
	src, dst := make([]byte, 255<<10), make([]byte, 0, 400<<10)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		AppendEncode(dst, src)
	}
}

func BenchmarkDecode(b *testing.B) {
	text, dst := AppendEncode(nil, make([]byte, 255<<10)), make([]byte, 0, 400<<10)
	b.SetBytes(255 << 10)
	for b.Loop() {
		if _, err := AppendDecode(dst, text); err != nil {
			b.Fatal(err)
		}
	}
}
