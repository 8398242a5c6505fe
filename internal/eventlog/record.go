package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/hutch-sh/hutch/runtime/api"
)

// maxRecord bounds a record in bytes, with its newline.
const maxRecord = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumLen is the length of the checksum and the space behind it.
const sumLen = 9

var errRecord = errors.New("no record")

// appendRecord appends e as a line: the CRC-32C of the JSON, as hex, and the JSON.
// People can read it, and half a record is never taken for a whole one.
func appendRecord(buf []byte, e *api.Event) ([]byte, error) {
	start := len(buf)
	text, err := json.Marshal(e)
	if err != nil {
		return buf, fmt.Errorf("encode event: %w", err)
	}
	if len(text)+sumLen >= maxRecord {
		return buf, fmt.Errorf("encode event: %d bytes are too many", len(text))
	}
	buf = fmt.Appendf(buf, "%08x ", crc32.Checksum(text, castagnoli))
	buf = append(append(buf, text...), '\n')
	if bytes.IndexByte(buf[start:len(buf)-1], '\n') >= 0 {
		return buf[:start], fmt.Errorf("encode event: %w", errRecord) // raw JSON of somebody's
	}
	return buf, nil
}

// parseRecord reads a line without its newline.
func parseRecord(line []byte) (api.Event, error) {
	var e api.Event
	if len(line) < sumLen || len(line) >= maxRecord || line[sumLen-1] != ' ' {
		return e, errRecord
	}
	sum, err := strconv.ParseUint(string(line[:sumLen-1]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(line[sumLen:], castagnoli) {
		return e, errRecord
	}
	if err := json.Unmarshal(line[sumLen:], &e); err != nil {
		return e, fmt.Errorf("%w: %w", errRecord, err)
	}
	if e.Seq < 1 {
		return e, errRecord
	}
	return e, nil
}

// nextLine cuts the first whole line off; ok is false when there is none.
func nextLine(buf []byte) (line, rest []byte, ok bool) { return bytes.Cut(buf, []byte{'\n'}) }
