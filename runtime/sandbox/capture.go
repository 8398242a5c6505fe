package sandbox

import (
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

// headTail keeps the first and the last bytes of a stream: what a reader of a
// long output needs, in bounded memory. It never fails and never blocks.
type headTail struct {
	half  int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring's oldest byte is
	total int64
}

func newHeadTail(limit int64) *headTail {
	return &headTail{half: int(max(limit, 2)) / 2}
}

// Write keeps p's bytes, or forgets older ones of the middle.
func (h *headTail) Write(p []byte) (int, error) {
	n := len(p)
	h.total += int64(n)
	if room := h.half - len(h.head); room > 0 {
		take := min(room, len(p))
		h.head = append(h.head, p[:take]...)
		p = p[take:]
	}
	if len(p) > h.half {
		p = p[len(p)-h.half:]
	}
	if room := h.half - len(h.tail); room > 0 {
		take := min(room, len(p))
		h.tail = append(h.tail, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		took := copy(h.tail[h.next:], p)
		h.next = (h.next + took) % h.half
		p = p[took:]
	}
	return n, nil
}

// omitted is how many bytes of the middle are gone.
func (h *headTail) omitted() int64 { return h.total - int64(len(h.head)+len(h.tail)) }

// text returns what was kept for a JSON reply. Bytes that are not UTF-8 travel as
// base64; a cut in the middle falls between runes and is marked in text.
func (h *headTail) text(want api.Encoding) (string, api.Encoding) {
	tail := append(append([]byte{}, h.tail[h.next:]...), h.tail[:h.next]...)
	head := h.head
	gone := h.omitted()
	if gone == 0 {
		head, tail = append(append([]byte{}, head...), tail...), nil
	} else if want != api.Base64 {
		var cutHead, cutTail int
		head, cutHead = trimLastRune(head)
		tail, cutTail = trimFirstRune(tail)
		gone += int64(cutHead + cutTail)
	}
	if want == api.Base64 || !utf8.Valid(head) || !utf8.Valid(tail) {
		return base64.StdEncoding.EncodeToString(append(append([]byte{}, head...), tail...)), api.Base64
	}
	if gone == 0 {
		return string(head), api.Text
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
