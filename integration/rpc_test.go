package integration_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rpcConn is a client of the socket that knows nothing but the wire: lines of
// JSON, and fds on the sendmsg of their own line.
type rpcConn struct {
	t    testing.TB
	conn *net.UnixConn
	done chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	next    int
	waiting map[string]chan message
	notify  chan message // notifications, and answers without an id
}

// message is any line from the daemon.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *wireError      `json:"error"`
}

// wireError is the error of a reply.
type wireError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Code, Op, Field, Hint string
	} `json:"data"`
}

func (e *wireError) String() string {
	return fmt.Sprintf("%d %s %s: %s (hint: %s)", e.Code, e.Data.Code, e.Data.Field, e.Message, e.Data.Hint)
}

// dial connects to the world's daemon, which it starts when none runs.
func (w *world) dial(t testing.TB) *rpcConn {
	t.Helper()
	if !w.answers() {
		w.ok(t, "rpc", "system.info")
	}
	nc, err := net.Dial("unix", w.socket())
	if err != nil {
		t.Fatal(err)
	}
	c := &rpcConn{
		t: t, conn: nc.(*net.UnixConn), done: make(chan struct{}),
		waiting: map[string]chan message{}, notify: make(chan message, 4096),
	}
	go c.read()
	t.Cleanup(c.close)
	return c
}

func (c *rpcConn) close() {
	_ = c.conn.Close()
	<-c.done
}

func (c *rpcConn) read() {
	defer close(c.done)
	defer close(c.notify)
	for r := bufio.NewReader(c.conn); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			m = message{Method: "not an object", Params: line} // a batch's answer
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
		case c.notify <- m:
		default: // nobody is interested
		}
	}
}

// sendRaw writes bytes with fds on one sendmsg.
func (c *rpcConn) sendRaw(line []byte, files ...*os.File) {
	c.t.Helper()
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.conn.WriteMsgUnix(line, oob, nil)
	if err == nil && n < len(line) {
		_, err = c.conn.Write(line[n:])
	}
	if err != nil && !errors.Is(err, unix.EPIPE) {
		c.t.Fatalf("send: %v", err)
	}
}

// pending is a call whose answer is still to come.
type pending struct {
	c  *rpcConn
	id int
	ch chan message
}

// start sends a call.
func (c *rpcConn) start(method string, params any, files ...*os.File) *pending {
	c.t.Helper()
	c.mu.Lock()
	c.next++
	p := &pending{c, c.next, make(chan message, 1)}
	c.waiting[fmt.Sprint(p.id)] = p.ch
	c.mu.Unlock()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.id, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	c.sendRaw(append(line, '\n'), files...)
	return p
}

// wait returns the answer.
func (p *pending) wait() message {
	p.c.t.Helper()
	select {
	case m := <-p.ch:
		return m
	case <-p.c.done:
		select {
		case m := <-p.ch:
			return m
		default:
		}
		p.c.t.Fatalf("call %d: the daemon closed the connection", p.id)
	case <-time.After(patience):
		p.c.t.Fatalf("call %d: no answer within %v", p.id, patience)
	}
	return message{}
}

// cancel sends the notification that cancels the call.
func (p *pending) cancel() {
	p.c.t.Helper()
	p.c.sendRaw(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":%d}}`+"\n", p.id))
}

// note returns the next notification.
func (c *rpcConn) note() message {
	c.t.Helper()
	select {
	case m, ok := <-c.notify:
		if !ok {
			c.t.Fatal("the daemon closed the connection")
		}
		return m
	case <-time.After(patience):
		c.t.Fatalf("no notification within %v", patience)
	}
	return message{}
}

// call calls a method that must succeed and decodes its result into out, unless
// that is nil.
func (c *rpcConn) call(out any, method string, params any, files ...*os.File) {
	c.t.Helper()
	m := c.start(method, params, files...).wait()
	if m.Error != nil {
		c.t.Fatalf("%s %v: %s", method, params, m.Error)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(m.Result, out); err != nil {
		c.t.Fatalf("%s: %v in %s", method, err, m.Result)
	}
}

// refused calls a method that must fail with an error of this code, and with a
// hint.
func (c *rpcConn) refused(code, method string, params any, files ...*os.File) *wireError {
	c.t.Helper()
	m := c.start(method, params, files...).wait()
	if m.Error == nil {
		c.t.Fatalf("%s %v: succeeded with %s, want %s", method, params, m.Result, code)
	}
	if got := m.Error.Data.Code; got != code && fmt.Sprint(m.Error.Code) != code {
		c.t.Fatalf("%s %v: %s, want %s", method, params, m.Error, code)
	}
	if m.Error.Data.Hint == "" {
		c.t.Errorf("%s %v: %s has no hint", method, params, m.Error)
	}
	return m.Error
}

// params are those of a call.
type params = map[string]any

// sandboxOf creates a sandbox of the host image on this connection.
func (c *rpcConn) sandboxOf(more params) string {
	c.t.Helper()
	p := params{"image": "host"}
	for k, v := range more {
		p[k] = v
	}
	var sb struct{ ID, State string }
	c.call(&sb, "sandbox.create", p)
	if sb.State != "running" {
		c.t.Fatalf("sandbox %s is %s", sb.ID, sb.State)
	}
	return sb.ID
}

// execResult is exec.run's result.
type execResult struct {
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

// exec runs a shell command in a sandbox.
func (c *rpcConn) exec(sandbox, command string) execResult {
	c.t.Helper()
	var res execResult
	c.call(&res, "exec.run", params{"sandbox": sandbox, "command": command})
	return res
}
