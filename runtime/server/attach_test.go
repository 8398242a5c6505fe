package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// fakeOutput gives its pieces, cut to what the reader has room for, and then
// blocks.
type fakeOutput struct {
	mu     sync.Mutex
	pieces []exec.Piece
	read   int64 // bytes that were asked for
	from   api.Offsets
}

func (f *fakeOutput) From() api.Offsets { return f.from }

func (f *fakeOutput) Await(ctx context.Context, credit bool, more <-chan struct{}) error {
	f.mu.Lock()
	ready := len(f.pieces) > 0 && (credit || len(f.pieces[0].Data) == 0)
	f.mu.Unlock()
	if ready {
		return nil
	}
	select {
	case <-more:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fakeOutput) Next(buf []byte) (exec.Piece, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pieces) == 0 {
		return exec.Piece{}, false
	}
	p := f.pieces[0]
	n := copy(buf, p.Data)
	if n == 0 && len(p.Data) > 0 {
		return exec.Piece{}, false
	}
	f.read += int64(n)
	f.pieces[0].Data = p.Data[n:]
	f.pieces[0].Offset += int64(n)
	if n == len(p.Data) {
		f.pieces = f.pieces[1:]
	}
	p.Data = buf[:n]
	return p, true
}

// attached serves an exec with these pieces.
func attached(t testing.TB, pieces ...exec.Piece) (*Server, *fakeOutput) {
	out := &fakeOutput{pieces: pieces}
	return newServer(t, &engines{attach: func(api.AttachParams) (Output, error) { return out, nil }}), out
}

func exited(code int) exec.Piece {
	return exec.Piece{Exited: &api.ExecResult{Exec: "ex_1", ExitCode: code}, Ends: api.Offsets{Stdout: 9}}
}

// output receives an exec.output.
func (p *peer) output() api.Output {
	p.t.Helper()
	m := p.recv()
	var o api.Output
	if m.Method != api.NotifyOutput || json.Unmarshal(m.Params, &o) != nil {
		p.t.Fatalf("got %s %s", m.Method, m.Params)
	}
	return o
}

