package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// answer reads one reply, which must be an error.
func answer(t *testing.T, conn *net.UnixConn) (id string, e *Error) {
	t.Helper()
	line, _, err := NewReader(conn, MaxLine, LongLines{}).ReadLine() // one reply at a time
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		ID    json.RawMessage
		Error *Error
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Error == nil || m.Error.Data.Hint == "" {
		t.Fatalf("%s: no error with a hint (%v)", line, err)
	}
	return string(m.ID), m.Error
}

// held is a channel whose calls wait for the test.
type held struct {
	*Channel
	calls chan *Request
	ended chan error // Serve's

	mu    sync.Mutex
	reply map[*Request]chan string
}

// hold serves a connection.
func hold(ours *net.UnixConn) *held {
	h := &held{
		Channel: NewChannel(context.Background(), ours, ChannelConfig{}),
		calls:   make(chan *Request), ended: make(chan error, 1), reply: make(map[*Request]chan string),
	}
	go func() {
		h.ended <- h.Serve(func(r *Request) (json.RawMessage, *Error) {
			result := make(chan string, 1)
			h.mu.Lock()
			h.reply[r] = result
			h.mu.Unlock()
			h.calls <- r
			select {
			case res := <-result:
				return json.RawMessage(res), nil
			case <-r.Ctx.Done():
				return nil, protocolError(1, "hint", "%v", context.Cause(r.Ctx))
			}
		})
	}()
	return h
}

// answer lets a call end.
func (h *held) answer(r *Request, result string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reply[r] <- result
}

func TestChannelRefusesTooManyFDs(t *testing.T) {
	ours, theirs := pair(t)
	ch := hold(ours)
	const call = `{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"x":1}}`
	sendPiece(theirs, piece{data: call + "\n"}, pipes(t, 9))
	sendPiece(theirs, piece{data: "[" + call + "]\n"}, pipes(t, 9))
	sendPiece(theirs, piece{data: call + "\n"}, pipes(t, 8))
	r := <-ch.calls // the first that is let through
	if r.FDs.Len() != 8 || string(r.ID) != "1" || r.Method != "exec.run" || string(r.Params) != `{"x":1}` {
		t.Fatalf("%+v", r)
	}
	if id, e := answer(t, theirs); id != "1" || e.Code != CodeInvalidRequest || e.Data.Field != "fds" {
		t.Errorf("%s %+v", id, e)
	}
	// The end closes the fds of the call, too.
	ch.Abort(ErrConnectionLost)
	<-ch.ended
	if err := ch.Wait(); !errors.Is(err, ErrConnectionLost) {
		t.Error(err)
	}
	if _, err := r.FDs.Take(0); err == nil {
		t.Error("fds outlived the connection")
	}
	if context.Cause(r.Ctx) == nil {
		t.Error("the call's context outlived the connection")
	}
}

func TestRefusedFDs(t *testing.T) {
	if refusedFDs(nil) != nil {
		t.Error("refused without a reason")
	}
	if e := refusedFDs(ErrLostFDs); e.Code != api.ResourceExhausted.Number() || e.Data.Hint == "" {
		t.Errorf("%+v", e)
	}
}

// TestChannelEndsAfterLastReply: after a half-close Serve ends with the last reply, not before it and not never.
func TestChannelEndsAfterLastReply(t *testing.T) {
	ours, theirs := pair(t)
	ch := hold(ours)
	var calls []*Request
	for _, id := range []string{"1", `"b"`} {
		sendPiece(theirs, piece{data: `{"jsonrpc":"2.0","id":` + id + `,"method":"x"}` + "\n"}, nil)
		calls = append(calls, <-ch.calls)
	}
	_ = theirs.CloseWrite()
	ch.answer(calls[0], "{}")
	r := NewReader(theirs, MaxLine, LongLines{})
	if line, _, err := r.ReadLine(); err != nil || string(line) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("%s, %v", line, err)
	}
	select {
	case err := <-ch.ended:
		t.Errorf("ended with a call under way: %v", err)
	default:
	}
	ch.answer(calls[1], "{}")
	if err := <-ch.ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if err := ch.Wait(); err != nil {
		t.Error(err)
	}
	if line, _, err := r.ReadLine(); err != nil || string(line) != `{"jsonrpc":"2.0","id":"b","result":{}}` {
		t.Errorf("%s, %v", line, err)
	}
}

