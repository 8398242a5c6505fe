package client

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hutch-sh/hutch/internal/b64"
	"github.com/hutch-sh/hutch/runtime/api"
)

// outputPrefix starts the lines that carry output, of which there may be gigabytes.
var outputPrefix = []byte(`{"jsonrpc":"2.0","method":"` + api.NotifyOutput + `","params":`)

// notified acts on a notification of an attachment or a subscription.
func (c *Client) notified(method string, params json.RawMessage) error {
	switch method {
	case api.NotifyOutput:
		return c.output(params)
	case api.NotifyExited:
		var e api.Exited
		if err := json.Unmarshal(params, &e); err != nil {
			return fmt.Errorf("the daemon sent an %s that is none: %w", method, err)
		}
		if a := c.attachment(e.Attachment); a != nil {
			a.finish(&e)
		}
	case api.NotifyEvent:
		var e api.Event
		if err := json.Unmarshal(params, &e); err != nil {
			return fmt.Errorf("the daemon sent an %s that is none: %w", method, err)
		}
		c.event(e)
	case api.NotifyEventsEnd:
		var e api.EventsEnd
		if err := json.Unmarshal(params, &e); err != nil {
			return fmt.Errorf("the daemon sent an %s that is none: %w", method, err)
		}
		c.eventsEnd(e)
	}
	return nil // a notification of a later version
}

func (c *Client) attachment(id string) *Attachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached[id]
}

// output gives a piece to its attachment.
func (c *Client) output(params []byte) error {
	head, data, err := splitOutput(params)
	if err != nil {
		return fmt.Errorf("the daemon sent an %s that is none: %w", api.NotifyOutput, err)
	}
	if a := c.attachment(head.Attachment); a != nil && (head.Stream == api.Stdout || head.Stream == api.Stderr) {
		a.deliver(Output{Stream: head.Stream, Offset: head.Offset, Dropped: head.Dropped, Data: data})
	}
	return nil
}

// dataMark precedes the data of an exec.output. It cannot be inside of a JSON
// string, where a quote follows a backslash.
var dataMark = []byte(`,"data":"`)

// splitOutput decodes the params of an exec.output. encoding/json looks at every
// byte twice and copies it twice, which would be most of the work: base64 data at
// the end, where hutchd puts it, is decoded in place.
func splitOutput(params []byte) (head api.Output, data []byte, err error) {
	before, after, ok := bytes.Cut(params, dataMark)
	text, whole := bytes.CutSuffix(after, []byte(`"}`))
	// base64 passes over line breaks, which JSON does not have in a string.
	plain := bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0
	if ok && whole && plain && json.Unmarshal(append(before[:len(before):len(before)], '}'), &head) == nil &&
		head.Encoding == api.Base64 {
		if data, err := decodePiece(text); err == nil {
			head.Data = "" // of a key that only differs in case, which encoding/json takes too
			return head, data, nil
		}
	}
	head = api.Output{}
	if err := json.Unmarshal(params, &head); err != nil {
		return head, nil, err
	}
	data = []byte(head.Data)
	if head.Encoding == api.Base64 {
		data, err = decodePiece(data)
	}
	head.Data = ""
	return head, data, err
}

// decodePiece decodes into a buffer of pieces.
func decodePiece(text []byte) ([]byte, error) {
	buf, ok := pieces.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	data, err := b64.AppendDecode((*buf)[:0], text)
	if err != nil {
		pieces.Put(buf)
	}
	return data, err
}
