package world

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// Started starts a command with more params and returns the exec.
func (c *Conn) Started(sandbox, command string, more Params) string {
	c.T.Helper()
	p := Params{"sandbox": sandbox, "command": command}
	for k, v := range more {
		p[k] = v
	}
	var r struct {
		Exec string
		PID  int
	}
	c.Call(&r, "exec.start", p)
	if !strings.HasPrefix(r.Exec, "ex_") || r.PID < 2 {
		c.T.Fatalf("exec.start: %+v", r)
	}
	return r.Exec
}

// Waited waits for the end of an exec.
func (c *Conn) Waited(exec string) ExecResult {
	c.T.Helper()
	var res ExecResult
	c.Call(&res, "exec.wait", Params{"exec": exec})
	return res
}

// Conn is a client of the socket that knows nothing but the wire: lines of
// JSON, and fds on the sendmsg of their own line.
type Conn struct {
	T    testing.TB
	Conn *net.UnixConn
	done chan struct{} // closed when the reader has ended, of err
	err  error

	mu      sync.Mutex
	next    int
	waiting map[string]chan Message
	Notify  chan Message // notifications, and answers without an id
}

// Message is any line from the daemon.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *WireError      `json:"error"`
}

// WireError is the error of a reply.
type WireError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Code, Op, Field, Hint string
	} `json:"data"`
}

func (e *WireError) String() string {
	return fmt.Sprintf("%d %s %s: %s (hint: %s)", e.Code, e.Data.Code, e.Data.Field, e.Message, e.Data.Hint)
}

// Dial connects to the world's daemon, which it starts when none runs.
func (w *World) Dial(t testing.TB) *Conn {
	t.Helper()
	if !w.Answers() {
		w.OK(t, "rpc", "system.info")
	}
	nc, err := net.Dial("unix", w.Socket())
	if err != nil {
		t.Fatal(err)
	}
	c := &Conn{
		T: t, Conn: nc.(*net.UnixConn), done: make(chan struct{}),
		waiting: map[string]chan Message{}, Notify: make(chan Message, 4096),
	}
	go c.read()
	t.Cleanup(c.Close)
	w.LogOnFailure(t) // of a connection that the monitor refuses only its log knows why
	return c
}

// Close closes the connection and waits for the end of its reader.
func (c *Conn) Close() {
	_ = c.Conn.Close()
	<-c.done
}

func (c *Conn) read() {
	defer close(c.done)
	defer close(c.Notify)
	for r := bufio.NewReader(c.Conn); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			c.err = err
			return
		}
		var m Message
		if json.Unmarshal(line, &m) != nil {
			m = Message{Method: "not an object", Params: line} // a batch's answer
		}
		c.mu.Lock()
		w := c.waiting[string(m.ID)]
		delete(c.waiting, string(m.ID))
		c.mu.Unlock()
		if w != nil {
			w <- m
			continue
		}
		select {
		case c.Notify <- m:
		default: // nobody is interested
		}
	}
}

// SendRaw writes bytes with fds on one sendmsg.
func (c *Conn) SendRaw(line []byte, files ...*os.File) {
	c.T.Helper()
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.Conn.WriteMsgUnix(line, oob, nil)
	if err == nil && n < len(line) {
		_, err = c.Conn.Write(line[n:])
	}
	if err != nil && !errors.Is(err, unix.EPIPE) {
		c.T.Fatalf("send: %v", err)
	}
}

// Pending is a call whose answer is still to come.
type Pending struct {
	c  *Conn
	ID int
	ch chan Message
}

// Start sends a call.
func (c *Conn) Start(method string, params any, files ...*os.File) *Pending {
	c.T.Helper()
	c.mu.Lock()
	c.next++
	p := &Pending{c, c.next, make(chan Message, 1)}
	c.waiting[fmt.Sprint(p.ID)] = p.ch
	c.mu.Unlock()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.ID, "method": method, "params": params})
	if err != nil {
		c.T.Fatal(err)
	}
	c.SendRaw(append(line, '\n'), files...)
	return p
}

// Wait returns the answer.
func (p *Pending) Wait() Message {
	p.c.T.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case m := <-p.ch:
		return m
	case <-p.c.done:
		select {
		case m := <-p.ch:
			return m
		default:
		}
		p.c.T.Fatalf("call %d: the daemon closed the connection: %v", p.ID, p.c.err)
	case <-late.C:
		testenv.Late(p.c.T, "call %d: no answer within %v", p.ID, Patience)
	}
	return Message{}
}

// Cancel sends the notification that cancels the call.
func (p *Pending) Cancel() {
	p.c.T.Helper()
	p.c.SendRaw(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":%d}}`+"\n", p.ID))
}

// Note returns the next notification.
func (c *Conn) Note() Message {
	c.T.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case m, ok := <-c.Notify:
		if !ok {
			c.T.Fatal("the daemon closed the connection")
		}
		return m
	case <-late.C:
		testenv.Late(c.T, "no notification within %v", Patience)
	}
	return Message{}
}

// Call calls a method that must succeed and decodes its result into out, unless
// that is nil.
func (c *Conn) Call(out any, method string, params any, files ...*os.File) {
	c.T.Helper()
	m := c.Start(method, params, files...).Wait()
	if m.Error != nil {
		c.T.Fatalf("%s %v: %s", method, params, m.Error)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(m.Result, out); err != nil {
		c.T.Fatalf("%s: %v in %s", method, err, m.Result)
	}
}

// Refused calls a method that must fail with an error of this code, and with a
// hint.
func (c *Conn) Refused(code, method string, params any, files ...*os.File) *WireError {
	c.T.Helper()
	m := c.Start(method, params, files...).Wait()
	if m.Error == nil {
		c.T.Fatalf("%s %v: succeeded with %s, want %s", method, params, m.Result, code)
	}
	if got := m.Error.Data.Code; got != code && fmt.Sprint(m.Error.Code) != code {
		c.T.Fatalf("%s %v: %s, want %s", method, params, m.Error, code)
	}
	if m.Error.Data.Hint == "" {
		c.T.Errorf("%s %v: %s has no hint", method, params, m.Error)
	}
	return m.Error
}

// Params are those of a call.
type Params = map[string]any

// SandboxOf creates a sandbox of the host image on this connection.
func (c *Conn) SandboxOf(more Params) string {
	c.T.Helper()
	p := Params{"image": "host"}
	for k, v := range more {
		p[k] = v
	}
	var sb struct{ ID, State string }
	c.Call(&sb, "sandbox.create", p)
	if sb.State != "running" {
		c.T.Fatalf("sandbox %s is %s", sb.ID, sb.State)
	}
	return sb.ID
}

// ExecResult is exec.run's result.
type ExecResult struct {
	Exec           string
	ExitCode       int `json:"exit_code"`
	Signal         string
	Verdict        string
	TimedOut       bool `json:"timed_out"`
	Stdout, Stderr string
	StdoutEncoding string `json:"stdout_encoding"`
	StderrEncoding string `json:"stderr_encoding"`
	Truncated      bool
	DurationMS     float64 `json:"duration_ms"`
	Killed         []int
	Denials        []any
	Error          string
	Peaks          struct {
		MemoryBytes int64   `json:"memory_bytes"`
		CPUMS       float64 `json:"cpu_ms"`
	}
}

// Exec runs a shell command in a sandbox.
func (c *Conn) Exec(sandbox, command string) ExecResult {
	c.T.Helper()
	var res ExecResult
	c.Call(&res, "exec.run", Params{"sandbox": sandbox, "command": command})
	return res
}
