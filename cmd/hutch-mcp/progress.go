package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// A client that gives a progress token is told what a command writes while it runs. The result has it again: progress
// is for who watches, and so is bounded by what a person reads.
const (
	// progressBytes bounds the output in one message.
	progressBytes = 2 << 10
	// progressEvery is the time from one message of a call to the next, at least.
	progressEvery = 250 * time.Millisecond
	// progressWait is how long the daemon is asked to wait for output, in seconds. The end of a command comes first.
	progressWait = api.MaxToolCommandTimeoutS
)

// progress tells one call's client how far it is.
type progress struct {
	c      *client.Client
	notify func(ctx context.Context, n float64, message string) error

	ctx  context.Context // of the call; over when there is a result
	stop context.CancelFunc
	wg   sync.WaitGroup // of what follows streams

	mu   sync.Mutex // held while a message goes out
	sent float64
}

// newProgress returns nil where the client wants none. Who has one calls end.
func newProgress(ctx context.Context, req *mcp.CallToolRequest, c *client.Client) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	p := &progress{c: c}
	p.ctx, p.stop = context.WithCancel(ctx)
	p.notify = func(ctx context.Context, n float64, message string) error {
		return req.Session.NotifyProgress(ctx,
			&mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: message})
	}
	return p
}

// started tells that a command runs, and follows it. A nil progress has nothing to tell.
func (p *progress) started() func(api.Progress) {
	if p == nil {
		return nil
	}
	return func(a api.Progress) {
		p.send("runs as " + a.Exec)
		for _, stream := range []api.Stream{api.Stdout, api.Stderr} {
			p.wg.Go(func() { p.follow(a.Exec, stream) })
		}
	}
}

// end returns when nothing more goes out: progress may not come after the result.
func (p *progress) end() {
	if p != nil {
		p.stop()
		p.wg.Wait()
	}
}

// send sends a message. It reports whether there may be more.
func (p *progress) send(message string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.sent++
	return p.notify(p.ctx, p.sent, message) == nil
}

// follow sends what a command writes to a stream, until it ends. Of what comes faster than it may go out the newest is
// sent, and how much is left out. It begins late: of a command that ends at once the result is soon enough.
func (p *progress) follow(exec string, stream api.Stream) {
	for offset := int64(0); p.pause(); {
		data, from, next, err := p.read(exec, stream, offset)
		if err != nil || len(data) == 0 { // the result says how it ended
			return
		}
		text := plainText(data)
		if left := from - offset; left > 0 {
			text = fmt.Sprintf("[%d bytes left out]\n%s", left, text)
		}
		if stream == api.Stderr {
			text = "[stderr]\n" + text
		}
		offset = next
		if !p.send(text) {
			return
		}
	}
}

// read waits for output behind offset, and returns the newest of it.
func (p *progress) read(exec string, stream api.Stream, offset int64) (data []byte, from, next int64, err error) {
	r := api.ReadParams{Exec: exec, Stream: stream, Offset: offset, Limit: progressBytes, WaitS: progressWait,
		Encoding: api.Base64}
	chunk, err := p.c.ExecRead(p.ctx, r)
	if err == nil && chunk.Next-chunk.Offset == progressBytes { // there may be more
		r.Offset, r.WaitS = -progressBytes, 0
		var last api.Chunk
		if last, err = p.c.ExecRead(p.ctx, r); err == nil && last.Offset > chunk.Offset {
			chunk = last
		}
	}
	if err != nil {
		return nil, 0, 0, err
	}
	if data, err = base64.StdEncoding.DecodeString(chunk.Data); err != nil {
		return nil, 0, 0, err
	}
	if old := offset - chunk.Offset; old > 0 && old <= int64(len(data)) { // sent already
		data, chunk.Offset = data[old:], offset
	}
	return data, chunk.Offset, chunk.Next, nil
}

// pause lets the time pass that lies between two messages.
func (p *progress) pause() bool {
	t := time.NewTimer(progressEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// escapes are the sequences that move a terminal's cursor, or colour what follows (ECMA-48, 5.4).
var escapes = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\^_])`)

// plainText is what a program has written without what a terminal would do with it: clients show progress as it comes.
func plainText(data []byte) string {
	text := escapes.ReplaceAllString(strings.ToValidUTF8(string(data), "\uFFFD"), "")
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}
