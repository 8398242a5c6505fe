// Package excerpt makes what a sandbox wrote travel in JSON: the beginning and the end of a long text, bytes as text or
// base64, and no rune cut in two.
package excerpt

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Excerpt is the first and the last bytes of a stream: what a reader of a long
// output needs. Without a tail the head is all there is.
type Excerpt struct {
	Head, Tail []byte
	Total      int64
}

// Omitted is how many bytes of the middle are left out.
func (x *Excerpt) Omitted() int64 { return x.Total - int64(len(x.Head)+len(x.Tail)) }

// Text returns what was kept for a JSON reply. Bytes that are not UTF-8 travel as
// base64; a cut in the middle falls between runes and is marked in text.
func (x *Excerpt) Text(want api.Encoding) (string, api.Encoding) {
	head, tail, gone := x.Head, x.Tail, x.Omitted()
	if gone > 0 && want != api.Base64 {
		var cutHead, cutTail int
		head, cutHead = TrimLastRune(head)
		tail, cutTail = trimFirstRune(tail)
		gone += int64(cutHead + cutTail)
	}
	if want == api.Base64 || !utf8.Valid(head) || !utf8.Valid(tail) {
		return base64.StdEncoding.EncodeToString(append(append([]byte{}, head...), tail...)), api.Base64
	}
	if gone == 0 {
		return string(head) + string(tail), api.Text
	}
	return fmt.Sprintf("%s\n[hutch: %d bytes omitted]\n%s", head, gone, tail), api.Text
}

// TrimLastRune drops an incomplete rune at the end of b.
func TrimLastRune(b []byte) ([]byte, int) {
	for cut := 1; cut < utf8.UTFMax && cut <= len(b); cut++ {
		if i := len(b) - cut; utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i], cut
			}
			break
		}
	}
	return b, 0
}

// trimFirstRune drops the rest of a rune whose start is missing.
func trimFirstRune(b []byte) ([]byte, int) {
	for cut := 0; cut < utf8.UTFMax && cut < len(b); cut++ {
		if utf8.RuneStart(b[cut]) {
			return b[cut:], cut
		}
	}
	return b, 0
}

// Decode returns the bytes that a field of a request holds.
func Decode(field, text string, enc api.Encoding) ([]byte, error) {
	if enc != api.Base64 {
		return []byte(text), nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%s is not base64: %w", field, err).WithField(field).
			WithHint("encode it, or leave encoding out")
	}
	return data, nil
}

// Encode makes bytes of a stream travel in JSON; cut is how many of the last ones
// were left for the next read, so that no rune is cut.
func Encode(data []byte, want api.Encoding, last bool) (text string, enc api.Encoding, cut int) {
	whole := data
	if want != api.Base64 && !last {
		whole, cut = TrimLastRune(data)
	}
	x := Excerpt{Head: whole, Total: int64(len(whole))}
	text, enc = x.Text(want)
	if enc == api.Base64 && cut > 0 {
		x = Excerpt{Head: data, Total: int64(len(data))}
		text, enc = x.Text(api.Base64)
		cut = 0
	}
	return text, enc, cut
}

// Valid makes text of a name, which may be any bytes.
func Valid(name []byte) string { return strings.ToValidUTF8(string(name), "\uFFFD") }
