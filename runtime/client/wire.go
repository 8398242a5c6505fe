package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/terse"
	"github.com/hutch-sh/hutch/runtime/api"
)

// reply is a response.
type reply struct {
	Result json.RawMessage
	Error  *jsonrpc.Error
}

// maxNews bounds the news that wait for a caller whose callback is slow; later
// ones are dropped, but those that come once in a call and that something waits for.
const maxNews = 1024

// call is a call under way.
type call struct {
	replied func(result json.RawMessage) error // nil, or see withReply

	reply chan *reply   // capacity 1
	news  chan struct{} // capacity 1: pending has something

	mu      sync.Mutex
	pending []api.Progress
}

func (w *call) note(p api.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) < maxNews || p.Kind == api.ProgressReady || p.Kind == api.ProgressStarted {
		w.pending = append(w.pending, p)
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// deliver hands the pending news to fn, which may be nil.
func (w *call) deliver(fn func(api.Progress)) {
	w.mu.Lock()
	news := w.pending
	w.pending = nil
	w.mu.Unlock()
	if fn == nil {
		return
	}
	for _, p := range news {
		fn(p)
	}
}

func (c *Client) register(replied func(json.RawMessage) error) (uint64, *call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return 0, nil, c.lost
	}
	c.next++
	w := &call{replied: replied, reply: make(chan *reply, 1), news: make(chan struct{}, 1)}
	c.calls[c.next] = w
	return c.next, w, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// fail ends the connection; the first reason stays.
func (c *Client) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return
	}
	c.calls, c.lost = nil, why
	_ = c.conn.Close()
}

func (c *Client) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// readLoop gives replies and news to the calls they belong to.
func (c *Client) readLoop() {
	defer close(c.read)
	r := jsonrpc.NewReader(c.conn, maxReply, jsonrpc.LongLines{})
	defer r.Close()
	for {
		line, files, err := r.ReadLine()
		for _, f := range files { // the daemon sends none
			_ = f.Close()
		}
		if err == nil {
			err = c.dispatch(line)
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the daemon closed the connection")
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) dispatch(line []byte) error {
	if params, ok := bytes.CutPrefix(line, outputPrefix); ok && bytes.HasSuffix(params, []byte("}")) {
		return c.output(params[:len(params)-1])
	}
	var m struct {
		ID     *uint64         `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  *jsonrpc.Error  `json:"error"`
	}
	if err := terse.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("the daemon sent a line that is no JSON-RPC message: %w", err)
	}
	switch {
	case m.Method == api.NotifyProgress:
		var p api.Progress
		var id uint64
		if terse.Unmarshal(m.Params, &p) == nil && json.Unmarshal(p.Request, &id) == nil {
			if w := c.find(id); w != nil {
				w.note(p)
			}
		}
	case m.Method != "":
		return c.notified(m.Method, m.Params)
	case m.ID == nil && m.Error != nil:
		if m.Error.Data.Code != "" {
			return fromWire(m.Error) // about the connection: the daemon serves no more
		}
		// About a line that the daemon could not even read: ours are never so.
		return fmt.Errorf("the daemon refused a line: %s", m.Error.Message)
	case m.ID != nil:
		if w := c.find(*m.ID); w != nil {
			if w.replied != nil && m.Error == nil {
				if err := w.replied(m.Result); err != nil {
					return fmt.Errorf("the daemon sent an answer that is none: %w", err)
				}
			}
			select {
			case w.reply <- &reply{m.Result, m.Error}:
			default: // a second answer
			}
		}
	}
	return nil
}

func (c *Client) find(id uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

// fromWire turns a JSON-RPC error into the error that the daemon had.
func fromWire(w *jsonrpc.Error) *api.Error {
	code, ok := api.CodeOf(w.Code)
	if !ok {
		switch w.Code {
		case jsonrpc.CodeMethodNotFound:
			code = api.Unimplemented
		case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, jsonrpc.CodeParse:
			code = api.InvalidArgument
		default:
			code = api.Internal
		}
	}
	msg := w.Message
	if w.Data.Op != "" {
		msg = strings.TrimPrefix(msg, w.Data.Op+": ") // Error puts it back
	}
	return &api.Error{Code: code, Op: w.Data.Op, Msg: msg, Hint: w.Data.Hint, Field: w.Data.Field,
		Failed: w.Data.Failed, Owner: w.Data.Owner}
}
