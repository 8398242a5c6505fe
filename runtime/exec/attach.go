package exec

import (
	"context"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/exec/stdio"
)

// Attachment reads an exec's output as it comes, both streams from offsets of its
// own. It holds nothing but its place: what a slow reader has not read yet stays
// in the spool, and when it is dropped there the reader learns how much that was.
// It is for one goroutine.
type Attachment struct {
	r    *Exec
	from api.Offsets
	text bool
	// streams are stdout and stderr; st is nil for one that is not followed.
	streams [2]place
	turn    int  // the stream that is read first, so that neither starves
	ended   bool // the exec has, and the places know their ends
}

// place is how far a stream has been read.
type place struct {
	st   *stdio.Stream
	next int64
	end  int64 // of the stream, once the exec has ended
	// stuck is the length of the stream at which all that was left to read was the
	// first bytes of a rune.
	stuck int64
}

// Piece is what Next reads.
type Piece struct {
	Stream  api.Stream
	Offset  int64  // of Data
	Dropped int64  // bytes lost before Offset
	Data    []byte // in Next's buffer
	Text    bool   // Data is UTF-8 and ends with a rune, and text was wanted
	// Exited is the result of the exec, and the last piece.
	Exited *api.ExecResult
	Ends   api.Offsets
}

// Attach starts to follow an exec, which may have ended.
func (t *Table) Attach(p api.AttachParams) (*Attachment, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	r, err := t.Find(p.Exec)
	if err != nil {
		return nil, err
	}
	if len(r.io.Streams) == 0 {
		return nil, nothingKept(p.Exec)
	}
	r.followed.Store(true)
	a := &Attachment{r: r, from: p.From, text: p.Encoding != api.Base64}
	for i, off := range []*int64{&a.from.Stdout, &a.from.Stderr} {
		if i >= len(r.io.Streams) || !wanted(p.Streams, streamNames[i]) {
			*off = 0
			continue
		}
		st := r.io.Streams[i]
		if *off < 0 {
			*off = max(0, st.Len()+*off)
		}
		a.streams[i] = place{st: st, next: *off, stuck: -1}
	}
	return a, nil
}

var streamNames = [2]api.Stream{api.Stdout, api.Stderr}

func wanted(list []api.Stream, s api.Stream) bool {
	for _, w := range list {
		if w == s {
			return true
		}
	}
	return len(list) == 0
}

func nothingKept(exec string) error {
	return api.Errorf(api.FailedPrecondition, "exec %s writes to the caller's own fds: nothing of it is kept", exec).
		WithHint("start it without stdio")
}

// From is where the attachment starts.
func (a *Attachment) From() api.Offsets { return a.from }

// Await waits until Next has something, or until more fires. Without credit that
// is only what needs none: the exec's end, and the news that output is lost.
func (a *Attachment) Await(ctx context.Context, credit bool, more <-chan struct{}) error {
	for {
		ready, grown := a.ready(credit)
		if ready {
			return nil
		}
		done := a.r.done
		if a.ended {
			done = nil
		}
		select {
		case <-grown[0]:
		case <-grown[1]:
		case <-done:
		case <-a.streams[0].lost():
		case <-a.streams[1].lost():
		case <-more:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lost is closed when what is left of the stream cannot be read any more.
func (p *place) lost() <-chan struct{} {
	if p.st == nil {
		return nil
	}
	return p.st.Closed()
}

// ready reports whether Next has something, and if not, what tells that it might.
func (a *Attachment) ready(credit bool) (ready bool, grown [2]<-chan struct{}) {
	a.checkEnd()
	left := false
	for i := range a.streams {
		p := &a.streams[i]
		if p.st == nil {
			continue
		}
		total, more := p.st.Known()
		if a.ended {
			total = p.end
		}
		if total <= p.next {
			grown[i] = more
			continue
		}
		left = true
		switch {
		case isClosed(p.st.Closed()), credit && (total != p.stuck || a.ended):
			return true, grown
		case credit:
			grown[i] = more // for the rest of the rune
		}
	}
	return a.ended && !left, grown
}

// checkEnd notes the ends of the streams when the exec has ended: all that it wrote
// has been counted then. What a process that it left behind writes later is not
// waited for.
func (a *Attachment) checkEnd() {
	if a.ended || !isClosed(a.r.done) {
		return
	}
	a.ended = true
	for i := range a.streams {
		if p := &a.streams[i]; p.st != nil {
			p.end = p.st.Len()
		}
	}
}

// Next reads what comes next, at most as much as buf holds. It does not wait: ok is
// false when there is nothing. With an empty buffer it returns what needs none.
func (a *Attachment) Next(buf []byte) (piece Piece, ok bool) {
	a.checkEnd()
	left := false
	for range a.streams {
		i := a.turn
		a.turn = 1 - a.turn
		p := &a.streams[i]
		if p.st == nil {
			continue
		}
		if piece, ok = a.read(p, buf); ok {
			piece.Stream = streamNames[i]
			return piece, true
		}
		left = left || p.next < p.end
	}
	if !a.ended || left {
		return Piece{}, false
	}
	res := a.r.Outcome()
	return Piece{Exited: &res, Ends: api.Offsets{Stdout: a.streams[0].end, Stderr: a.streams[1].end}}, true
}

// read reads a piece of one stream.
func (a *Attachment) read(p *place, buf []byte) (Piece, bool) {
	total := p.st.Len()
	if a.ended {
		total = p.end
	}
	if total <= p.next {
		return Piece{}, false
	}
	n, start, err := p.st.ReadInto(buf, p.next)
	if err != nil || start >= total || isClosed(p.st.Closed()) {
		// Nothing of it can be had any more: the exec was forgotten, the disk is
		// broken or was full, or what came after the end has pushed it out.
		gap := Piece{Offset: total, Dropped: total - p.next}
		p.next = total
		return gap, true
	}
	piece := Piece{Offset: start, Dropped: start - p.next}
	whole := buf[:min(int64(n), total-start)]
	if len(whole) > 0 {
		final := a.ended && start+int64(len(whole)) == total
		piece.Data, piece.Text = a.cut(whole, final || start+int64(len(whole)) < total)
		if len(piece.Data) == 0 {
			p.stuck = total
		}
	}
	if len(piece.Data) == 0 && piece.Dropped == 0 {
		return Piece{}, false
	}
	p.next = start + int64(len(piece.Data))
	return piece, true
}

// cut makes text of what was read, if that is wanted and possible: it ends with
// whole runes. The rest of a rune may still come; when it will not, or did not
// fit, the bytes are no text.
func (a *Attachment) cut(data []byte, last bool) (_ []byte, text bool) {
	if !a.text {
		return data, false
	}
	whole, cut := excerpt.TrimLastRune(data)
	if !utf8.Valid(whole) || (cut > 0 && len(whole) == 0 && last) {
		return data, false
	}
	return whole, true
}
