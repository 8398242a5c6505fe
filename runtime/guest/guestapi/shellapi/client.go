package shellapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// sendTimeout is how long a worker may leave a request unread.
const sendTimeout = 10 * time.Second

// maxStray is how many events about other runs are skipped in one wait. A worker
// sends one, the end of a run that was being aborted, and one for each hutchd that has
// asked and was killed before it read the answer.
const maxStray = 64

// Client is hutchd's end of the channel to one worker. One goroutine may use it at a
// time. Everything that arrives is hostile.
type Client struct {
	conn   *os.File
	events chan Event // closed, after err is set, when the channel is over
	err    error
	closed chan struct{}
	torn   bool // the next line that is read may be the rest of one
	fresh  bool // the next line that is written must begin as one
}

// NewClient takes ownership of conn, which must be non-blocking, and reads from it
// until Close or until the worker is gone.
func NewClient(conn *os.File) *Client {
	return start(&Client{conn: conn})
}

// ResumeClient is NewClient for the channel of a hutchd that has died.
func ResumeClient(conn *os.File) *Client {
	return start(&Client{conn: conn, torn: true, fresh: true})
}

func start(c *Client) *Client {
	c.events, c.closed = make(chan Event), make(chan struct{})
	go c.readLoop()
	return c
}

// Close closes the channel. It must be called once.
func (c *Client) Close() error {
	close(c.closed)
	return c.conn.Close()
}

// readLoop reads no further than somebody waits: a worker that talks on fills only its
// socket. It reads with read(2), so that fds that the sandbox attaches are closed by
// the kernel.
func (c *Client) readLoop() {
	defer close(c.events)
	in := bufio.NewReaderSize(c.conn, MaxEvent)
	for {
		ev, err := ReadEvent(in)
		torn := c.torn && errors.Is(err, errNoEvent)
		c.torn = false
		if torn {
			continue
		}
		if err != nil {
			c.err = err
			return
		}
		select {
		case c.events <- *ev:
		case <-c.closed:
			c.err = os.ErrClosed
			return
		}
	}
}

var errNoEvent = errors.New("not an event")

// ReadEvent reads one event and makes sure that it is one. in's buffer bounds it.
func ReadEvent(in *bufio.Reader) (*Event, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	ev := &Event{}
	if err := json.Unmarshal(line, ev); err != nil {
		return nil, fmt.Errorf("%w, %d bytes: %w", errNoEvent, len(line), err)
	}
	switch ws := syscall.WaitStatus(ev.Status); {
	case ev.Ev == EvUp, ev.Ev == EvAborted, ev.Ev == EvNever:
	case ev.Ev == EvDone && ev.Status >= 0 && ev.Status <= 255:
	case ev.Ev == EvOver && ev.Status == ev.Status&0xffff && (ws.Exited() || ws.Signaled()):
	default:
		return nil, fmt.Errorf("%w: %.32q with status %#x", errNoEvent, ev.Ev, ev.Status)
	}
	if len(ev.Killed) > MaxKilled {
		return nil, fmt.Errorf("%d killed processes", len(ev.Killed))
	}
	return ev, nil
}

// ErrGone says that the worker has ended, or is a worker no more.
var ErrGone = errors.New("the shell is gone")

// Await waits for an event about a run; 0 is the start.
func (c *Client) Await(ctx context.Context, run uint64) (Event, error) {
	for range maxStray {
		select {
		case ev, ok := <-c.events:
			if !ok {
				return Event{}, fmt.Errorf("%w: %w", ErrGone, c.err)
			}
			if ev.Run == run {
				return ev, nil
			}
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
	return Event{}, fmt.Errorf("%w: its worker talks nonsense", ErrGone)
}

// Send sends a request. It waits only while the worker does not read.
func (c *Client) Send(req Request) error {
	line, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if c.fresh {
		line = append([]byte{'\n'}, line...)
		c.fresh = false
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}
