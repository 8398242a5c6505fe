package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
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

func TestChannelRefusesTooManyFDs(t *testing.T) {
	ours, theirs := pair(t)
	ch := NewChannel(context.Background(), ours, ChannelConfig{})
	const call = `{"jsonrpc":"2.0","id":1,"method":"exec.run"}`
	sendPiece(theirs, piece{data: call + "\n"}, pipes(t, 9))
	sendPiece(theirs, piece{data: "[" + call + "]\n"}, pipes(t, 9))
	sendPiece(theirs, piece{data: call + "\n"}, pipes(t, 8))
	line, err := ch.Recv() // the first that is let through
	if err != nil || string(line) != call {
		t.Fatalf("%s, %v", line, err)
	}
	r := ch.Request("1")
	if r == nil || r.FDs.Len() != 8 {
		t.Fatalf("%+v", r)
	}
	if id, e := answer(t, theirs); id != "1" || e.Code != CodeInvalidRequest || e.Data.Field != "fds" {
		t.Errorf("%s %+v", id, e)
	}
	// Closing without an answer must close the fds of the call, too.
	_ = ch.Close()
	if err := ch.Wait(); err != nil {
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

// TestChannelEndsAfterLastReply: after a half-close io.EOF comes with the last
// reply, not before it and not never.
func TestChannelEndsAfterLastReply(t *testing.T) {
	ours, theirs := pair(t)
	ch := NewChannel(context.Background(), ours, ChannelConfig{})
	for _, id := range []string{"1", `"b"`} {
		sendPiece(theirs, piece{data: `{"jsonrpc":"2.0","id":` + id + `,"method":"x"}` + "\n"}, nil)
		if _, err := ch.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	_ = theirs.CloseWrite()
	ended := make(chan error, 1)
	go func() {
		_, err := ch.Recv()
		ended <- err
	}()
	reply := func(id string) {
		if err := ch.Send([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)); err != nil {
			t.Error(err)
		}
	}
	reply("1")
	select {
	case err := <-ended:
		t.Errorf("ended with a call under way: %v", err)
	default:
	}
	reply(`"b"`)
	if err := <-ended; err != io.EOF {
		t.Errorf("ended with %v", err)
	}
	_ = ch.Close()
	if err := ch.Wait(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(theirs); err != nil || strings.Count(string(got), "\n") != 2 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAbort(t *testing.T) {
	ours, theirs := pair(t)
	ch := NewChannel(context.Background(), ours, ChannelConfig{})
	sendPiece(theirs, piece{data: `{"jsonrpc":"2.0","id":1,"method":"x"}` + "\n"}, nil)
	if _, err := ch.Recv(); err != nil {
		t.Fatal(err)
	}
	r, why := ch.Request("1"), errors.New("enough")
	ch.Abort(why)
	if err := context.Cause(r.Ctx); !errors.Is(err, why) {
		t.Errorf("cause %v", err)
	}
	if _, err := ch.Recv(); err == nil {
		t.Error("still receives")
	}
	if err := ch.Wait(); !errors.Is(err, why) {
		t.Errorf("ended with %v", err)
	}
}

func TestReplyIDs(t *testing.T) {
	tests := []struct{ line, ids, fixed string }{
		{`{"jsonrpc":"2.0","id":1,"result":{"id":2}}`, `1`, ""},
		{`{"jsonrpc":"2.0","id":"a,\"b","error":{"code":1}}`, `"a,\"b"`, ""},
		{`{"jsonrpc":"2.0","method":"progress","params":{"id":1}}`, ``, ""},
		{`[{"id":1,"result":{}},{"id":"x","error":{"code":-32600,"message":"m","data":["f"]}}]`, `1 "x"`,
			`"hint":"A request`},
		{`[{"id":1,"error":{"code":5,"message":"m","data":{"hint":"own"}}}]`, `1`, `"hint":"own"`},
	}
	for _, tt := range tests {
		ids, fixed := replyIDs([]byte(tt.line))
		if got := strings.Join(ids, " "); got != tt.ids {
			t.Errorf("%s: ids %s, want %s", tt.line, got, tt.ids)
		}
		if !strings.Contains(string(fixed), tt.fixed) || (tt.fixed == "" && string(fixed) != tt.line) {
			t.Errorf("%s became %s", tt.line, fixed)
		}
	}
}

// TestAfterSent: what waits for a reply to be with the client comes when that is so, and also
// when it never will be.
func TestAfterSent(t *testing.T) {
	ours, theirs := pair(t)
	ch := NewChannel(context.Background(), ours, ChannelConfig{})
	sent := make(chan string, 4)
	for _, id := range []string{"1", "2"} {
		sendPiece(theirs, piece{data: `{"jsonrpc":"2.0","id":` + id + `,"method":"exec.run"}` + "\n"}, nil)
		if _, err := ch.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	one, two := ch.Request("1"), ch.Request("2")
	one.AfterSent(func() { sent <- "one" })
	two.AfterSent(func() { sent <- "two" })
	// More than a socket takes.
	if err := ours.SetWriteBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	reply := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 1<<20) + `"}`
	if err := ch.Send([]byte(reply)); err != nil {
		t.Fatal(err)
	}
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
		ch := NewChannel(context.Background(), ours, ChannelConfig{})
		ch.SetMaxLine(4096)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = ch.Recv()
		}()
		sendPiece(theirs, piece{data: head + strings.Repeat("x", 5000) + "\"}}\n"}, nil)
		if id, e := answer(t, theirs); id != want || e.Code != CodeInvalidRequest {
			t.Errorf("%s: id %s, %+v; want %s", head, id, e, want)
		}
		_ = theirs.Close()
		<-ended
		_ = ch.Close()
		_ = ch.Wait()
	}
}