// TestAttach: the reply comes first, then the output, then the end.
func TestAttach(t *testing.T) {
	s, _ := attached(t,
		exec.Piece{Stream: api.Stdout, Data: []byte("a \"quoted\"\n\x01 é line"), Text: true},
		exec.Piece{Stream: api.Stderr, Offset: 7, Dropped: 3, Data: []byte{0xff}},
		exited(3))
	p := serve(t, s)
	p.send(request(1, "exec.attach", `{"exec":"ex_1","from":{"stdout":0,"stderr":4}}`))
	sameJSON(t, p.recvOK("1"), `{"attachment":"at_1","from":{"stdout":0,"stderr":0}}`)
	if o, want := p.output(),
		(api.Output{Attachment: "at_1", Exec: "ex_1", Stream: "stdout", Encoding: "utf-8",
			Data: "a \"quoted\"\n\x01 é line"}); o != want {
		t.Errorf("%+v", o)
	}
	if o, want := p.output(),
		(api.Output{Attachment: "at_1", Exec: "ex_1", Stream: "stderr", Offset: 7, Dropped: 3, Encoding: "base64",
			Data: "/w=="}); o != want {
		t.Errorf("%+v", o)
	}
	m := p.recv()
	var e api.Exited
	if err := json.Unmarshal(m.Params, &e); err != nil || m.Method != api.NotifyExited || e.ExitCode != 3 ||
		e.Attachment != "at_1" || e.Ends.Stdout != 9 {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	// It is over, which a client cannot know in time.
	p.send(request(2, "exec.credit", `{"exec":"ex_1","bytes":1}`))
	p.recvOK("2")
	p.send(request(2, "exec.credit", `{"exec":"ex_2","bytes":1}`))
	p.recvErr("2", api.NotFound.Number())
	p.send(request(3, "exec.attach", `{"exec":"ex_1","credit_bytes":-1}`))
	p.recvErr("3", api.InvalidArgument.Number())
}

// TestCredit: an attachment sends as many bytes as it has credit for, and its
// neighbours do not mind.
func TestCredit(t *testing.T) {
	s, out := attached(t, exec.Piece{Stream: api.Stdout, Data: make([]byte, 1000)}, exited(0))
	p := serve(t, s)
	p.send(request(1, "exec.attach", `{"exec":"ex_1","credit_bytes":10}`))
	p.recvOK("1")
	if o := p.output(); len(o.Data) != 16 {
		t.Errorf("%+v", o)
	}
	p.alive()
	out.mu.Lock()
	if out.read != 10 {
		t.Errorf("%d bytes were read for 10 of credit", out.read)
	}
	out.mu.Unlock()
	for _, bad := range []string{`{"exec":"ex_1","bytes":0}`, `{"exec":"ex_1","bytes":-4}`} {
		p.send(request("bad", "exec.credit", bad))
		p.recvErr(`"bad"`, api.InvalidArgument.Number())
	}
	p.send(request(2, "exec.credit", `{"exec":"ex_1","attachment":"at_1","bytes":990}`))
	got := map[string]int{}
	for range 3 {
		got[p.recv().Method]++
	}
	if got[""] != 1 || got[api.NotifyOutput] != 1 || got[api.NotifyExited] != 1 {
		t.Errorf("%v", got)
	}
}

// TestAttachTwice: several attachments to one exec on one connection are told
// apart by their ids.
func TestAttachTwice(t *testing.T) {
	s := newServer(t, &engines{attach: func(api.AttachParams) (Output, error) {
		return &fakeOutput{pieces: []exec.Piece{{Stream: api.Stdout, Data: []byte("abc")}}}, nil
	}})
	p := serve(t, s)
	for i := range 2 {
		p.send(request(i, "exec.attach", `{"exec":"ex_1","credit_bytes":1}`))
		p.recvOK(fmt.Sprint(i))
		if o := p.output(); o.Attachment != fmt.Sprintf("at_%d", i+1) {
			t.Errorf("%+v", o)
		}
	}
	p.send(request("c", "exec.credit", `{"exec":"ex_1","bytes":1}`))
	p.recvErr(`"c"`, api.InvalidArgument.Number())
	p.send(request("d", "exec.detach", `{"exec":"ex_1","attachment":"at_1"}`))
	p.recvOK(`"d"`)
	p.send(request("e", "exec.detach", `{"exec":"ex_2","attachment":"at_2"}`))
	p.recvErr(`"e"`, api.NotFound.Number())
	// Other connections have nothing to do with it.
	q := serve(t, s)
	q.send(request(1, "exec.credit", `{"exec":"ex_1","attachment":"at_2","bytes":1}`))
	q.recvErr("1", api.NotFound.Number())
}

// TestSubscriptionsBounded: a connection cannot attach for ever.
func TestSubscriptionsBounded(t *testing.T) {
	s := newServer(t, &engines{attach: func(api.AttachParams) (Output, error) { return &fakeOutput{}, nil }})
	p := serve(t, s)
	for i := range maxSubscriptions {
		p.send(request(i, "exec.attach", `{"exec":"ex_1"}`))
		p.recvOK(fmt.Sprint(i))
	}
	p.send(request("x", "exec.attach", `{"exec":"ex_1"}`))
	p.recvErr(`"x"`, api.ResourceExhausted.Number())
	p.alive()
}

// TestHalfClosedAttach: a client that has finished writing gets all that follows
// (`printf ... | socat`), as for calls.
func TestHalfClosedAttach(t *testing.T) {
	s, out := attached(t, exec.Piece{Stream: api.Stdout, Data: []byte("first")})
	p := serve(t, s)
	p.send(request(1, "exec.attach", `{"exec":"ex_1"}`))
	if err := p.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	p.recvOK("1")
	p.output()
	out.mu.Lock()
	out.pieces = append(out.pieces, exited(0))
	out.mu.Unlock()
	// Nothing wakes a fake, so the connection is what ends: Shutdown does not wait
	// for what is followed.
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.eof()
}

func TestHalfClosedAttachEnds(t *testing.T) {
	s, _ := attached(t, exec.Piece{Stream: api.Stdout, Data: bytes.Repeat([]byte("x"), 3<<20)}, exited(0))
	p := serve(t, s)
	p.send(request(1, "exec.attach", `{"exec":"ex_1","credit_bytes":4000000}`))
	if err := p.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	p.recvOK("1")
	for got := 0; got < 3<<20; {
		got += len(p.output().Data) * 3 / 4
	}
	if m := p.recv(); m.Method != api.NotifyExited {
		t.Errorf("%s", m.Method)
	}
	p.eof()
}

// TestDeadSubscribers: clients that attach with all the credit there is and never
// read cost no memory, and nobody waits for them.
func TestDeadSubscribers(t *testing.T) {
	const clients, attachments = 20, 100
	endless := make([]byte, 64<<20)
	s := newServer(t, &engines{attach: func(api.AttachParams) (Output, error) {
		return &fakeOutput{pieces: []exec.Piece{{Stream: api.Stdout, Data: endless}}}, nil
	}})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	dead := make([]*peer, clients)
	for i := range dead {
		dead[i] = serve(t, s)
		for j := range attachments {
			dead[i].send(request(j, "exec.attach", `{"exec":"ex_1","credit_bytes":1073741824}`))
		}
	}
	// All of them have begun when each connection has something to read.
	for _, p := range dead {
		awaitReadable(t, p)
	}
	living := serve(t, s)
	for range 20 {
		start := time.Now()
		living.alive()
		if d := time.Since(start); d > time.Second {
			t.Errorf("another client's call took %v", d)
		}
	}
	// One line in the queue, one under way, and the buffers of both.
	if grown := heap() - before; grown > clients*(3<<20) {
		t.Errorf("%d clients that do not read cost %d bytes", clients, grown)
	}
}

func awaitReadable(t *testing.T, p *peer) {
	t.Helper()
	rc, err := p.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := rc.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	}); err != nil {
		t.Fatal(err)
	}
}

// FuzzOutputLine: whatever a command writes, the line is what encoding/json reads
// back.
func FuzzOutputLine(f *testing.F) {
	f.Add([]byte("plain"), true)
	f.Add([]byte("\x00\x1f\"\\\u2028<>&é😀"), true)
	f.Add([]byte{0xff, 0xfe}, false)
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		text = text && strings.ToValidUTF8(string(data), "") == string(data)
		fo := &follower{sub: &subscription{id: "at_1"}, exec: "ex_\"1"}
		var line []byte
		piece := &exec.Piece{Stream: api.Stdout, Offset: 5, Dropped: 2, Data: data, Text: text}
		cost.Of(t, len(data), func() { line = fo.appendOutput(nil, piece) })
		if bytes.IndexByte(line, '\n') >= 0 {
			t.Fatalf("%q is more than one line", line)
		}
		var m struct {
			JSONRPC string
			Method  string
			Params  api.Output
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		want := api.Output{Attachment: "at_1", Exec: "ex_\"1", Stream: api.Stdout, Offset: 5, Dropped: 2,
			Encoding: api.Base64, Data: m.Params.Data}
		if text {
			want.Encoding, want.Data = api.Text, string(data)
		}
		if m.Params != want || m.JSONRPC != "2.0" || m.Method != api.NotifyOutput {
			t.Errorf("%q is %+v", line, m)
		}
	})
}
