package filesapi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// fakeWorker is the other end of a client's channel: it answers as a test says.
type fakeWorker struct {
	t    *testing.T
	conn *os.File
	wg   sync.WaitGroup
}

func newFake(t *testing.T) (*Client, *fakeWorker) {
	t.Helper()
	ours, theirs, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	w := &fakeWorker{t: t, conn: theirs}
	c := NewClient(ours)
	t.Cleanup(func() {
		_ = c.Close()
		_ = theirs.Close()
		w.wg.Wait()
	})
	return c, w
}

// request reads one packet; nil is the end.
func (w *fakeWorker) request() (*Request, []byte) {
	buf := make([]byte, MaxPacket+1)
	n, err := w.conn.Read(buf)
	if err != nil {
		return nil, nil
	}
	req, payload, err := ParseRequest(buf[:n])
	if err != nil {
		w.t.Error(err)
	}
	return req, payload
}

func (w *fakeWorker) send(r Reply, payload string) {
	data, err := Encode(&r, []byte(payload))
	if err != nil {
		w.t.Error(err)
	}
	_, _ = w.conn.Write(data)
}

// answer serves one call.
func (w *fakeWorker) answer(f func(req *Request)) {
	w.wg.Go(func() {
		if req, _ := w.request(); req != nil {
			f(req)
		}
	})
}

var stat = Request{Op: OpStat, Path: "/x"}

func TestCall(t *testing.T) {
	c, w := newFake(t)
	sent := strings.Repeat("0123456789", 30_000)
	w.wg.Go(func() {
		req, payload := w.request()
		all := string(payload)
		for more := req.More; more; {
			r, payload := w.request()
			if r.Op != OpData || r.ID != req.ID {
				t.Errorf("got %+v", r)
			}
			all += string(payload)
			more = r.More
		}
		if all != sent {
			t.Errorf("%d bytes arrived of %d", len(all), len(sent))
		}
		for _, piece := range []string{"one", "two"} {
			w.send(Reply{ID: req.ID, More: true}, piece)
		}
		w.send(Reply{ID: req.ID, Bytes: 7}, "three")
	})
	r, data, err := c.Call(t.Context(), Request{Op: OpWrite, Path: "/x"}, []byte(sent), 11)
	if err != nil || r.Bytes != 7 || string(data) != "onetwothree" {
		t.Fatalf("%+v %q %v", r, data, err)
	}
	w.answer(func(req *Request) {
		w.send(Reply{ID: req.ID, Errno: int(unix.ENOENT), Path: "/a\x1b[31m", Detail: strings.Repeat("y", 5000)}, "")
	})
	_, _, err = c.Call(t.Context(), stat, nil, 0)
	var fe *Error
	if !errors.As(err, &fe) || !errors.Is(err, unix.ENOENT) || fe.Path != "/a\uFFFD[31m" || len(fe.Detail) != maxText {
		t.Errorf("got %.200q", err)
	}
}

// TestHostile: whatever a worker says, a call ends with an error, the channel is
// given up, and later calls fail at once.
func TestHostile(t *testing.T) {
	header := func(text string, payload string) string {
		var n [4]byte
		binary.LittleEndian.PutUint32(n[:], uint32(len(text)))
		return string(n[:]) + text + payload
	}
	for name, raw := range map[string]string{
		"garbage":       "garbage, and more of it",
		"short":         "x",
		"long header":   "\xff\xff\xff\xffxxxxxxxxxxxxxx",
		"no JSON":       header("nonsense", ""),
		"other call":    header(`{"id":7}`, ""),
		"negative":      header(`{"id":1,"size":-1}`, ""),
		"too large":     header(`{"id":1,"size":9223372036854775807}`, ""),
		"errno":         header(`{"id":1,"errno":5000}`, ""),
		"payload":       header(`{"id":1}`, "more than was asked for"),
		"pieces":        header(`{"id":1,"more":true}`, "more than was asked for"),
		"entry":         header(`{"id":1,"entry":{"path":"","mode":0}}`, ""),
		"entry size":    header(`{"id":1,"entry":{"path":"eA==","size":-4}}`, ""),
		"empty pieces":  header(`{"id":1,"more":true}`, ""),
		"answer":        header(`{}`, ""),
		"types":         header(`{"id":"1"}`, ""),
		"large":         strings.Repeat("\x00", MaxPacket+1),
		"invalid times": header(`{"id":1,"entry":{"path":"eA==","mtime":"99999-01-01T00:00:00Z"}}`, ""),
	} {
		c, w := newFake(t)
		w.answer(func(*Request) { _, _ = w.conn.Write([]byte(raw)) })
		if _, _, err := c.Call(t.Context(), stat, nil, 4); api.ErrorCode(err) != api.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := c.Call(t.Context(), stat, nil, 4); api.ErrorCode(err) != api.Unavailable {
			t.Errorf("%s: the next call: %v", name, err)
		}
	}
}

