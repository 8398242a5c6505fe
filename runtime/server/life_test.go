package server

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// blocking are engines whose Run and Pull wait for their context or a release.
type blocking struct {
	engines
	entered chan struct{}
	release chan struct{}
	ended   chan error // the cause of each context that ended
}

func newBlocking() *blocking {
	b := &blocking{entered: make(chan struct{}, 100), release: make(chan struct{}), ended: make(chan error, 100)}
	wait := func(ctx context.Context) error {
		b.entered <- struct{}{}
		select {
		case <-ctx.Done():
			b.ended <- context.Cause(ctx)
			return ctx.Err()
		case <-b.release:
			b.ended <- nil
			return nil
		}
	}
	b.run = func(ctx context.Context, _ api.ExecParams, _ *jsonrpc.FDs, _ func(string, int)) (api.ExecResult, error) {
		return api.ExecResult{}, wait(ctx)
	}
	b.pull = func(ctx context.Context, _ api.PullParams, _ func(api.Progress)) (api.Image, error) {
		return api.Image{}, wait(ctx)
	}
	b.create = func(ctx context.Context, _ api.CreateParams, _ *jsonrpc.FDs, _ func(api.Progress)) (api.Sandbox,
		error) {
		return api.Sandbox{}, wait(ctx)
	}
	return b
}

func TestCancel(t *testing.T) {
	b := newBlocking()
	p := serve(t, newServer(t, &b.engines))
	for _, id := range []any{1, "x", -5, 1.5} {
		p.send(request(id, "exec.run", runParams("")))
		<-b.entered
		p.send(`{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":"unknown"}}`)
		p.send(`{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":{}}}`)
		p.send(`{"jsonrpc":"2.0","method":"rpc.cancel","params":[1]}`)
		p.send(`{"jsonrpc":"2.0","method":"rpc.cancel"}`)
		p.alive()
		raw := string(mustJSON(id))
		p.send(`{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":` + raw + `}}`)
		p.recvErr(raw, api.Canceled.Number())
		if err := <-b.ended; !errors.Is(err, jsonrpc.ErrCanceled) {
			t.Errorf("cause %v", err)
		}
	}
	// In one write with the call, and in a batch: before the handler runs.
	p.send(request(1, "image.pull", `{"ref":"x"}`) + "\n" + `{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":1}}`)
	p.recvErr("1", api.Canceled.Number())
	p.send(`[` + request(1, "exec.run", runParams("")) + `,{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":1}}]`)
	p.line()
	p.alive()
}

func TestHalfClose(t *testing.T) {
	b := newBlocking()
	p := serve(t, newServer(t, &b.engines))
	p.send(request(1, "exec.run", runParams("")))
	p.send(request(2, "image.pull", `{"ref":"x"}`))
	<-b.entered
	<-b.entered
	if err := p.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b.release <- struct{}{}
	b.release <- struct{}{}
	for range 2 {
		if m := p.recv(); m.Error != nil {
			t.Errorf("%s: %v", m.ID, m.Error)
		}
	}
	p.eof()
	<-p.done
}

func TestRequestWithoutNewlineThenHalfClose(t *testing.T) {
	p := serve(t, newServer(t, &engines{}))
	if _, err := p.conn.Write([]byte(request(1, "system.info", `{}`))); err != nil {
		t.Fatal(err)
	}
	_ = p.conn.CloseWrite()
	p.recvOK("1")
	p.eof()
}

