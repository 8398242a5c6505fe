package guestapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// guest is the other end of a channel, played by the test: an honest or a
// hostile PID 1.
type guest struct {
	t  *testing.T
	fd int
	wg sync.WaitGroup // what uses fd beside the test
}

func newGuest(t *testing.T) (*Client, *guest) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(os.NewFile(uintptr(fds[0]), "hutchd"))
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, fd: fds[1]}
	t.Cleanup(func() {
		_ = c.Close()
		g.wg.Wait()
		_ = unix.Close(g.fd)
	})
	return c, g
}

// request reads the next request and closes its fds.
func (g *guest) request() Request {
	buf, oob := make([]byte, MaxPacket+1), make([]byte, unix.CmsgSpace(16))
	n, oobn, _, _, err := unix.Recvmsg(g.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		g.t.Error("guest receive:", err)
		return Request{}
	}
	if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range msgs {
			fds, _ := unix.ParseUnixRights(&msgs[i])
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		}
	}
	var req Request
	if err := json.Unmarshal(buf[:n], &req); err != nil {
		g.t.Error("guest decode:", err)
	}
	return req
}

func (g *guest) send(text string) error { return unix.Send(g.fd, []byte(text), unix.MSG_NOSIGNAL) }

// started runs an exec as far as "started" and returns it.
func (g *guest) started(c *Client) *Exec {
	g.t.Helper()
	g.wg.Go(func() {
		req := g.request()
		if err := g.send(fmt.Sprintf(`{"ev":"started","exec":%d,"pid":7}`, req.Exec)); err != nil {
			g.t.Error(err)
		}
	})
	e, err := c.Start(g.t.Context(), Request{Argv: []string{"true"}}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return e
}

// counts is how many execs a client knows and how many events it has ignored.
func (c *Client) counts() (execs, ignored int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.execs), c.ignored
}

func TestStartAndWait(t *testing.T) {
	c, g := newGuest(t)
	e := g.started(c)
	if e.PID != 7 {
		t.Errorf("pid %d, want 7", e.PID)
	}
	if err := g.send(fmt.Sprintf(`{"ev":"exited","exec":%d,"status":256,"killed":[7,8]}`, e.ID)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ev, err := e.Wait(t.Context())
		if err != nil || ev.Status != 256 || len(ev.Killed) != 2 {
			t.Errorf("wait: %+v, %v", ev, err)
		}
	}
	if n, _ := c.counts(); n != 0 {
		t.Errorf("%d execs are left", n)
	}
}

func TestStartFails(t *testing.T) {
	c, g := newGuest(t)
	g.wg.Go(func() {
		req := g.request()
		_ = g.send(fmt.Sprintf(`{"ev":"failed","exec":%d,"reason":"not_found","errno":2,"message":"execute \u001b[2J"}`,
			req.Exec))
	})
	_, err := c.Start(t.Context(), Request{Argv: []string{"nope"}}, nil)
	var failure *StartError
	if !errors.As(err, &failure) || failure.Reason != ReasonNotFound || !errors.Is(err, unix.ENOENT) {
		t.Fatalf("got %v", err)
	}
	if strings.ContainsRune(failure.Message, 0x1b) {
		t.Errorf("message %q has an escape character", failure.Message)
	}
}

