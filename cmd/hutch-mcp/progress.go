package main

import (
	"context"
	"encoding/base64"
	"errors"
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
	stop context.CancelCauseFunc
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
	p.ctx, p.stop = context.WithCancelCause(ctx)
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

// output takes what code writes, for the messages of tell. It never waits, and keeps the newest. A nil progress wants
// nothing.
func (p *progress) output() func(api.Progress) {
	if p == nil {
		return nil
	}
	news := map[api.Stream]*recent{api.Stdout: {wake: make(chan struct{}, 1)},
		api.Stderr: {wake: make(chan struct{}, 1)}}
	for stream, r := range news {
		p.wg.Go(func() { p.tell(stream, r) })
	}
	return func(a api.Progress) {
		if r := news[a.Stream]; r != nil && a.Kind == api.ProgressOutput {
			r.add(a.Text)
		}
	}
}

// recent is the newest of what was written since the last message.
type recent struct {
	wake chan struct{} // of capacity 1: there is something

	mu   sync.Mutex // guards what follows
	text string
	left int64 // bytes left out before it
}

func (r *recent) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += text
	if n := len(r.text) - progressBytes; n > 0 {
		r.text, r.left = strings.Clone(r.text[n:]), r.left+int64(n)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *recent) take() (text string, left int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, left = r.text, r.left
	r.text, r.left = "", 0
	return text, left
}

// tell sends what is recent of a stream.
func (p *progress) tell(stream api.Stream, r *recent) {
	for p.pause() {
		select {
		case <-r.wake:
		case <-p.ctx.Done():
			return
		}
		if text, left := r.take(); text != "" && !p.send(written(stream, []byte(text), left)) {
			return
		}
	}
}

// written is a message with output.
func written(stream api.Stream, data []byte, left int64) string {
	text := plainText(data)
	if left > 0 {
		text = fmt.Sprintf("[%d bytes left out]\n%s", left, text)
	}
	if stream == api.Stderr {
		text = "[stderr]\n" + text
	}
	return text
}

// errResult is why nobody is told any more.
var errResult = errors.New("there is a result")

// end returns when nothing more goes out: progress may not come after the result.
func (p *progress) end() {
	if p != nil {
		p.stop(errResult)
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
		text := written(stream, data, from-offset)
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
