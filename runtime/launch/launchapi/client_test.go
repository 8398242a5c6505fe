package launchapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// peer is hutch-launch's end in these tests.
type peer struct {
	t    *testing.T
	conn *packet.Conn
}

func newPeer(t *testing.T, exited func(Exited)) (*Client, *peer) {
	t.Helper()
	a, b, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(a, exited)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packet.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); c.Close() })
	return c, &peer{t, conn}
}

// next is the next request; its fds are closed.
func (p *peer) next() Request {
	p.t.Helper()
	var r Request
	files, err := p.conn.Recv(&r)
	if err != nil {
		p.t.Error(err)
	}
	packet.CloseAll(files)
	return r
}

func (p *peer) reply(r Reply, files ...*os.File) {
	p.t.Helper()
	if err := p.conn.Send(r, files...); err != nil {
		p.t.Error(err)
	}
}

// pipes are n write ends and the read end that sees when all copies are closed.
func pipes(t *testing.T, n int) (read *os.File, write []*os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	write = []*os.File{w}
	for len(write) < n {
		fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		write = append(write, os.NewFile(uintptr(fd), "w"))
	}
	return r, write
}

func TestCreate(t *testing.T) {
	for _, n := range []int{3, 4} {
		c, p := newPeer(t, nil)
		go func() {
			r := p.next()
			if r.Op != OpCreate || r.ID != "sb_a" || r.Create == nil || r.Create.RunDir != "/run" {
				t.Errorf("request %+v", r)
			}
			_, w := pipes(t, n)
			p.reply(Reply{Seq: r.Seq, Create: &CreateResult{PID: 7, Phases: map[string]float64{"exec": 1}}}, w...)
			packet.CloseAll(w)
		}()
		sb, err := c.Create(context.Background(), "sb_a", Create{RunDir: "/run"}, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		if sb.PID != 7 || sb.Phases["exec"] != 1 || sb.Guest == nil || sb.Filter == nil || sb.Pidfd == nil ||
			(sb.Ptmx != nil) != (n == 4) {
			t.Errorf("%d fds: %+v", n, sb)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCreateAnswers gives answers that are no success: fds must be closed.
func TestCreateAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply Reply
		fds   int
		code  api.Code
	}{
		{"error", Reply{Error: &Error{Code: "resource_exhausted", Op: "create", Msg: "no space", Hint: "remove"}}, 0,
			api.ResourceExhausted},
		{"error with fds", Reply{Error: &Error{Code: "internal"}}, 3, api.Internal},
		{"no result", Reply{}, 3, api.Internal},
		{"too few fds", Reply{Create: &CreateResult{}}, 2, api.Internal},
		{"too many fds", Reply{Create: &CreateResult{}}, 5, api.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, p := newPeer(t, nil)
			var closed *os.File
			done := make(chan struct{})
			go func() {
				defer close(done)
				tt.reply.Seq = p.next().Seq
				var w []*os.File
				if tt.fds > 0 {
					closed, w = pipes(t, tt.fds)
				}
				p.reply(tt.reply, w...)
				packet.CloseAll(w)
				if tt.reply.Create == nil {
					return
				}
				// A sandbox that nobody could reach must not stay.
				r := p.next()
				if r.Op != OpDestroy || r.ID != "sb" {
					t.Errorf("got %s %s, want %s sb", r.Op, r.ID, OpDestroy)
				}
				p.reply(Reply{Seq: r.Seq})
			}()
			_, err := c.Create(context.Background(), "sb", Create{}, os.Stderr)
			if api.ErrorCode(err) != tt.code {
				t.Errorf("got %v, want %s", err, tt.code)
			}
			<-done
			if closed != nil {
				if _, err := io.ReadAll(closed); err != nil { // ends when all copies are closed
					t.Error(err)
				}
			}
		})
	}
}

func TestCreateCanceled(t *testing.T) {
	for name, crossed := range map[string]bool{"create fails": false, "create succeeds": true} {
		t.Run(name, func(t *testing.T) {
			c, p := newPeer(t, nil)
			ctx, cancel := context.WithCancel(context.Background())
			var closed *os.File
			done := make(chan struct{})
			go func() {
				defer close(done)
				create := p.next()
				cancel()
				destroy := p.next()
				if destroy.Op != OpDestroy || destroy.ID != "sb" {
					t.Errorf("after cancel: %+v", destroy)
				}
				if crossed {
					var w []*os.File
					closed, w = pipes(t, 3)
					p.reply(Reply{Seq: create.Seq, Create: &CreateResult{}}, w...)
					packet.CloseAll(w)
				} else {
					p.reply(Reply{Seq: create.Seq, Error: &Error{Code: "internal"}})
				}
				p.reply(Reply{Seq: destroy.Seq})
			}()
			if _, err := c.Create(ctx, "sb", Create{}, os.Stderr); api.ErrorCode(err) != api.Canceled {
				t.Errorf("got %v, want canceled", err)
			}
			<-done
			if closed != nil {
				if _, err := io.ReadAll(closed); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestLoss breaks the channel under many calls: all must end.
func TestLoss(t *testing.T) {
	c, p := newPeer(t, nil)
	const n = 10
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = c.Create(context.Background(), fmt.Sprint(i), Create{}, os.Stderr)
			} else {
				err = c.Kill(context.Background(), fmt.Sprint(i))
			}
			var typed *api.Error
			if !errors.As(err, &typed) || typed.Code != api.Unavailable || typed.Hint == "" {
				t.Errorf("got %v, want unavailable with a hint", err)
			}
		})
	}
	for range n {
		p.next()
	}
	p.conn.Close()
	wg.Wait()
	<-c.Done()
	if err := c.Destroy(context.Background(), "late"); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("after the loss: %v", err)
	}
}

// TestLossAtOnce: a call before the reader has come to the end of the channel says the
// same.
func TestLossAtOnce(t *testing.T) {
	for range 200 {
		c, p := newPeer(t, nil)
		p.conn.Close()
		if err := c.Kill(t.Context(), "x"); api.ErrorCode(err) != api.Unavailable {
			t.Fatalf("got %v, want unavailable", err)
		}
		c.Close()
	}
}

// TestExited delivers events in order, from a goroutine that may call the client.
func TestExited(t *testing.T) {
	const n = 50
	var got []int
	client, done := make(chan *Client, 1), make(chan struct{})
	c, p := newPeer(t, func(e Exited) {
		if e.Status == 0 { // while this call waits, the reader goes on
			if err := (<-client).Destroy(context.Background(), e.ID); err != nil {
				t.Error(err)
			}
		}
		if got = append(got, e.Status); len(got) == n {
			close(done)
		}
	})
	client <- c
	for i := range n {
		p.reply(Reply{Exited: &Exited{ID: "sb", Status: i}})
	}
	p.reply(Reply{Seq: p.next().Seq})
	<-done
	if !slices.IsSorted(got) {
		t.Errorf("events out of order: %v", got)
	}
}

func TestErrorForms(t *testing.T) {
	cause := api.Errorf(api.NotFound, "no layer %q: %w", "x", os.ErrNotExist).WithOp("create").WithHint("pull")
	for _, tt := range []struct {
		err  error
		code api.Code
		text string
		hint string
	}{
		{cause, api.NotFound, `create: no layer "x": file does not exist`, "pull"},
		{fmt.Errorf("wrapped: %w", cause), api.NotFound, `wrapped: create: no layer "x": file does not exist`, "pull"},
		{errors.Join(cause, errors.New("and umount")), api.NotFound, "and umount", "pull"},
		{errors.New("plain"), api.Internal, "plain", ""},
	} {
		got := FromError(tt.err).API()
		if got.Code != tt.code || !strings.HasSuffix(got.Error(), tt.text) || got.Hint != tt.hint {
			t.Errorf("%v became %s %q hint %q", tt.err, got.Code, got, got.Hint)
		}
	}
}