// A canceled Start kills its exec, and its events are not held against the
// sandbox.
func TestStartCanceled(t *testing.T) {
	c, g := newGuest(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Start(ctx, Request{Argv: []string{"true"}}, nil)
		done <- err
	}()
	start := g.request()
	cancel()
	if kill := g.request(); kill.Op != OpKill || kill.Exec != start.Exec {
		t.Errorf("after cancel: %+v", kill)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	_ = g.send(fmt.Sprintf(`{"ev":"started","exec":%d,"pid":7}`, start.Exec))
	_ = g.send(fmt.Sprintf(`{"ev":"exited","exec":%d,"status":9}`, start.Exec))
	g.started(c) // the channel works, and all of the above has been read
	if _, ignored := c.counts(); ignored != 0 {
		t.Errorf("%d events were ignored", ignored)
	}
}

// Packets that no hutch-init sends end the channel, and every waiting call.
func TestHostilePackets(t *testing.T) {
	for name, packet := range map[string]string{
		"garbage":         "\x00\xff\x01",
		"empty":           "",
		"not an object":   "[]",
		"unknown event":   `{"ev":"root"}`,
		"unknown reason":  `{"ev":"failed","reason":"\u001b[2J"}`,
		"negative exec":   `{"ev":"started","exec":-1}`,
		"stopped status":  `{"ev":"exited","exec":1,"status":4991}`,
		"huge status":     `{"ev":"exited","exec":1,"status":65536}`,
		"oversize":        `{"ev":"ready","message":"` + strings.Repeat("x", MaxPacket) + `"}`,
		"refused nothing": `{"ev":"refused"}`,
		"refused by 0":    `{"ev":"refused","refused":{"nr":1,"count":1}}`,
		"refused never":   `{"ev":"refused","refused":{"nr":1,"errno":1}}`,
		"refused nobody":  `{"ev":"refused","refused":{"nr":1,"errno":1,"count":1,"pid":-1}}`,
		"file of no op":   `{"ev":"refused","refused":{"nr":1,"errno":1,"count":1,"file":{"op":"eat","path":"/x"}}}`,
		"file nowhere":    `{"ev":"refused","refused":{"nr":1,"errno":1,"count":1,"file":{"op":"read","path":"x"}}}`,
		"long file": `{"ev":"refused","refused":{"nr":1,"errno":1,"count":1,"file":{"op":"read","path":"/` +
			strings.Repeat("x", MaxPath) + `"}}}`,
		"long command": `{"ev":"refused","refused":{"nr":1,"errno":1,"count":1,"command":"` +
			strings.Repeat("x", maxName+1) + `"}}`,
		"no repository":   `{"ev":"ready","made":["x"]}`,
		"long repository": `{"ev":"ready","made":["/` + strings.Repeat("x", MaxPath) + `"]}`,
		"repositories":    `{"ev":"ready","made":["/x"` + strings.Repeat(`,"/x"`, MaxMade) + `]}`,
		"long folder":     `{"ev":"ready","moving":"/` + strings.Repeat("x", MaxPath) + `"}`,
		"too many killed": `{"ev":"exited","exec":1,"killed":[1` + strings.Repeat(",1", MaxKilled) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			c, g := newGuest(t)
			e := g.started(c)
			if err := g.send(packet); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Wait(t.Context()); api.ErrorCode(err) != api.Unavailable {
				t.Errorf("wait: %v", err)
			}
			if _, err := c.Start(t.Context(), Request{Argv: []string{"true"}},
				nil); api.ErrorCode(err) != api.Unavailable {
				t.Errorf("start: %v", err)
			}
			if err := e.Kill(); api.ErrorCode(err) != api.Unavailable {
				t.Errorf("kill: %v", err)
			}
		})
	}
}

// Events that make no sense for an exec, and events about others', change
// nothing.
func TestIgnoredEvents(t *testing.T) {
	c, g := newGuest(t)
	e := g.started(c)
	for _, packet := range []string{
		`{"ev":"ready","version":2}`,
		`{"ev":"exited","exec":1,"status":0}`,
		fmt.Sprintf(`{"ev":"started","exec":%d,"pid":1}`, e.ID),
		fmt.Sprintf(`{"ev":"started","exec":%d,"pid":9}`, e.ID),
		fmt.Sprintf(`{"ev":"failed","exec":%d,"reason":"internal"}`, e.ID),
		fmt.Sprintf(`{"ev":"exited","exec":%d,"status":256}`, e.ID),
		fmt.Sprintf(`{"ev":"exited","exec":%d,"status":0}`, e.ID),
	} {
		if err := g.send(packet); err != nil {
			t.Fatal(err)
		}
	}
	ev, err := e.Wait(t.Context())
	if err != nil || ev.Status != 256 || e.PID != 7 {
		t.Errorf("wait: %+v, %v; pid %d", ev, err, e.PID)
	}
	g.started(c)
	if _, ignored := c.counts(); ignored != 6 {
		t.Errorf("%d events ignored, want 6", ignored)
	}
}

