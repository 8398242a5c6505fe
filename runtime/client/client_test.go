package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestCallsDoNotMix(t *testing.T) {
	c := connected(t, func(r *fakeCall) (any, error) {
		var p api.SandboxParams
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, err
		}
		return api.Sandbox{ID: p.Sandbox, Hostname: strings.Repeat(p.Sandbox, 1000)}, nil
	})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for j := range 20 {
				ref := fmt.Sprintf("%d-%d", i, j)
				box, err := c.GetSandbox(within(t), ref)
				if err != nil || box.ID != ref || len(box.Hostname) != 1000*len(ref) {
					t.Errorf("%s: %.20s, %v", ref, box.ID, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestErrorsFromTheWire(t *testing.T) {
	tests := []struct {
		wire *jsonrpc.Error
		want api.Error
		text string
	}{
		{&jsonrpc.Error{Code: -32001, Message: "get sandbox: no x",
			Data: api.ErrorData{Code: api.NotFound, Op: "get sandbox", Hint: "h", Field: "f"}},
			api.Error{Code: api.NotFound, Op: "get sandbox", Hint: "h", Field: "f"}, "get sandbox: no x"},
		{&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown field",
			Data: api.ErrorData{Hint: "h", Field: "a.b"}},
			api.Error{Code: api.InvalidArgument, Hint: "h", Field: "a.b"}, "unknown field"},
		{&jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "m"}, api.Error{Code: api.Unimplemented}, "m"},
		{&jsonrpc.Error{Code: -32603, Message: "m"}, api.Error{Code: api.Internal}, "m"},
	}
	for _, tt := range tests {
		c := connected(t, func(*fakeCall) (any, error) { return nil, tt.wire })
		_, err := c.GetSandbox(within(t), "x")
		var e *api.Error
		if !errors.As(err, &e) {
			t.Fatalf("%T %v", err, err)
		}
		if e.Code != tt.want.Code || e.Op != tt.want.Op || e.Hint != tt.want.Hint || e.Field != tt.want.Field ||
			e.Error() != tt.text {
			t.Errorf("got %+v %q, want %+v %q", *e, e, tt.want, tt.text)
		}
		if !errors.Is(err, &api.Error{Code: tt.want.Code}) {
			t.Errorf("errors.Is does not see the code of %v", err)
		}
	}
}

func TestExecStdio(t *testing.T) {
	c := connected(t, func(r *fakeCall) (any, error) {
		var p api.ExecParams
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, err
		}
		if p.FDs != r.FDs.Len() || p.Stdio.Stdin != nil || *p.Stdio.Stdout != *p.Stdio.Stderr {
			return nil, fmt.Errorf("%d fds came, params %s", r.FDs.Len(), r.Params)
		}
		f, err := r.FDs.Take(*p.Stdio.Stdout)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		_, err = io.WriteString(f, "hello")
		return api.ExecResult{}, err
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := c.ExecRun(within(t), api.ExecParams{Sandbox: "x"}, &Stdio{Stdout: w, Stderr: w}, nil); err != nil {
		t.Error(err)
	}
	_ = w.Close()
	if got, err := io.ReadAll(r); string(got) != "hello" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	// A large request goes out in several pieces; the fds still belong to it.
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	big := strings.Repeat("x", 3<<20)
	if _, err := c.ExecRun(within(t), api.ExecParams{Sandbox: "x", Command: big}, &Stdio{Stdout: w2, Stderr: w2},
		nil); err != nil {
		t.Errorf("with 3 MiB: %.200v", err)
	}
	_ = w2.Close()
	_, err = c.ExecRun(within(t), api.ExecParams{Sandbox: "x"}, &Stdio{Stdout: w2}, nil)
	if err == nil || errors.Is(err, errClosed) {
		t.Errorf("a closed file was sent: %v", err)
	}
	if err := c.Call(within(t), "x", map[string]string{"x": strings.Repeat(big, 2)}, nil); !errors.Is(err,
		&api.Error{Code: api.InvalidArgument}) {
		t.Errorf("6 MiB: %v", err)
	}
}

func TestProgress(t *testing.T) {
	const n = 200
	c := connected(t, func(r *fakeCall) (any, error) {
		for i := range n {
			r.notify(api.Progress{Kind: "image.progress", Done: int64(i)})
		}
		return api.Image{}, nil
	})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			seen := 0
			if _, err := c.PullImage(within(t), api.PullParams{Ref: "x"}, func(p api.Progress) {
				if p.Done != int64(seen) {
					t.Errorf("news %d came as number %d", p.Done, seen)
				}
				seen++
			}); err != nil {
				t.Error(err)
			}
			if seen != n { // all before the call returned
				t.Errorf("%d news of %d", seen, n)
			}
		})
	}
	wg.Wait()
	if _, err := c.PullImage(within(t), api.PullParams{Ref: "x"}, nil); err != nil {
		t.Error(err)
	}
}

func TestCancelWaitsForTheAnswer(t *testing.T) {
	cleaned := make(chan struct{})
	c := connected(t, func(r *fakeCall) (any, error) {
		r.notify(api.Progress{Kind: "exec.started"})
		<-r.Ctx.Done()
		close(cleaned)
		return nil, r.canceled()
	})
	ctx, cancel := context.WithCancelCause(within(t))
	why := errors.New("ctrl-c")
	_, err := c.ExecRun(ctx, api.ExecParams{}, nil, func(api.Progress) { cancel(why) })
	if !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	select {
	case <-cleaned:
	default:
		t.Error("returned before the daemon had cleaned up")
	}
}

func (r *fakeCall) canceled() error { return api.Errorf(api.Canceled, "canceled") }

