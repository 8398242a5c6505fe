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

// TestHelpers checks what each helper sends and that it returns what came.
func TestHelpers(t *testing.T) {
	calls := make(chan *fakeCall, 1)
	c := connected(t, func(r *fakeCall) (any, error) {
		calls <- r
		if r.Method == api.MethodInfo {
			return api.Info{PID: 1}, nil // its exec is an object
		}
		if strings.HasPrefix(r.Method, "fs.") {
			return map[string]any{
				"data": "text", "size": 4, "removed": 5, "created": true, "name": "a", "truncated": true, "skipped": 6,
			}, nil
		}
		return map[string]any{
			"bytes": 2, "id": "sb_1", "exec": "ex_1", "ref": "r", "killed": []int{3},
			"execs": []api.Exec{{Exec: "ex_2"}}, "data": "text", "checks": []api.Check{{Name: "c"}}, "sandboxes": []api.Sandbox{{ID: "sb_2"}}, "images": []api.Image{{Ref: "i"}},
			"attachment": "at_1", "subscription": "ev_1", "a later version's field": true,
		}, nil
	})
	ctx := within(t)
	var att *Attachment
	file := api.FileParams{Sandbox: "x", Path: "/f"}
	var ev *Events
	tests := []struct {
		method, params, want string
		call                 func() (any, error)
	}{
		{"system.info", `{}`, "1", func() (any, error) { r, err := c.Info(ctx); return r.PID, err }},
		{"system.doctor", `{}`, "c", func() (any, error) { r, err := c.Doctor(ctx); return r.Checks[0].Name, err }},
		{"system.shutdown", `{"mode":"kill"}`, "ok", func() (any, error) { return "ok", c.Shutdown(ctx, api.ShutdownParams{Mode: "kill"}) }},
		{"system.gc", `{}`, "2", func() (any, error) { r, err := c.GC(ctx); return r.Bytes, err }},
		{"sandbox.create", `{"image":"host"}`, "sb_1", func() (any, error) {
			r, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
			return r.ID, err
		}},
		{"sandbox.get", `{"sandbox":"x"}`, "sb_1", func() (any, error) { r, err := c.GetSandbox(ctx, "x"); return r.ID, err }},
		{"sandbox.list", `{"labels":{"a":"b"}}`, "sb_2", func() (any, error) {
			r, err := c.ListSandboxes(ctx, map[string]string{"a": "b"})
			return r[0].ID, err
		}},
		{"sandbox.kill", `{"sandbox":"x"}`, "[3]", func() (any, error) { return c.Kill(ctx, "x") }},
		{"sandbox.remove", `{"sandbox":"x"}`, "[3]", func() (any, error) { return c.Remove(ctx, "x") }},
		{"exec.run", `{"sandbox":"x","argv":["true"]}`, "ex_1", func() (any, error) {
			r, err := c.ExecRun(ctx, api.ExecParams{Sandbox: "x", Argv: []string{"true"}}, nil, nil)
			return r.Exec, err
		}},
		{"exec.start", `{"sandbox":"x","command":"true"}`, "ex_1", func() (any, error) {
			r, err := c.ExecStart(ctx, api.ExecParams{Sandbox: "x", Command: "true"}, nil)
			return r.Exec, err
		}},
		{"exec.wait", `{"exec":"e"}`, "ex_1", func() (any, error) { r, err := c.ExecWait(ctx, api.WaitParams{Exec: "e"}); return r.Exec, err }},
		{"exec.read", `{"exec":"e","stream":"stdout","offset":-2}`, "text", func() (any, error) {
			r, err := c.ExecRead(ctx, api.ReadParams{Exec: "e", Stream: "stdout", Offset: -2})
			return r.Data, err
		}},
		{"exec.attach", `{"exec":"e","from":{"stdout":3,"stderr":0},"credit_bytes":8,"encoding":"base64"}`, "at_1", func() (any, error) {
			var err error
			att, err = c.Attach(ctx, "e", AttachOptions{From: api.Offsets{Stdout: 3}, Window: 8})
			return att.id, err
		}},
		{"exec.credit", `{"exec":"e","attachment":"at_1","bytes":5}`, "ok", func() (any, error) {
			att.held = make([]byte, 5)
			return "ok", att.giveBack(ctx)
		}},
		{"exec.detach", `{"exec":"e","attachment":"at_1"}`, "ok", func() (any, error) { return "ok", att.Close() }},
		{"exec.write", `{"exec":"e","data":"x"}`, "ok", func() (any, error) { return "ok", c.ExecWrite(ctx, api.WriteParams{Exec: "e", Data: "x"}) }},
		{"exec.close_stdin", `{"exec":"e"}`, "ok", func() (any, error) { return "ok", c.ExecCloseStdin(ctx, "e") }},
		{"exec.kill", `{"exec":"e"}`, "ex_1", func() (any, error) { r, err := c.ExecKill(ctx, "e"); return r.Exec, err }},
		{"exec.list", `{"sandbox":"x"}`, "ex_2", func() (any, error) { r, err := c.ListExecs(ctx, "x"); return r[0].Exec, err }},
		{"exec.get", `{"exec":"e"}`, "ex_1", func() (any, error) { r, err := c.GetExec(ctx, "e"); return r.Exec, err }},
		{"exec.signal", `{"exec":"e","signal":"INT"}`, "ok", func() (any, error) { return "ok", c.Signal(ctx, "e", "INT") }},
		{"exec.resize", `{"exec":"e","rows":2,"cols":3}`, "ok", func() (any, error) { return "ok", c.Resize(ctx, "e", api.Pty{Rows: 2, Cols: 3}) }},
		{"fs.read", `{"sandbox":"x","path":"/f","offset":3}`, "text", func() (any, error) {
			r, err := c.ReadFile(ctx, api.FileReadParams{FileParams: file, Offset: 3}, nil)
			return r.Data, err
		}},
		{"fs.write", `{"sandbox":"x","path":"/f","data":"x"}`, "4", func() (any, error) {
			r, err := c.WriteFile(ctx, api.FileWriteParams{FileParams: file, Data: "x"}, nil)
			return r.Size, err
		}},
		{"fs.list", `{"sandbox":"x","path":"/f","recursive":true}`, "true", func() (any, error) {
			r, err := c.ListFiles(ctx, api.FileListParams{FileParams: file, Recursive: true})
			return r.Truncated, err
		}},
		{"fs.stat", `{"sandbox":"x","path":"/f"}`, "a", func() (any, error) {
			r, err := c.StatFile(ctx, api.FileStatParams{FileParams: file})
			return r.Name, err
		}},
		{"fs.mkdir", `{"sandbox":"x","path":"/f","parents":true}`, "true", func() (any, error) {
			r, err := c.MakeFolder(ctx, api.FileMkdirParams{FileParams: file, Parents: true})
			return r.Created, err
		}},
		{"fs.remove", `{"sandbox":"x","path":"/f"}`, "5", func() (any, error) {
			r, err := c.RemoveFile(ctx, api.FileRemoveParams{FileParams: file})
			return r.Removed, err
		}},
		{"fs.move", `{"sandbox":"x","path":"/f","to":"/g"}`, "ok", func() (any, error) {
			return "ok", c.MoveFile(ctx, api.FileMoveParams{FileParams: file, To: "/g"})
		}},
		{"fs.pack", `{"sandbox":"x","path":"/f","fds":1,"fd":0}`, "6", func() (any, error) {
			r, err := c.PackFiles(ctx, api.FilePackParams{FileParams: file}, os.Stdin)
			return r.Skipped, err
		}},
		{"fs.unpack", `{"sandbox":"x","path":"/f","fds":1,"fd":0}`, "6", func() (any, error) {
			r, err := c.UnpackFiles(ctx, api.FileUnpackParams{FileParams: file}, os.Stdin)
			return r.Skipped, err
		}},
		{"events.subscribe", `{"from_seq":4,"kinds":["exec.exited"],"credit":512}`, "ev_1", func() (any, error) {
			var err error
			from := int64(4)
			ev, err = c.Subscribe(ctx, api.SubscribeParams{FromSeq: &from, Kinds: []api.EventKind{api.EventExecExited}})
			return ev.sub.Subscription, err
		}},
		{"events.credit", `{"subscription":"ev_1","events":300}`, "end", func() (any, error) {
			ev.owed = 300
			c.eventsEnd("ev_1")
			if _, err := ev.Next(ctx); err != io.EOF {
				return "", err
			}
			ev.ended = false
			return "end", nil
		}},
		{"events.unsubscribe", `{"subscription":"ev_1"}`, "ok", func() (any, error) { return "ok", ev.Close() }},
		{"image.pull", `{"ref":"x","progress":true}`, "r", func() (any, error) {
			r, err := c.PullImage(ctx, api.PullParams{Ref: "x"}, func(api.Progress) {})
			return r.Ref, err
		}},
		{"image.list", `{}`, "i", func() (any, error) { r, err := c.ListImages(ctx); return r[0].Ref, err }},
		{"image.inspect", `{"ref":"x"}`, "r", func() (any, error) { r, err := c.InspectImage(ctx, "x"); return r.Ref, err }},
		{"image.remove", `{"ref":"x"}`, "ok", func() (any, error) { return "ok", c.RemoveImage(ctx, "x") }},
	}
	called := map[string]bool{api.MethodDiscover: true} // for people, through Call
	for _, tt := range tests {
		called[tt.method] = true
		r, err := tt.call()
		if err != nil || fmt.Sprint(r) != tt.want {
			t.Errorf("%s: %v, %v; want %s", tt.method, r, err, tt.want)
		}
		if got := <-calls; got.Method != tt.method || string(got.Params) != tt.params {
			t.Errorf("%s: sent %s %s, want %s", tt.method, got.Method, got.Params, tt.params)
		}
	}
	for _, m := range api.Methods {
		if !called[m.Name] {
			t.Errorf("no helper for %s is tested", m.Name)
		}
	}
}