// TestRefused: what hutch-init tells of refused calls arrives, printable, and a PID 1 that tells more is not
// listened to, and at last cut off.
func TestRefused(t *testing.T) {
	c, g := newGuest(t)
	e := g.started(c)
	got := make(chan Refused, 10*RefusedBurst)
	c.OnRefused(func(r Refused) { got <- r })
	const packet = `{"ev":"refused","refused":{"nr":272,"args":[1,2,3,4,5,6],"errno":1,"count":7,"pid":9,"cgroup":"ex_a","command":"\u001b[2J"}}`
	if err := g.send(packet); err != nil {
		t.Fatal(err)
	}
	want := Refused{NR: 272, Args: [6]uint64{1, 2, 3, 4, 5, 6}, Errno: 1, Count: 7, PID: 9, Cgroup: "ex_a",
		Command: "\ufffd[2J"}
	if r := <-got; r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	for range maxIgnored + 10*RefusedBurst {
		if g.send(packet) != nil {
			break
		}
	}
	if _, err := e.Wait(t.Context()); api.ErrorCode(err) != api.Unavailable || !errors.Is(c.Err(), ErrProtocol) {
		t.Errorf("wait: %v, channel: %v", err, c.Err())
	}
	if n := len(got); n < RefusedBurst || n > 8*RefusedBurst {
		t.Errorf("%d told", n)
	}
}

