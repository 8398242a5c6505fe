package launchapi

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Stream is one stream of an exec: what hutch-launch has spooled of it. The files
// are the caller's.
type Stream struct {
	File *os.File // the spool, for reading (internal/spool)
	// Count is an eventfd, non-blocking: each read gives how many bytes were added, and
	// StreamEnd with them.
	Count *os.File
}

// StreamEnd is added to a Stream's Count, once and with or after the last byte, when
// nobody has the pipe open any more and all of it is stored: there is nothing to flush.
const StreamEnd = 1 << 62

// Hold makes hutch-launch hold the files of an exec of sandbox id, one for each of
// e.Roles, until the exec is dropped; they stay the caller's to close. When it returns,
// the request cannot be undone by the death of hutchd: the exec may be started. await
// then returns a Stream for each spool, or why there are none; it must be called.
func (c *Client) Hold(id string, e Exec, files ...*os.File) (await func() ([]Stream, error), err error) {
	req := Request{Op: OpHold, ID: id, Exec: &e}
	spools := 0
	for _, role := range e.Roles {
		if role == RoleSpool {
			spools++
		}
	}
	if !e.Flows() {
		return func() ([]Stream, error) { return nil, nil }, c.note(req, files...)
	}
	answered, _, err := c.send(req, files...)
	if err != nil {
		return nil, err
	}
	return func() ([]Stream, error) {
		// Not given up half way: what hutch-launch holds by then would never be dropped.
		a := <-answered
		err := a.failure()
		if err == nil && len(a.files) != 2*spools {
			err = api.Errorf(api.Internal, "hold %s: hutch-launch answered with %d fds", e.ID, len(a.files))
		}
		if err != nil {
			packet.CloseAll(a.files)
			return nil, err
		}
		return streams(a.files), nil
	}, nil
}

// Flows reports whether hutch-launch has bytes of the exec to move, and Flush to do.
func (e *Exec) Flows() bool {
	return slices.ContainsFunc(e.Roles, func(r Role) bool { return r != RoleKeep })
}

// streams pairs the fds of spools.
func streams(files []*os.File) []Stream {
	list := make([]Stream, 0, len(files)/2)
	for i := 0; i+1 < len(files); i += 2 {
		list = append(list, Stream{File: files[i], Count: files[i+1]})
	}
	return list
}

// Flush makes hutch-launch spool, or pass on, what an exec's pipes hold now, and return
// the state of each spool.
func (c *Client) Flush(ctx context.Context, id, exec string) ([]Spooled, error) {
	a, err := c.call(ctx, Request{Op: OpFlush, ID: id, Exec: &Exec{ID: exec}})
	packet.CloseAll(a.files)
	return a.reply.Spooled, err
}

// End notes how an exec has ended, and closes what of it was only kept.
func (c *Client) End(id, exec string, end json.RawMessage) error {
	return c.note(Request{Op: OpEnd, ID: id, Exec: &Exec{ID: exec, End: end}})
}

// Note replaces what the next hutchd is told about an exec beside its Meta.
func (c *Client) Note(id, exec string, note json.RawMessage) error {
	return c.note(Request{Op: OpNote, ID: id, Exec: &Exec{ID: exec, Note: note}})
}

// Loosen closes the files of an exec that are only kept: its stdin is to end.
func (c *Client) Loosen(id, exec string) error {
	return c.note(Request{Op: OpLoosen, ID: id, Exec: &Exec{ID: exec}})
}

// Drop forgets an exec. A Hold that is sent later may be of the same id.
func (c *Client) Drop(id, exec string) error {
	return c.note(Request{Op: OpDrop, ID: id, Exec: &Exec{ID: exec}})
}

// Keep makes hutch-launch hold a duplicate of f under key, in place of the one before,
// until Unkeep: a lock, say, that must not open while hutchd is replaced.
func (c *Client) Keep(key string, f *os.File) error { return c.note(Request{Op: OpKeep, Key: key}, f) }

// Unkeep makes hutch-launch close what it holds under key.
func (c *Client) Unkeep(key string) error { return c.note(Request{Op: OpUnkeep, Key: key}) }

// Settle returns when all that Unkeep was called for is closed.
func (c *Client) Settle(ctx context.Context) error {
	a, err := c.call(ctx, Request{Op: OpUnkeep}) // nothing has this key; requests are done in their order
	packet.CloseAll(a.files)
	return err
}
