package guestapi

import (
	"context"
	"errors"
)

// maxAcks bounds the acknowledgements that ride on one request.
const maxAcks = 1024

// ErrNoExec says that PID 1 knows nothing of an exec: the hutchd that wanted it has died
// before it could ask for it.
var ErrNoExec = errors.New("the command was never started")

// Resume takes over the channel of a hutchd that has died, and its execs by their ids:
// those whose end is not on record. It owns conn. When it returns, each Exec has been
// started, has ended, or is about to be one of them: see Exec.Resume.
func Resume(ctx context.Context, conn Conn, ids []uint64) (*Client, map[uint64]*Exec, error) {
	execs := make(map[uint64]*Exec, len(ids))
	known := make([]*Exec, 0, len(ids))
	for _, id := range ids {
		e := &Exec{ID: id, begun: make(chan Event, 1), exited: make(chan struct{}), adopted: true}
		execs[id], known = e, append(known, e)
	}
	c := newClient(conn, known)
	listed := make(chan struct{})
	id := c.NewID()
	c.mu.Lock()
	c.listed, c.listID = listed, id
	c.mu.Unlock()
	const op = "take over sandbox"
	if err := c.write(op, &Request{Op: OpList, Exec: id}); err != nil && c.Err() == nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	select {
	case <-listed:
	case <-c.dead: // its execs say so
	case <-ctx.Done():
		return nil, nil, errors.Join(context.Cause(ctx), c.Close())
	}
	return c, execs, nil
}

// settleListed tells those execs that PID 1 has not mentioned. The caller holds c.mu.
func (c *Client) settleListed() {
	for id, e := range c.execs {
		if e.adopted && !e.known {
			e.begun <- Event{}
			delete(c.execs, id)
		}
	}
	close(c.listed)
	c.listed = nil
}

// Resume waits until an exec of a hutchd before runs or has ended, as Start does for a
// new one. It fails with ErrNoExec, or with a *StartError.
func (e *Exec) Resume(ctx context.Context) error {
	select { // what is known goes before that time is over
	case ev := <-e.begun:
		e.begun <- ev
	case <-e.exited:
		ctx = context.WithoutCancel(ctx)
	default:
	}
	select {
	case ev := <-e.begun:
		switch ev.Ev {
		case EvStarted:
			e.PID = ev.PID
			return nil
		case EvFailed:
			return &StartError{Reason: ev.Reason, Errno: ev.Errno, Message: ev.Message}
		}
		return ErrNoExec
	case <-e.exited:
		e.PID = e.end.PID
		return nil
	case <-e.c.dead:
		select {
		case <-e.exited:
			return nil
		default:
			return e.c.gone("take over command")
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ended stands for an exec of a hutchd before whose end is on record: what it has left
// behind can be killed.
func (c *Client) Ended(id uint64, pid int) *Exec { return &Exec{ID: id, PID: pid, c: c} }

// Ack says that the exec's end is on record, so that PID 1 may forget it.
func (e *Exec) Ack() {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.c.acks = append(e.c.acks, e.ID)
}

func (c *Client) takeAcks() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.acks), maxAcks)
	acks := c.acks[:n:n]
	c.acks = c.acks[n:]
	return acks
}
