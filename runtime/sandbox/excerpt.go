package sandbox

import (
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

// excerpt is the first and the last bytes of a stream: what a reader of a long
// output needs. Without a tail the head is all there is.
type excerpt struct {
	head, tail []byte
	total      int64
}

// omitted is how many bytes of the middle are left out.
func (x *excerpt) omitted() int64 { return x.total - int64(len(x.head)+len(x.tail)) }

// text returns what was kept for a JSON reply. Bytes that are not UTF-8 travel as
// base64; a cut in the middle falls between runes and is marked in text.
func (x *excerpt) text(want api.Encoding) (string, api.Encoding) {
	head, tail, gone := x.head, x.tail, x.omitted()
	if gone > 0 && want != api.Base64 {
		var cutHead, cutTail int
		head, cutHead = trimLastRune(head)
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

// trimLastRune drops an incomplete rune at the end of b.
func trimLastRune(b []byte) ([]byte, int) {
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