// TestMade: what hutch-init says of new repositories arrives, printable, however much it tells of refusals beside; the
// next question says which answer has arrived, and questions do not wait for each other.
func TestMade(t *testing.T) {
	c, g := newGuest(t)
	answer := func(want []uint64, text string) {
		g.wg.Go(func() {
			req := g.request()
			if req.Op != OpMade || !slices.Equal(req.Acks, want) {
				t.Errorf("%+v, want acks %v", req, want)
			}
			for range 8 * RefusedBurst {
				_ = g.send(`{"ev":"refused","refused":{"nr":1,"errno":1,"count":1,"pid":9}}`)
			}
			_ = g.send(fmt.Sprintf(text, req.Exec))
		})
	}
	answer(nil, `{"ev":"ready","exec":%d,"made":["/a\u001b","/b"],"more":true}`)
	got, more, err := c.Made(t.Context())
	if err != nil || !more || !slices.Equal(got, []string{"/a\ufffd", "/b"}) {
		t.Errorf("%q, %v, %v", got, more, err)
	}
	answer([]uint64{c.taken}, `{"ev":"ready","exec":%d}`)
	if got, more, err := c.Made(t.Context()); err != nil || more || len(got) > 0 {
		t.Errorf("%q, %v, %v", got, more, err)
	}
	held := make(chan error, 1)
	go func() {
		moving, err := c.Hold(t.Context(), time.Minute)
		if moving != "/w" {
			t.Errorf("moving %q", moving)
		}
		held <- err
	}()
	hold := g.request()
	if hold.Op != OpHold || hold.WaitMS != 60_000 {
		t.Errorf("%+v", hold)
	}
	answer([]uint64{c.taken}, `{"ev":"ready","exec":%d,"made":["/c"]}`)
	if got, _, err := c.Made(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	_ = g.send(fmt.Sprintf(`{"ev":"ready","exec":%d,"moving":"/w"}`, hold.Exec))
	if err := <-held; err != nil {
		t.Error(err)
	}
}

// TestMadeEarlier: hutch-init of an earlier build knows no such questions, which is no error; another failure is.
func TestMadeEarlier(t *testing.T) {
	c, g := newGuest(t)
	for text, fails := range map[string]bool{"bad request: made: unknown operation": false, "no": true} {
		g.wg.Go(func() {
			req := g.request()
			_ = g.send(fmt.Sprintf(`{"ev":"failed","exec":%d,"reason":"internal","message":%q}`, req.Exec, text))
		})
		if _, _, err := c.Made(t.Context()); (err != nil) != fails {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A flood of well-formed events is cut off, without memory growing meanwhile.
func TestFlood(t *testing.T) {
	c, g := newGuest(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	packet := `{"ev":"failed","exec":5,"reason":"internal","message":"` + strings.Repeat("x", 3000) + `"}`
	sent := 0
	for g.send(packet) == nil {
		if sent++; sent > 4*maxIgnored {
			t.Fatal("the flood was not cut off")
		}
	}
	<-c.Dead()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("heap grew by %d bytes over %d packets", grown, sent)
	}
}

// Fds that a guest attaches never arrive: the kernel closes them.
func TestFDsAreDropped(t *testing.T) {
	c, g := newGuest(t)
	e := g.started(c)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(pipe[0]), "pipe")
	defer r.Close()
	packet := fmt.Sprintf(`{"ev":"exited","exec":%d,"status":0}`, e.ID)
	if err := unix.Sendmsg(g.fd, []byte(packet), unix.UnixRights(pipe[1], pipe[1]), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(pipe[1])
	if _, err := e.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The last writer is gone only if nobody holds what was sent.
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want end of file", err)
	}
}

// A guest that never reads costs a caller sendTimeout, not for ever, and other
// callers as well: they wait for the same socket at the same time.
func TestNeverReading(t *testing.T) {
	testenv.Short(t, "waits for the send timeout")
	c, g := newGuest(t)
	e := g.started(c)
	begin := time.Now()
	errs := make(chan error)
	const callers = 4
	for range callers {
		go func() {
			for {
				if err := e.Kill(); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range callers {
		if err := <-errs; api.ErrorCode(err) != api.Unavailable {
			t.Errorf("kill: %v", err)
		}
	}
	if took := time.Since(begin); took > 3*sendTimeout {
		t.Errorf("took %v", took)
	}
}

func TestClose(t *testing.T) {
	c, g := newGuest(t)
	e := g.started(c)
	waited := make(chan error, 1)
	go func() {
		_, err := e.Wait(t.Context())
		waited <- err
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; api.ErrorCode(err) != api.Unavailable {
		t.Errorf("wait: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestSetupVersions(t *testing.T) {
	for answer, code := range map[string]api.Code{
		`{"ev":"ready","version":4}`:                         "",
		`{"ev":"ready","version":2}`:                         api.FailedPrecondition,
		`{"ev":"failed","reason":"internal","message":"no"}`: api.Internal,
		`{"ev":"started","exec":3}`:                          api.Unavailable, // ignored; then the guest hangs up
		`{"ev":"ready","version":"1"}`:                       api.Unavailable,
	} {
		c, g := newGuest(t)
		g.wg.Go(func() {
			g.request()
			_ = g.send(answer)
			_ = unix.Shutdown(g.fd, unix.SHUT_RDWR)
		})
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		err = c.Setup(t.Context(), f, nil, "box", 0, nil)
		_ = f.Close()
		if (err == nil) != (code == "") || err != nil && api.ErrorCode(err) != code {
			t.Errorf("answer %s: %v, want %q", answer, err, code)
		}
	}
}

func TestTooLarge(t *testing.T) {
	c, _ := newGuest(t)
	_, err := c.Start(t.Context(), Request{Argv: []string{"true", strings.Repeat("x", MaxLarge)}}, nil)
	var failure *StartError
	if !errors.As(err, &failure) || failure.Reason != ReasonTooBig {
		t.Errorf("got %v", err)
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"ev":"exited","exec":7,"status":256,"usage":{"user_us":1},"killed":[1,2]}`))
	f.Add([]byte(`{"ev":"refused","refused":{"nr":2,"errno":13,"count":1,"file":{"op":"read","path":"/x","at":{"path":"/","uid":1}}}}`))
	f.Add([]byte(`{"ev":"refused","refused":{"nr":272,"args":[1],"errno":1,"count":7,"pid":9,"session":3,"command":"x"}}`))
	f.Add([]byte(`{"ev":"failed","exec":7,"reason":"not_found","errno":2,"message":"\u0007"}`))
	f.Fuzz(func(t *testing.T, packet []byte) {
		var ev *Event
		var err error
		cost.Input(t, packet, func(packet []byte) { ev, err = parseEvent(packet) })
		if err != nil {
			return
		}
		if ev.Usage == nil || len(ev.Killed) > MaxKilled || len(ev.Message) > 3*MaxMessage {
			t.Errorf("%q gives %+v", packet, ev)
		}
	})
}
