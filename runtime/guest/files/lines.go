package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

const (
	// countAll is up to which size of a file all its lines are counted, in bytes: tens of milliseconds.
	countAll = 64 << 20
	// countBack is up to which size lines are found that are counted from the end.
	countBack = 4 << 30
	// sniff is how much of a file decides whether it is text.
	sniff = 8 << 10
)

// args parses the arguments of an operation that has some in its payload.
func (c *call) args(to any) error {
	if err := json.Unmarshal(c.data, to); err != nil {
		return &problem{unix.EINVAL, "arguments: " + err.Error()}
	}
	return nil
}

// result sends what such an operation found.
func (c *call) result(v any) (*filesapi.Reply, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	c.give(data)
	return &filesapi.Reply{}, nil
}

// lines reads lines of a text file.
func (c *call) lines() (*filesapi.Reply, error) {
	var args filesapi.LinesArgs
	if err := c.args(&args); err != nil {
		return nil, err
	}
	fd, st, err := openRegular(c.Path, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	l := &liner{c: c, args: &args, line: 1, Lines: filesapi.Lines{Size: max(st.Size, 0)}}
	start := max(args.Start, 1)
	if args.Start < 0 {
		if st.Size > countBack {
			return nil, &problem{unix.EFBIG, fmt.Sprintf("has %d bytes, too many to count its lines from the end",
				st.Size)}
		}
		total, err := l.count(fd)
		if err != nil {
			return nil, err
		}
		start = max(total+1+args.Start, 1)
		if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
			return nil, err
		}
	}
	if err := l.read(fd, start); err != nil {
		return nil, err
	}
	return c.result(&l.Lines)
}

// liner looks for lines of one file.
type liner struct {
	filesapi.Lines
	c    *call
	args *filesapi.LinesArgs

	line int64 // that comes next
	long int64 // bytes of it that were seen
	kept int   // bytes of it that are in Text
	full bool  // Text takes no more
}

// chunks hands the file to f piece by piece, until f has enough.
func (l *liner) chunks(fd int, f func([]byte) (more bool)) error {
	src, buf := file(fd), make([]byte, buffer)
	for {
		if l.c.ctx.Err() != nil {
			return unix.ECANCELED
		}
		n, err := src.Read(buf)
		if n > 0 && !f(buf[:n]) || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// count counts the lines of the file; a last one without an end is one.
func (l *liner) count(fd int) (lines int64, err error) {
	var last byte = '\n'
	err = l.chunks(fd, func(b []byte) bool {
		lines += int64(bytes.Count(b, []byte{'\n'}))
		last = b[len(b)-1]
		return true
	})
	if last != '\n' {
		lines++
	}
	return lines, err
}

// read takes the lines from start on, and counts those that follow.
func (l *liner) read(fd int, start int64) error {
	first, whole := true, true
	err := l.chunks(fd, func(b []byte) bool {
		if first {
			first = false
			if l.Binary = isBinary(b); l.Binary {
				return false
			}
		}
		b = l.skip(b, start)
		for len(b) > 0 && !l.full {
			b = l.take(b)
		}
		switch {
		case !l.full:
			return true
		case l.Size > countAll:
			whole = false
			return false
		}
		l.line += int64(bytes.Count(b, []byte{'\n'}))
		if len(b) > 0 {
			l.long = 1
			if b[len(b)-1] == '\n' {
				l.long = 0
			}
		}
		return true
	})
	if err != nil || l.Binary {
		l.Text = nil
		return err
	}
	if whole {
		l.Total = l.line - 1
		if l.long > 0 { // the last one has no end
			l.Total++
		}
	}
	l.close()
	if whole && l.Next > l.Total {
		l.Next = 0
	}
	return nil
}

// skip leaves out the lines before start.
func (l *liner) skip(b []byte, start int64) []byte {
	if n := bytes.Count(b, []byte{'\n'}); l.line+int64(n) < start { // all of it, which is the rule
		l.line += int64(n)
		l.long = 0
		if len(b) > 0 && b[len(b)-1] != '\n' {
			l.long = 1
		}
		return nil
	}
	for l.line < start {
		i := bytes.IndexByte(b, '\n')
		l.line++
		l.long = 0
		b = b[i+1:]
	}
	return b
}

// take adds what b has of the line that is due, and returns the rest.
func (l *liner) take(b []byte) []byte {
	piece, rest, ends := b, []byte(nil), false
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		piece, rest, ends = b[:i+1], b[i+1:], true
	}
	if l.long == 0 && (l.Start > 0 && l.line-l.Start >= int64(l.args.Lines) ||
		len(l.Text) > l.args.Bytes-2*l.args.LineSize) {
		l.full, l.Next = true, l.line
		return b
	}
	if l.Start == 0 {
		l.Start = l.line
	}
	l.End = l.line
	room := min(len(piece), l.args.LineSize-l.kept)
	l.Text = append(l.Text, piece[:room]...)
	l.kept += room
	l.long += int64(len(piece))
	if ends {
		l.close()
		l.line++
	}
	return rest
}

// close ends the line that is due in Text; one that was cut says so.
func (l *liner) close() {
	if l.full {
		return
	}
	if l.long > int64(l.kept) {
		for i := 0; i < utf8.UTFMax && l.kept > 0; i++ { // no half of a letter
			if r, n := utf8.DecodeLastRune(l.Text); r != utf8.RuneError || n != 1 {
				break
			}
			l.Text, l.kept = l.Text[:len(l.Text)-1], l.kept-1
		}
		l.Text = fmt.Appendf(l.Text, " [%d bytes more]\n", l.long-int64(l.kept))
		l.Cut++
	}
	l.long, l.kept = 0, 0
}

// isBinary tells what is no text by the beginning of a file.
func isBinary(b []byte) bool {
	b = b[:min(len(b), sniff)]
	if bytes.IndexByte(b, 0) >= 0 {
		return true
	}
	for len(b) > 0 { // the last letter may be cut
		i := 0
		for i < len(b) && b[i] < utf8.RuneSelf {
			i++
		}
		if b = b[i:]; len(b) == 0 {
			return false
		}
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return utf8.FullRune(b)
		}
		b = b[n:]
	}
	return false
}