func TestLostConnection(t *testing.T) {
	for _, halfFirst := range []bool{false, true} {
		t.Run("half-close first: "+strconv.FormatBool(halfFirst), func(t *testing.T) {
			b := newBlocking()
			p := serve(t, newServer(t, &b.engines))
			p.send(request(1, "exec.run", runParams("")))
			p.send(request(2, "sandbox.create", `{"image":"host"}`))
			p.send(request(3, "image.pull", `{}`))
			for range 3 {
				<-b.entered
			}
			if halfFirst {
				_ = p.conn.CloseWrite()
			}
			_ = p.conn.Close()
			for range 2 { // run and create, not pull
				if err := <-b.ended; !errors.Is(err, jsonrpc.ErrConnectionLost) {
					t.Errorf("cause %v", err)
				}
			}
			select {
			case <-p.done:
				t.Error("served until the connection was lost, not until the pull ended")
			default:
			}
			b.release <- struct{}{}
			if err := <-b.ended; err != nil {
				t.Errorf("the pull ended with %v", err)
			}
			<-p.done
		})
	}
}

// TestLostLease: a private daemon has nobody else to work for.
func TestLostLease(t *testing.T) {
	b := newBlocking()
	p := serveAs(t, newServer(t, &b.engines), Actor{Private: true})
	p.send(request(1, "image.pull", `{}`))
	<-b.entered
	_ = p.conn.Close()
	if err := <-b.ended; !errors.Is(err, jsonrpc.ErrConnectionLost) {
		t.Errorf("cause %v", err)
	}
	<-p.done
}

// TestSlowClient: a client that asks much and reads nothing does not block
// another one. When it is given up is the Writer's matter.
func TestSlowClient(t *testing.T) {
	big := make([]byte, 2<<20)
	for i := range big {
		big[i] = 'x'
	}
	e := &engines{run: func(context.Context, api.ExecParams, *jsonrpc.FDs, func(string, int)) (api.ExecResult, error) {
		return api.ExecResult{Stdout: string(big)}, nil
	}}
	s := newServer(t, e)
	slow, quick := serve(t, s), serve(t, s)
	for i := range 6 {
		slow.send(request(i, "exec.run", runParams("")))
	}
	slow.send(request("last", "system.info", `{}`)) // still read, though replies wait
	for range 100 {
		quick.alive()
	}
	_ = slow.conn.Close()
	<-slow.done
	quick.alive()
}

func TestShutdownWaits(t *testing.T) {
	b := newBlocking()
	s := newServer(t, &b.engines)
	busy, idle := serve(t, s), serve(t, s)
	busy.send(request(1, "exec.run", runParams("")))
	<-b.entered
	idle.alive()
	result := make(chan error, 1)
	go func() { result <- s.Shutdown(deadline(t)) }()
	idle.eof()
	<-idle.done
	late := serve(t, s)
	late.eof()
	select {
	case err := <-result:
		t.Fatalf("Shutdown returned %v with a call under way", err)
	default:
	}
	b.release <- struct{}{}
	busy.recvOK("1")
	busy.eof()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestShutdownGivesUp(t *testing.T) {
	b := newBlocking()
	s := newServer(t, &b.engines)
	p := serve(t, s)
	p.send(request(1, "image.pull", `{}`))
	<-b.entered
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := <-b.ended; !errors.Is(err, ErrShutdown) {
		t.Errorf("cause %v", err)
	}
	<-p.done
}

func TestShutdownAfterHalfClose(t *testing.T) {
	b := newBlocking()
	s := newServer(t, &b.engines)
	p := serve(t, s)
	p.send(request(1, "exec.run", runParams("")))
	<-b.entered
	_ = p.conn.CloseWrite()
	result := make(chan error, 1)
	go func() { result <- s.Shutdown(deadline(t)) }()
	late := serve(t, s)
	late.eof() // so Shutdown has begun
	b.release <- struct{}{}
	p.recvOK("1")
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestEndsWithConnection: what nobody would hear of ends with its connection, and nothing else.
func TestEndsWithConnection(t *testing.T) {
	want := []string{"code.run", "exec.run", "exec.wait", "fs.list", "fs.pack", "fs.read", "fs.unpack", "fs.write",
		"pool.acquire", "sandbox.create", "sandbox.run", "shell.run", "template.build", "template.create", "tools.call"}
	var got []string
	for _, m := range discovered(t).Methods {
		if m.Ends {
			got = append(got, m.Name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