func TestResultBeatsCancel(t *testing.T) {
	c := connected(t, func(r *fakeCall) (any, error) {
		<-r.Ctx.Done()
		return api.ExecResult{Exec: "done anyway"}, nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	r, err := c.ExecRun(ctx, api.ExecParams{}, nil, nil)
	if err != nil || r.Exec != "done anyway" {
		t.Errorf("%v, %v", r.Exec, err)
	}
}

func TestCanceledBefore(t *testing.T) {
	c := connected(t, func(*fakeCall) (any, error) {
		t.Error("a cancelled call was sent")
		return api.Info{}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Info(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestDaemonThatDoesNotRead: a write that cannot go on ends with its context.
func TestDaemonThatDoesNotRead(t *testing.T) {
	ours, theirs, err := connectedPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := ours.SetWriteBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	c := New(ours)
	defer c.Close()
	ctx, cancel := context.WithCancel(within(t))
	go func() { // half of the request is under way
		_, _ = io.ReadFull(theirs, make([]byte, 1000))
		cancel()
	}()
	err = c.Call(ctx, "x", map[string]string{"x": strings.Repeat("x", 3<<20)}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-c.Done() // half a request is out
	if _, err := c.Info(context.Background()); !errors.Is(err, &api.Error{Code: api.Unavailable}) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLostConnection(t *testing.T) {
	ours, theirs, err := connectedPair()
	if err != nil {
		t.Fatal(err)
	}
	conn := fileConn(t, theirs)
	c := New(ours)
	defer c.Close()
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := c.Info(context.Background())
			results <- err
		}()
	}
	r := jsonrpc.NewReader(conn, 1<<20, jsonrpc.LongLines{})
	for range 2 {
		if _, _, err := r.ReadLine(); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.Close()
	for range 2 {
		var e *api.Error
		if err := <-results; !errors.As(err, &e) || e.Code != api.Unavailable || e.Hint == "" {
			t.Errorf("got %v", err)
		}
	}
	<-c.Done()
	if _, err := c.Info(context.Background()); !errors.Is(err, &api.Error{Code: api.Unavailable}) {
		t.Errorf("a call afterwards: %v", err)
	}
}

func TestClose(t *testing.T) {
	entered := make(chan struct{})
	c := connected(t, func(r *fakeCall) (any, error) {
		close(entered)
		<-r.Ctx.Done()
		return nil, r.canceled()
	})
	result := make(chan error, 1)
	go func() {
		_, err := c.ExecRun(context.Background(), api.ExecParams{}, nil, nil)
		result <- err
	}()
	<-entered
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-result; !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
}

// TestStrangeLines: what a daemon of a later version may say does no harm, and
// what no daemon says ends the connection with a reason.
func TestStrangeLines(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"pid":5,"new":{"x":1}}}` + "\n"
	tests := []struct {
		name, lines string
		ok          bool
	}{
		{"unknown notification", `{"jsonrpc":"2.0","method":"event","params":{"seq":1}}` + "\n" + answer, true},
		{"news about nothing", `{"jsonrpc":"2.0","method":"progress","params":{"request":7}}` + "\n" + answer, true},
		{"news about a stranger", `{"jsonrpc":"2.0","method":"progress","params":{"request":"x"}}` + "\n" +
			answer, true},
		{"an answer to nothing", `{"jsonrpc":"2.0","id":9,"result":{}}` + "\n" + answer, true},
		{"two answers", answer + answer, true},
		{"no JSON", "hello\n", false},
		{"a refused line", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?","data":{"hint":"h"}}}` +
			"\n", false},
		{"nothing", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs, err := connectedPair()
			if err != nil {
				t.Fatal(err)
			}
			conn := fileConn(t, theirs)
			c := New(ours)
			defer c.Close()
			go func() {
				defer conn.Close()
				_, _, _ = jsonrpc.NewReader(conn, 1<<20, jsonrpc.LongLines{}).ReadLine()
				_, _ = conn.Write([]byte(tt.lines))
			}()
			info, err := c.Info(within(t))
			if tt.ok && (err != nil || info.PID != 5) {
				t.Errorf("%+v, %v", info, err)
			}
			var e *api.Error
			if !tt.ok && (!errors.As(err, &e) || e.Code != api.Unavailable || e.Hint == "") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzDispatch: whatever the daemon says, no call gets another's answer and
// nothing panics.
func FuzzDispatch(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"progress","params":{"request":1,"done":3}}`))
	f.Add([]byte(`{"id":1,"error":{"code":-32001,"message":"a: b","data":{"op":"a"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"exec.output","params":{"attachment":"at_1","exec":"ex_1","stream":"stdout","offset":3,"encoding":"base64","data":"QUJD"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"exec.exited","params":{"attachment":"at_1","exec":"ex_1","exit_code":3}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"event","params":{"subscription":"ev_1","seq":3,"kind":"k","data":{"a":1}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"events.end","params":{"subscription":"ev_1"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.Contains(line, []byte("\n")) {
			return
		}
		c := &Client{calls: make(map[uint64]*call), attached: make(map[string]*Attachment),
			events: make(map[string]*Events)}
		c.events["ev_1"] = &Events{c: c, wake: make(chan struct{}, 1)}
		c.attached["at_1"] = &Attachment{c: c, id: "at_1", wake: make(chan struct{}, 1)}
		id, w, _ := c.register(nil)
		_ = c.dispatch(line)
		cost.Of(t, len(line), func() { _ = c.dispatch(line) })
		select {
		case r := <-w.reply:
			if r.Error != nil && fromWire(r.Error).Code == "" {
				t.Error("an error without a code")
			}
		default:
		}
		w.deliver(func(api.Progress) {})
		c.forget(id)
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	c := connected(b, func(*fakeCall) (any, error) { return api.Info{}, nil })
	ctx := context.Background()
	for b.Loop() {
		if _, err := c.Info(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
