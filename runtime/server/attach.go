package server

import (
	"context"
	"strconv"
	"sync"

	"github.com/hutch-sh/hutch/internal/b64"
	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// pieceSize is the most output in one notification, in bytes: large enough that
// the costs of a line do not show, small enough that what waits behind it on its
// connection does not notice.
const pieceSize = 256 << 10

// textSize is the same where text is wanted, of which JSON may make six times as much.
const textSize = 64 << 10

// buffers are what pieces are read into.
var buffers = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// attach follows an exec on this connection.
func attach(_ context.Context, c *Call, p api.AttachParams) (api.Attached, error) {
	out, err := c.dispatcher.s.cfg.Attach(p)
	if err != nil {
		return api.Attached{}, err
	}
	credit := min(p.CreditBytes, api.MaxCreditBytes)
	if credit == 0 {
		credit = api.DefaultCreditBytes
	}
	sub, err := c.dispatcher.subs.open(c, "at_", execSubject(p.Exec), credit,
		func(ctx context.Context, sub *subscription) {
			f := &follower{ch: c.dispatcher.subs.ch, sub: sub, out: out, exec: p.Exec, size: textSize}
			if p.Encoding == api.Base64 {
				f.size = pieceSize
			}
			f.run(ctx)
		})
	if err != nil {
		return api.Attached{}, err
	}
	return api.Attached{Attachment: sub.id, From: out.From()}, nil
}

// follower sends what an exec writes.
type follower struct {
	ch   *jsonrpc.Channel
	sub  *subscription
	out  Output
	exec string
	size int64 // the most output in a notification
}

// run ends with the exec, the subscription or the connection.
func (f *follower) run(ctx context.Context) {
	for {
		if f.out.Await(ctx, f.sub.left() > 0, f.sub.more) != nil {
			return
		}
		for sent := true; sent; {
			var last bool
			err := f.ch.Feed(ctx, func(line []byte) ([]byte, error) {
				line, last = f.next(line)
				sent = len(line) > 0
				return line, nil
			})
			if err != nil || last {
				return
			}
		}
	}
}

// next appends the notification of the next piece, if there is one.
func (f *follower) next(line []byte) (_ []byte, last bool) {
	buf, ok := buffers.Get().(*[pieceSize]byte)
	if !ok {
		buf = new([pieceSize]byte)
	}
	defer buffers.Put(buf)
	piece, ok := f.out.Next(buf[:min(f.sub.left(), f.size)])
	switch {
	case !ok:
		return line, false
	case piece.Exited != nil:
		return jsonrpc.AppendNotification(line, api.NotifyExited, api.Exited{
			Attachment: f.sub.id, Ends: piece.Ends, ExecResult: *piece.Exited,
		}), true
	}
	f.sub.spend(int64(len(piece.Data)))
	return f.appendOutput(line, &piece), false
}

// appendOutput appends an exec.output notification: api.Output as encoding/json
// would encode it, in one pass over data that is large. data comes last, so that a
// reader can take it from the end of the line (client.splitOutput).
func (f *follower) appendOutput(line []byte, p *exec.Piece) []byte {
	line = append(line, `{"jsonrpc":"2.0","method":"exec.output","params":{"attachment":"`...)
	line = append(line, f.sub.id...)
	line = append(line, `","exec":`...)
	line = jsonrpc.AppendString(line, []byte(f.exec))
	line = append(line, `,"stream":"`...)
	line = append(line, p.Stream...)
	line = append(line, `","offset":`...)
	line = strconv.AppendInt(line, p.Offset, 10)
	if p.Dropped > 0 {
		line = append(line, `,"dropped":`...)
		line = strconv.AppendInt(line, p.Dropped, 10)
	}
	if p.Text {
		line = append(line, `,"encoding":"utf-8","data":`...)
		line = jsonrpc.AppendString(line, p.Data)
	} else {
		line = append(line, `,"encoding":"base64","data":"`...)
		line = b64.AppendEncode(line, p.Data)
		line = append(line, '"')
	}
	return append(line, "}}"...)
}