// TestFDsAreDropped: no fd comes out of a sandbox.
func TestFDsAreDropped(t *testing.T) {
	c, w := newFake(t)
	r, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.answer(func(req *Request) {
		data, _ := Encode(&Reply{ID: req.ID}, nil)
		rc, _ := w.conn.SyscallConn()
		_ = rc.Control(func(fd uintptr) {
			if err := unix.Sendmsg(int(fd), data, unix.UnixRights(int(theirs.Fd())), nil, 0); err != nil {
				t.Error(err)
			}
		})
		_ = theirs.Close()
	})
	if _, _, err := c.Call(t.Context(), stat, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want end of file: nobody holds the other end", err)
	}
}

// TestCancel: a cancelled call is told to the worker, and keeps its place until the
// worker has ended it.
func TestCancel(t *testing.T) {
	c, w := newFake(t)
	ids := make(chan uint64, MaxCalls)
	canceled := make(chan uint64, MaxCalls)
	w.wg.Go(func() {
		for {
			req, _ := w.request()
			switch {
			case req == nil:
				return
			case req.Op == OpCancel:
				canceled <- req.ID
			default:
				ids <- req.ID
			}
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	for range MaxCalls {
		wg.Go(func() {
			if _, _, err := c.Call(ctx, stat, nil, 0); err == nil || err.Error() != "enough" {
				t.Errorf("got %v", err)
			}
		})
	}
	first := <-ids
	for range MaxCalls - 1 {
		<-ids
	}
	cancel(errors.New("enough"))
	wg.Wait()
	for range MaxCalls {
		<-canceled
	}
	late, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, _, err := c.Call(late, stat, nil, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call too many: %v", err)
	}
	w.send(Reply{ID: first, Errno: int(unix.ECANCELED)}, "")
	ended := make(chan error)
	go func() {
		_, _, err := c.Call(t.Context(), stat, nil, 0)
		ended <- err
	}()
	w.send(Reply{ID: <-ids}, "")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSilence: a worker that says nothing is asked, and then given up; one that
// answers the question is waited for.
func TestSilence(t *testing.T) {
	testenv.Short(t, "waits for the worker")
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		c, _ := newFake(t)
		begin := time.Now()
		_, _, err := c.Call(t.Context(), stat, nil, 0)
		if api.ErrorCode(err) != api.Unavailable || time.Since(begin) > 4*silence {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
	t.Run("busy", func(t *testing.T) {
		t.Parallel()
		c, w := newFake(t)
		w.wg.Go(func() {
			req, _ := w.request()
			for range 2 {
				if ping, _ := w.request(); ping == nil || ping.Op != OpPing {
					t.Errorf("got %+v", ping)
					return
				}
				w.send(Reply{}, "")
			}
			w.send(Reply{ID: req.ID}, "")
		})
		if _, _, err := c.Call(t.Context(), stat, nil, 0); err != nil {
			t.Error(err)
		}
	})
}

func FuzzParseReply(f *testing.F) {
	for _, r := range []Reply{{ID: 1, Errno: 2, Path: "/x"},
		{ID: 2, Entry: &Entry{Path: []byte("a"), Mode: 0o100644}}} {
		data, _ := Encode(&r, []byte("payload"))
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r *Reply
		var payload []byte
		var err error
		cost.Input(t, data, func(data []byte) { r, payload, err = parseReply(data) })
		if err != nil {
			return
		}
		if len(payload) > len(data) || len(r.Path) > 3*maxText || len(r.Detail) > 3*maxText || r.Size < 0 || r.Offset+
			r.Bytes < 0 {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	data, _ := Encode(&Request{ID: 1, Op: OpMove, Path: "/a", To: "/b"}, nil)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var req *Request
		var err error
		cost.Input(t, data, func(data []byte) { req, _, err = ParseRequest(data) })
		if err == nil && strings.ContainsRune(req.Path+req.To, 0) {
			t.Errorf("%+v", req)
		}
	})
}

func FuzzParseEntries(f *testing.F) {
	f.Add([]byte(`[{"path":"eA==","mode":33188,"mtime":"2026-01-01T00:00:00Z"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var list []Entry
		var err error
		cost.Input(t, data, func(data []byte) { list, err = ParseEntries(data, 10) })
		if err == nil && len(list) > 10 {
			t.Errorf("%d entries", len(list))
		}
	})
}