func TestAbort(t *testing.T) {
	ours, theirs := pair(t)
	ch := hold(ours)
	sendPiece(theirs, piece{data: `{"jsonrpc":"2.0","id":1,"method":"x"}` + "\n"}, nil)
	r, why := <-ch.calls, errors.New("enough")
	ch.Abort(why)
	if err := <-ch.ended; err == nil {
		t.Error("still reads")
	}
	if err := context.Cause(r.Ctx); !errors.Is(err, why) {
		t.Errorf("cause %v", err)
	}
	if err := ch.Wait(); !errors.Is(err, why) {
		t.Errorf("ended with %v", err)
	}
}

// TestAfterSent: what waits for a reply to be with the client comes when that is so, and also
// when it never will be.
func TestAfterSent(t *testing.T) {
	ours, theirs := pair(t)
	ch := hold(ours)
	sent := make(chan string, 4)
	var calls []*Request
	for _, id := range []string{"1", "2"} {
		sendPiece(theirs, piece{data: `{"jsonrpc":"2.0","id":` + id + `,"method":"exec.run"}` + "\n"}, nil)
		calls = append(calls, <-ch.calls)
	}
	one, two := calls[0], calls[1]
	one.AfterSent(func() { sent <- "one" })
	two.AfterSent(func() { sent <- "two" })
	// More than a socket takes.
	if err := ours.SetWriteBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	result := `"` + strings.Repeat("x", 1<<20) + `"`
	reply := `{"jsonrpc":"2.0","id":1,"result":` + result + `}`
	ch.answer(one, result)
	// Half of it shows that the reply is being written, and that it cannot have been written
	// yet: what is left is more than the socket takes, too.
	half := len(reply) / 2
	if n, err := io.ReadFull(theirs, make([]byte, half)); err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	select {
	case who := <-sent:
		t.Fatalf("%s before all was read that the socket does not take", who)
	default:
	}
	if n, err := io.ReadFull(theirs, make([]byte, len(reply)+1-half)); err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if who := <-sent; who != "one" {
		t.Error(who)
	}
	ch.Abort(ErrConnectionLost)
	<-ch.ended
	_ = ch.Wait()
	if who := <-sent; who != "two" {
		t.Error(who)
	}
	two.AfterSent(func() { sent <- "late" })
	if who := <-sent; who != "late" {
		t.Error(who)
	}
}

// TestLongLineID: who sends a request that is too long is answered by its id, where that is among its first bytes.
func TestLongLineID(t *testing.T) {
	for head, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"method":"fs.write","params":{"x":"`:     "7",
		`{"method":"fs.write","id":"a b","jsonrpc":"2.0","params":{"x":"`: `"a b"`,
		`{"params":{"x":"`:               "null",
		`[{"jsonrpc":"2.0","id":7,"x":"`: "null",
		`{"id":{"x":1},"y":"`:            "null",
		`nonsense "`:                     "null",
	} {
		ours, theirs := pair(t)
		ch := hold(ours)
		ch.SetMaxLine(4096)
		sendPiece(theirs, piece{data: head + strings.Repeat("x", 5000) + "\"}}\n"}, nil)
		if id, e := answer(t, theirs); id != want || e.Code != CodeInvalidRequest {
			t.Errorf("%s: id %s, %+v; want %s", head, id, e, want)
		}
		_ = theirs.Close()
		<-ch.ended
		_ = ch.Wait()
	}
}
