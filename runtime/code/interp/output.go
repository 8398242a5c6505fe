package interp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/hutch-sh/hutch/runtime/api"
)

// output is what one run writes: up to a mark in each stream, which the driver sets behind it.
type output struct {
	k     *Interpreter
	id    int64
	limit int64 // bytes of each stream that are kept

	// Each stream has a goroutine.
	kept  [2]excerpt
	tail  [2][]byte // read, and perhaps the beginning of a mark
	seen  [2]int    // bytes of the tail, from a mark on, in which there is no end of a line
	done  [2]bool
	cut   [2]bool
	told  [2]excerpt // head is what waits for the rest of a character, total what was told
	reply reply

	tell func(api.Stream, string) // nil where nobody listens
}

// maxReply bounds a driver's answer.
const maxReply = 16 << 20

var names = [2]api.Stream{api.Stdout, api.Stderr}

// follow reads until both marks came. It may be called again when ctx has ended it.
func (o *output) follow(ctx context.Context, execs Execs) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var both errgroup.Group
	for i := range names {
		both.Go(func() error {
			err := o.followOne(ctx, execs, i)
			switch {
			case errors.Is(err, errEnded): // what it has written to the other is there, too
				late := time.AfterFunc(grace, func() { cancel(err) })
				context.AfterFunc(ctx, func() { late.Stop() })
			case err != nil:
				cancel(err)
			}
			return err
		})
	}
	return both.Wait()
}

// errEnded is of an interpreter that has ended without its mark.
var errEnded = errors.New("the interpreter has ended")

// followOne reads one stream until its mark came.
func (o *output) followOne(ctx context.Context, execs Execs, i int) error {
	for !o.done[i] {
		// Not for ever: only so does an end of ctx stop it where nothing is written.
		c, err := execs.Read(ctx, api.ReadParams{Exec: o.k.Exec, Stream: names[i], Offset: o.k.read[i],
			WaitS: api.MaxCodeTimeoutS, Encoding: api.Base64, Limit: api.MaxReadBytes})
		if err != nil {
			return err
		}
		data, err := base64.StdEncoding.DecodeString(c.Data)
		if err != nil {
			return err
		}
		if c.Offset > o.k.read[i] {
			o.cut[i] = true // dropped: more was written than spools hold
		}
		o.k.read[i] = c.Next
		if err := o.take(i, data); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil && !o.done[i] {
			return err
		}
		if c.EOF && !o.done[i] {
			o.flush(i)
			return fmt.Errorf("exec %s: %w", o.k.Exec, errEnded)
		}
	}
	return nil
}

// take splits what was read into output and marks: 0x1e, the token, and on stdout the reply, to the end of the line.
func (o *output) take(i int, data []byte) error {
	buf := append(o.tail[i], data...)
	mark := []byte("\x1e" + o.k.token)
	seen := o.seen[i]
	for o.seen[i] = 0; ; seen = 0 {
		at := 0
		if seen == 0 {
			at = bytes.Index(buf, mark)
		}
		if at < 0 {
			// Its beginning may be at the end.
			keep := bytes.LastIndexByte(buf[max(0, len(buf)-len(mark)+1):], mark[0])
			if keep >= 0 {
				keep += max(0, len(buf)-len(mark)+1)
			} else {
				keep = len(buf)
			}
			o.keep(i, buf[:keep])
			o.tail[i] = append([]byte(nil), buf[keep:]...)
			return nil
		}
		end := bytes.IndexByte(buf[at+seen:], '\n')
		if end < 0 {
			if len(buf)-at > maxReply {
				return errSilent
			}
			o.keep(i, buf[:at])
			if at > 0 {
				buf = append([]byte(nil), buf[at:]...)
			}
			o.tail[i], o.seen[i] = buf, len(buf) // each byte is looked at once, however slowly they come
			return nil
		}
		end += seen
		o.keep(i, buf[:at])
		mine, err := o.marked(i, buf[at+len(mark):at+end])
		if err != nil {
			return err
		}
		buf = buf[at+end+1:]
		if mine {
			o.done[i] = true
			o.tail[i] = nil
			o.k.read[i] -= int64(len(buf)) // another run's
			return nil
		}
		// The end of a run that nobody waits for any more, and what it wrote.
		o.kept[i] = excerpt{}
	}
}

// marked reads what follows a token: is it this run's?
func (o *output) marked(i int, text []byte) (bool, error) {
	if i == 1 {
		id, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return false, errSilent
		}
		return id == o.id, nil
	}
	var r reply
	if err := json.Unmarshal(text, &r); err != nil {
		return false, errSilent
	}
	if r.ID != o.id {
		return false, nil
	}
	o.reply = r
	return true, nil
}

func (o *output) flush(i int) {
	o.keep(i, o.tail[i])
	o.tail[i] = nil
}

// keep keeps the first and the last bytes.
func (o *output) keep(i int, data []byte) {
	x, half := &o.kept[i], int(o.limit/2)
	x.total += int64(len(data))
	o.say(i, data)
	if n := min(len(data), half-len(x.head)); n > 0 {
		x.head = append(x.head, data[:n]...)
		data = data[n:]
	}
	x.tail = append(x.tail, data...)
	if over := len(x.tail) - half; over > half { // not at each byte
		x.tail = append([]byte(nil), x.tail[over:]...)
	}
}

// Follow tells what an exec writes, at most limit bytes of each stream, until it ends.
func Follow(ctx context.Context, execs Execs, exec string, limit int64, tell func(api.Stream, string)) {
	o := &output{k: New(exec, NewToken()), limit: limit, tell: tell} // whose mark nobody writes
	_ = o.follow(ctx, execs)                                         // the result says how it ended
}

// say tells what was written, in whole characters, up to the limit.
func (o *output) say(i int, data []byte) {
	if o.tell == nil {
		return
	}
	x := &o.told[i]
	data = append(x.head, data[:min(int64(len(data)), max(0, o.limit-x.total))]...)
	whole := len(data)
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if b := data[len(data)-n]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-n:]) {
				whole = len(data) - n
			}
			break
		}
	}
	x.total += int64(len(data) - len(x.head))
	x.head = append([]byte(nil), data[whole:]...)
	if whole > 0 {
		o.tell(names[i], valid(string(data[:whole])))
	}
}

// excerpt is the first and the last bytes of a stream.
type excerpt struct {
	head, tail []byte
	total      int64
}

// text is what a result has of a stream.
func (o *output) text(i int) string {
	x, half := &o.kept[i], int(o.limit/2)
	if over := len(x.tail) - half; over > 0 {
		x.tail = x.tail[over:]
	}
	if omitted := x.total - int64(len(x.head)+len(x.tail)); omitted > 0 {
		o.cut[i] = true
		return valid(string(x.head)) + fmt.Sprintf("\n[hutch: %d bytes omitted]\n", omitted) + valid(string(x.tail))
	}
	return valid(string(x.head) + string(x.tail))
}

// valid makes text of what a program has written, which may be any bytes.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Text is the text of a stream in a result of exec.run.
func Text(data string, enc api.Encoding) string {
	if enc != api.Base64 {
		return data
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return data
	}
	return valid(string(b))
}
