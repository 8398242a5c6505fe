package filesapi

import (
	"encoding/json"
	"fmt"
)

// LinesArgs ask for lines of a text file.
type LinesArgs struct {
	Start    int64 `json:"start"`      // 1 is the first, -1 the last
	Lines    int   `json:"lines"`      // at most
	Bytes    int   `json:"bytes"`      // at most
	LineSize int   `json:"line_bytes"` // of a line; a longer one is cut
}

// Lines are lines of a text file: untrusted.
type Lines struct {
	Text   []byte `json:"text"`  // with their ends
	Start  int64  `json:"start"` // the first of Text; 0 where there is none
	End    int64  `json:"end"`   // the last of Text; 0 where there is none
	Next   int64  `json:"next"`  // 0 at the end of the file
	Total  int64  `json:"total"` // 0: not counted
	Size   int64  `json:"size"`
	Cut    int64  `json:"cut"` // lines of Text that are longer in the file
	Binary bool   `json:"binary"`
}

// MaxLines bounds the reply to a request for so many bytes of lines: they are written as base64, beside the numbers.
func MaxLines(bytes int) int { return bytes/3*4 + 1024 }

// ParseLines parses the payload of a reply to args.
func ParseLines(data []byte, args *LinesArgs) (*Lines, error) {
	l := &Lines{}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("lines: %w", err)
	}
	for _, n := range []int64{l.Start, l.End, l.Next, l.Total, l.Size, l.Cut} {
		if n < 0 || n > maxOffset {
			return nil, fmt.Errorf("lines: an impossible number, %d", n)
		}
	}
	switch {
	case len(l.Text) > args.Bytes:
		return nil, fmt.Errorf("lines: %d bytes, %d were asked for", len(l.Text), args.Bytes)
	case l.End < l.Start || l.End-l.Start >= int64(args.Lines) || (l.End == 0) != (l.Start == 0):
		return nil, fmt.Errorf("lines: %d to %d, %d were asked for", l.Start, l.End, args.Lines)
	case l.Next != 0 && l.Next <= l.End:
		return nil, fmt.Errorf("lines: %d follows on %d", l.Next, l.End)
	}
	return l, nil
}
