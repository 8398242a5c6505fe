// Package tarfix makes tar archives of what fuzzing makes of tar archives. A header whose checksum is wrong
// ends an archive: without this, nearly no input gets further than its first changed byte.
package tarfix

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

const block = 512

// Checksums returns a copy of stream in which the headers have the right checksums, as far as they can be found:
// up to one whose size is no octal number.
func Checksums(stream []byte) []byte {
	stream = bytes.Clone(stream)
	for rest := stream; len(rest) >= block; {
		h := rest[:block]
		rest = rest[block:]
		if bytes.Count(h, []byte{0}) == block {
			continue // the end, which is two of these
		}
		copy(h[148:156], "        ") // counts as this
		sum := 0
		for _, b := range h {
			sum += int(b)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		size, err := strconv.ParseUint(strings.Trim(string(h[124:136]), " \x00"), 8, 63)
		if err != nil {
			break
		}
		content := (size + block - 1) / block * block
		rest = rest[min(content, uint64(len(rest))):]
	}
	return stream
}
