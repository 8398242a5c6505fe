package guestapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartError says why a command never ran. Its texts come from the sandbox, made
// printable.
type StartError struct {
	Reason  Reason
	Errno   int // 0 when no system call failed
	Message string
}

func (e *StartError) Error() string { return e.Message }

// Unwrap makes errors.Is(err, syscall.ENOENT) work.
func (e *StartError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return syscall.Errno(e.Errno)
}

// Exec is a command that a Client started.
type Exec struct {
	ID  uint64 // on the channel
	PID int    // of the leader, in the sandbox's pid namespace: as hutch-init says

	c *Client
	// begun gets the started or failed event; exited is closed after end is set.
	// Both are the reader's: it sends at most once, so it never blocks.
	begun   chan Event
	started bool // guarded by c.mu, as adopted and known
	adopted bool // of a hutchd before
	known   bool // PID 1 has mentioned an adopted one
	pid     int  // PID, from when PID 1 has told it
	exited  chan struct{}
	end     Event
}

// Start asks PID 1 to run req and waits until it runs. fds are stdin, stdout
// and stderr, or one pty slave with req.TTY; they stay the caller's, who must
// have made sure that they may cross, and are made blocking, as commands expect
// of stdio. req.Op is filled in, and req.Exec where it is not one of NewID's.
//
// A command that never ran gives a *StartError. When ctx ends first, the exec is
// killed as soon as it exists and its events are dropped.
func (c *Client) Start(ctx context.Context, req Request, fds []*os.File) (*Exec, error) {
	const op = "start command"
	if req.Exec == 0 {
		req.Exec = c.NewID()
	}
	e := &Exec{ID: req.Exec, c: c, begun: make(chan Event, 1), exited: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.gone(op)
	}
	c.execs[e.ID] = e
	c.mu.Unlock()

	if err := makeBlocking(fds); err != nil {
		c.mu.Lock()
		delete(c.execs, e.ID)
		c.mu.Unlock()
		return nil, err
	}
	req.Op = OpExec
	req.Acks = c.takeAcks()
	if err := c.write(op, &req, fds...); err != nil {
		c.mu.Lock()
		delete(c.execs, e.ID)
		c.mu.Unlock()
		return nil, err
	}
	ev, err := c.await(ctx, op, e.begun)
	switch {
	case err != nil && ctx.Err() != nil:
		// It stays in c.execs, so its events are expected ones.
		return nil, errors.Join(err, e.Kill())
	case err != nil:
		return nil, err
	case ev.Ev == EvFailed:
		e.Ack() // whoever waits for it gets the error
		return nil, &StartError{Reason: ev.Reason, Errno: ev.Errno, Message: ev.Message}
	}
	e.PID = ev.PID
	return e, nil
}

// PIDOf is the PID of the exec with this id from the moment PID 1 has told it, which may be behind what it tells of
// refused calls of the exec; 0 before, and of one that it does not know.
func (c *Client) PIDOf(id uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.execs[id]; e != nil {
		return e.pid
	}
	return 0
}

// makeBlocking clears O_NONBLOCK, which a caller's own runtime may have set: cat(1), say,
// takes EAGAIN for an error.
func makeBlocking(fds []*os.File) error {
	for _, f := range fds {
		rc, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var berr error
		if err := rc.Control(func(fd uintptr) { berr = unix.SetNonblock(int(fd), false) }); err != nil || berr != nil {
			return fmt.Errorf("make %s blocking: %w", f.Name(), errors.Join(err, berr))
		}
	}
	return nil
}

// accept takes an event about e; false when e does not expect it. The caller
// holds c.mu.
func (e *Exec) accept(ev *Event) bool {
	e.known = true
	switch {
	case ev.Ev == EvStarted && !e.started && ev.PID > 1:
		e.started, e.pid = true, ev.PID
		e.begun <- *ev
	case ev.Ev == EvFailed && !e.started:
		e.begun <- *ev
	case ev.Ev == EvPending && e.adopted:
	case ev.Ev == EvExited && (e.started || e.adopted):
		e.end = *ev
		close(e.exited)
	default:
		return false
	}
	return true
}

// Wait waits for the leader's end and returns the exited event. It may be called
// several times.
func (e *Exec) Wait(ctx context.Context) (Event, error) {
	select {
	case <-e.exited:
		return e.end, nil
	default:
	}
	select {
	case <-e.exited:
		return e.end, nil
	case <-e.c.dead:
		select { // both may have happened: the end came first
		case <-e.exited:
			return e.end, nil
		default:
			return Event{}, e.c.gone("wait for command")
		}
	case <-ctx.Done():
		return Event{}, context.Cause(ctx)
	}
}

// Signal sends sig to the leader. An exec that is over is left alone.
func (e *Exec) Signal(sig syscall.Signal) error {
	return e.c.write("signal command", &Request{Op: OpSignal, Exec: e.ID, Signal: int(sig)})
}

// Kill sends SIGKILL to the leader and everything it left behind. The exited
// event then comes when they are dead; its Killed says who they were.
func (e *Exec) Kill() error {
	return e.c.write("kill command", &Request{Op: OpKill, Exec: e.ID})
}
