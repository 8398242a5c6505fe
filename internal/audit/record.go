package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	// maxRecord bounds a record in bytes, with its newline.
	maxRecord = 1 << 20
	// maxDigest is how many bytes of what was written or read are digested, maxText how many
	// of them a record holds where the configuration asks for that.
	maxDigest = 1 << 20
	maxText   = 64 << 10
	// maxString bounds every string in a record: base64 of maxText bytes fits.
	maxString = 96 << 10
)

// zeros is Prev of the first record.
var zeros = strings.Repeat("0", hex.EncodedLen(sha256.Size))

// hashMember is the end of a line: the member hash, and the brace.
const (
	hashStart = `,"hash":"`
	hashEnd   = `"}`
	hashLen   = len(hashStart) + 2*sha256.Size + len(hashEnd)
)

var errRecord = errors.New("no record")

// appendRecord appends r as a line, with the hash that it gives r.
func appendRecord(buf []byte, r *api.AuditRecord) ([]byte, error) {
	r.Hash = ""
	text, err := json.Marshal(r)
	if err != nil {
		return buf, fmt.Errorf("encode a record: %w", err)
	}
	r.Hash = digest(text)
	buf = append(buf, text[:len(text)-1]...)
	buf = append(buf, hashStart...)
	buf = append(buf, r.Hash...)
	return append(append(buf, hashEnd...), '\n'), nil
}

// parseRecord reads a line without its newline. sum is the hash that it should have.
func parseRecord(line []byte) (r api.AuditRecord, sum string, err error) {
	if len(line) < hashLen+2 || len(line) >= maxRecord ||
		!bytes.HasPrefix(line[len(line)-hashLen:], []byte(hashStart)) {
		return r, "", errRecord
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, "", fmt.Errorf("%w: %w", errRecord, err)
	}
	if r.Seq < 1 || r.Kind == "" {
		return r, "", errRecord
	}
	h := sha256.New()
	h.Write(line[:len(line)-hashLen])
	h.Write([]byte{'}'})
	return r, hex.EncodeToString(h.Sum(nil)), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Bytes are what was written or read, of which a record has the digest. It is digested
// when it is encoded: not on the way of who notes it.
type Bytes struct {
	Data  []byte // at most Digested bytes
	From  int64  // where Data begins
	Total int64
	Full  bool // the record has the beginning of Data, too
}

// Digested is how much of a content is worth keeping for Bytes.
const Digested = maxDigest

// Whole are all bytes there are.
func Whole(data []byte, full bool) *Bytes {
	return &Bytes{Data: data[:min(len(data), maxDigest)], Total: int64(len(data)), Full: full}
}

// MarshalJSON encodes an api.AuditContent.
func (b *Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(b.content()) }

func (b *Bytes) content() api.AuditContent {
	c := api.AuditContent{Bytes: b.Total, DigestFrom: b.From}
	n := int64(len(b.Data))
	if b.Total > 0 {
		c.SHA256 = digest(b.Data)
	}
	if n < b.Total {
		c.DigestBytes = n
	}
	if b.Full && n > 0 {
		text := b.Data[:min(n, maxText)]
		if n > maxText {
			text = trimRune(text)
		}
		if utf8.Valid(text) {
			c.Text, c.Encoding = string(text), api.Text
		} else {
			c.Text, c.Encoding = base64.StdEncoding.EncodeToString(text), api.Base64
		}
	}
	return c
}

// trimRune leaves out a rune that is cut.
func trimRune(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		if last := b[len(b)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}
