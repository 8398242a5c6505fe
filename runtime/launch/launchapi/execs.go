package launchapi

import (
	"context"
	"encoding/json"
	"os"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Stream is one stream of an exec: what hutch-launch has spooled of it. The files
// are the caller's.
type Stream struct {
	File *os.File // the spool, for reading (internal/spool)
	// Count is an eventfd, non-blocking: each read gives how many bytes were added.
	Count *os.File
}

// Hold makes hutch-launch hold the files of an exec of sandbox id, one for each of
// e.Roles, until the exec is dropped; they stay the caller's to close. It returns a
// Stream for each spool. What is held when Hold returns, the next hutchd gets.
func (c *Client) Hold(ctx context.Context, id string, e Exec, files ...*os.File) ([]Stream, error) {
	req := Request{Op: OpHold, ID: id, Exec: &e}
	spools := 0
	for _, role := range e.Roles {
		if role == RoleSpool {
			spools++
		}
	}
	if spools == 0 {
		return nil, c.note(req, files...)
	}
	a, err := c.call(ctx, req, files...)
	if err != nil {
		return nil, err
	}
	if len(a.files) != 2*spools {
		packet.CloseAll(a.files)
		return nil, api.Errorf(api.Internal, "hold %s: hutch-launch answered with %d fds", e.ID, len(a.files))
	}
	return streams(a.files), nil
}

// streams pairs the fds of spools.
func streams(files []*os.File) []Stream {
	list := make([]Stream, 0, len(files)/2)
	for i := 0; i+1 < len(files); i += 2 {
		list = append(list, Stream{File: files[i], Count: files[i+1]})
	}
	return list
}

// Flush makes hutch-launch spool what an exec's pipes hold now, note how it ended, and
// return the state of each stream.
func (c *Client) Flush(ctx context.Context, id, exec string, end json.RawMessage) ([]Spooled, error) {
	a, err := c.call(ctx, Request{Op: OpFlush, ID: id, Exec: &Exec{ID: exec, End: end}})
	packet.CloseAll(a.files)
	return a.reply.Spooled, err
}

// End notes how an exec without spools has ended.
func (c *Client) End(id, exec string, end json.RawMessage) error {
	return c.note(Request{Op: OpEnd, ID: id, Exec: &Exec{ID: exec, End: end}})
}

// Drop forgets an exec.
func (c *Client) Drop(ctx context.Context, id, exec string) error {
	a, err := c.call(ctx, Request{Op: OpDrop, ID: id, Exec: &Exec{ID: exec}})
	packet.CloseAll(a.files)
	return err
}

// Keep makes hutch-launch hold a duplicate of f under key, in place of the one before,
// until Unkeep: a lock, say, that must not open while hutchd is replaced.
func (c *Client) Keep(key string, f *os.File) error { return c.note(Request{Op: OpKeep, Key: key}, f) }

// Unkeep makes hutch-launch close what it holds under key.
func (c *Client) Unkeep(key string) error { return c.note(Request{Op: OpUnkeep, Key: key}) }
