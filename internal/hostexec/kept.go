package hostexec

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Kept is a command that is talked to by pipes while it runs, through the same calls as an exec of a sandbox that is
// kept. Its callers have it alone: the ids in what these calls take are not looked at.
type Kept struct {
	proc *Process
	in   *os.File
	out  [2]*stream // stdout, stderr
	kill context.CancelCauseFunc
	over chan struct{} // closed when end is there
	end  End
}

// Keep starts c, whose stdio it makes. Close ends it.
func Keep(c *Command) (_ *Kept, err error) {
	k := &Kept{over: make(chan struct{})}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to a command on the host: %w", err)
	}
	c.Stdin, k.in, theirs = r, w, append(theirs, r)
	for i, to := range []**os.File{&c.Stdout, &c.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			k.shut()
			return nil, fmt.Errorf("pipe from a command on the host: %w", err)
		}
		k.out[i], *to, theirs = newStream(r), w, append(theirs, w)
	}
	if k.proc, err = Start(c); err != nil {
		k.shut()
		return nil, err
	}
	for _, s := range k.out {
		go s.fill()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	k.kill = cancel
	go func() {
		k.end = k.proc.Wait(ctx)
		close(k.over)
	}()
	return k, nil
}

// shut closes this end of the pipes of one that nothing reads yet.
func (k *Kept) shut() {
	_ = k.in.Close()
	for _, s := range k.out {
		if s != nil {
			_ = s.r.Close()
		}
	}
}

var errClosed = errors.New("the command was closed")

// Running says that it has not ended, as far as is known.
func (k *Kept) Running() bool {
	select {
	case <-k.over:
		return false
	default:
		return true
	}
}

// NotRun says why it could not be started, "" of one that was.
func (k *Kept) NotRun() string {
	if k.proc.PID > 0 {
		return ""
	}
	<-k.over
	return k.end.Error
}

// Close kills it with all that it has started, and returns how it ended.
func (k *Kept) Close() End {
	k.kill(errClosed)
	<-k.over
	_ = k.in.Close()
	for _, s := range k.out {
		<-s.done // nobody has the other end any more
	}
	return k.end
}

// Kill is Close, as exec.kill has it.
func (k *Kept) Kill(context.Context, api.ExecRef) (api.ExecResult, error) {
	end := k.Close()
	return end.Outcome(false), nil
}

// Signal sends it a signal.
func (k *Kept) Signal(_ context.Context, p api.SignalParams) error {
	k.proc.Signal(p.Signal)
	return nil
}

// Write writes text to its standard input.
func (k *Kept) Write(ctx context.Context, p api.WriteParams) error {
	if err := k.in.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = k.in.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := k.in.WriteString(p.Data)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Read reads on in one of its streams, when there is more or no more will come. What was read before is forgotten.
func (k *Kept) Read(ctx context.Context, p api.ReadParams) (api.Chunk, error) {
	s := k.out[0]
	if p.Stream == api.Stderr {
		s = k.out[1]
	}
	return s.read(ctx, p.Offset)
}

// maxUnread bounds how many bytes of a stream wait to be read: those before are dropped.
const maxUnread = 32 << 20

// stream is what a command has written to a pipe.
type stream struct {
	r    *os.File
	done chan struct{} // closed when no more will come

	mu   sync.Mutex    // guards what follows
	data []byte        // unread
	at   int64         // where that begins
	eof  bool          // no more will come
	news chan struct{} // closed and made anew when there is more, or no more
}

func newStream(r *os.File) *stream {
	return &stream{r: r, done: make(chan struct{}), news: make(chan struct{})}
}

func (s *stream) fill() {
	defer close(s.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := s.r.Read(buf)
		s.mu.Lock()
		s.data = append(s.data, buf[:n]...)
		if over := len(s.data) - maxUnread; over > 0 {
			over = max(over, maxUnread/2) // not at each byte
			s.data, s.at = append([]byte(nil), s.data[over:]...), s.at+int64(over)
		}
		s.eof = err != nil
		close(s.news)
		s.news = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			_ = s.r.Close()
			return
		}
	}
}

func (s *stream) read(ctx context.Context, offset int64) (api.Chunk, error) {
	for {
		s.mu.Lock()
		if n := min(offset-s.at, int64(len(s.data))); n > 0 {
			s.data, s.at = s.data[n:], s.at+n
		}
		n := min(int64(len(s.data)), api.MaxReadBytes)
		c := api.Chunk{Offset: s.at, Next: s.at + n, Data: base64.StdEncoding.EncodeToString(s.data[:n]),
			Encoding: api.Base64, EOF: s.eof && n == int64(len(s.data))}
		news := s.news
		s.mu.Unlock()
		if n > 0 || c.EOF {
			return c, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
}