func TestErrorsFromTheWire(t *testing.T) {
	tests := []struct {
		wire *jsonrpc.Error
		want api.Error
		text string
	}{
		{&jsonrpc.Error{Code: -32001, Message: "get sandbox: no x", Data: api.ErrorData{Code: api.NotFound, Op: "get sandbox", Hint: "h", Field: "f"}},
			api.Error{Code: api.NotFound, Op: "get sandbox", Hint: "h", Field: "f"}, "get sandbox: no x"},
		{&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown field", Data: api.ErrorData{Hint: "h", Field: "a.b"}},
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
		if e.Code != tt.want.Code || e.Op != tt.want.Op || e.Hint != tt.want.Hint || e.Field != tt.want.Field || e.Error() != tt.text {
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
	if _, err := c.ExecRun(within(t), api.ExecParams{Sandbox: "x", Command: big}, &Stdio{Stdout: w2, Stderr: w2}, nil); err != nil {
		t.Errorf("with 3 MiB: %.200v", err)
	}
	_ = w2.Close()
	_, err = c.ExecRun(within(t), api.ExecParams{Sandbox: "x"}, &Stdio{Stdout: w2}, nil)
	if err == nil || errors.Is(err, errClosed) {
		t.Errorf("a closed file was sent: %v", err)
	}
	if err := c.Call(within(t), "x", map[string]string{"x": strings.Repeat(big, 2)}, nil); !errors.Is(err, &api.Error{Code: api.InvalidArgument}) {
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

// TestDaemonThatDoesNotRead: a write that can not go on ends with its context.
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
	r := jsonrpc.NewReader(conn, 1<<20)
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
		{"news about a stranger", `{"jsonrpc":"2.0","method":"progress","params":{"request":"x"}}` + "\n" + answer, true},
		{"an answer to nothing", `{"jsonrpc":"2.0","id":9,"result":{}}` + "\n" + answer, true},
		{"two answers", answer + answer, true},
		{"no JSON", "hello\n", false},
		{"a refused line", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?","data":{"hint":"h"}}}` + "\n", false},
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
				_, _, _ = jsonrpc.NewReader(conn, 1<<20).ReadLine()
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
		c := &Client{calls: make(map[uint64]*call), attached: make(map[string]*Attachment), events: make(map[string]*Events)}
		c.events["ev_1"] = &Events{c: c, wake: make(chan struct{}, 1)}
		c.attached["at_1"] = &Attachment{c: c, id: "at_1", wake: make(chan struct{}, 1)}
		id, w, _ := c.register(nil)
		_ = c.dispatch(line)
		_ = c.dispatch(line)
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
