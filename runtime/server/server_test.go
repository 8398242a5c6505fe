package server

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestNewRefusesGaps: a method without a handler, with two or with one of other types, and a handler that is no
// method's, are errors with the name.
func TestNewRefusesGaps(t *testing.T) {
	info := func(context.Context, api.Empty) (api.Info, error) { return api.Info{}, nil }
	with := func(change func(m *Methods)) *Methods {
		m := (&engines{}).methods()
		change(m)
		return m
	}
	for want, m := range map[string]*Methods{
		"method system.info has no handler":    with(func(m *Methods) { delete(m.table, api.MethodInfo) }),
		"method system.info has two handlers":  with(func(m *Methods) { Handle(m, api.CallInfo, info) }),
		"method rpc.discover has two handlers": with(func(m *Methods) { m.add(api.MethodDiscover, discover) }),
		"handler sandbox.fly is no method": with(func(m *Methods) {
			Handle(m, api.Call[api.Empty, api.Info]{Name: "sandbox.fly"}, info)
		}),
		"takes api.SandboxParams and returns api.Sandbox, its handler api.Empty": with(func(m *Methods) {
			delete(m.table, api.MethodSandboxGet)
			Handle(m, api.Call[api.Empty, api.Info]{Name: api.MethodSandboxGet}, info)
		}),
	} {
		_, err := New(Config{Methods: m, Attach: func(api.AttachParams) (Output, error) { return nil, nil },
			Subscribe: func(context.Context, api.SubscribeParams) (EventCursor, api.Subscribed, error) {
				return nil, api.Subscribed{}, nil
			}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %q", err, want)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("New took an empty Config")
	}
	if err := new(Methods).check(append(slices.Clone(api.Methods), api.Methods[0])); err == nil ||
		!strings.Contains(err.Error(), "listed twice") {
		t.Errorf("%v, want an error about a method that is listed twice", err)
	}
}

// TestMethods calls each method as its example does. No list that is always there is null.
func TestMethods(t *testing.T) {
	p := serve(t, newServer(t, &engines{info: func(_ context.Context, who Actor) (api.Info, error) {
		return api.Info{PID: int(who.UID)}, nil
	}}))
	for i, m := range discovered(t).Methods {
		params, _ := m.Example()
		var files []*os.File
		if n, ok := params["fds"].(float64); ok {
			_, w := pipe(t)
			files = slices.Repeat([]*os.File{w}, int(n))
		}
		switch m.Name {
		case api.MethodExecSignal, api.MethodExecAttach, api.MethodExecDetach, api.MethodExecCredit:
			params["exec"] = "ex_1"
		case api.MethodShutdown:
			params["mode"] = "kill"
		case api.MethodEventsEnd, api.MethodEventsCredit:
			params["subscription"] = "ev_2" // exec.attach's is 1
		}
		p.send(request(i, m.Name, string(mustJSON(params))), files...)
		got := p.recvOK(string(mustJSON(i)))
		if m.Name == api.MethodDiscover || m.Name == api.MethodPoolAcquire {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(got, &fields); err != nil {
			t.Errorf("%s: %s: %v", m.Name, got, err)
		}
		for name, v := range fields {
			if v == nil {
				t.Errorf("%s: %s is null: %.300s", m.Name, name, got)
			}
		}
	}
	p.send(request("who", "system.info", `{}`))
	if got := p.recvOK(`"who"`); !strings.Contains(string(got), `"pid":7`) {
		t.Errorf("%s", got)
	}
	for _, params := range []string{``, `,"params":null`, `,"params":{}`} {
		p.send(`{"jsonrpc":"2.0","id":"é 1","method":"system.info"` + params + `}`)
		p.recvOK(`"é 1"`)
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func TestProtocolErrors(t *testing.T) {
	p := serve(t, newServer(t, &engines{}))
	bystander := serve(t, newServer(t, &engines{}))
	run := func(params string) string { return request(1, "exec.run", params) }
	tests := []struct {
		name, line, id string
		code           int
		field, say     string
	}{
		{"no JSON", `hello`, `null`, jsonrpc.CodeParse, "", "not JSON"},
		{"half JSON", `{"jsonrpc":"2.0","id":1,"meth`, `null`, jsonrpc.CodeParse, "", "not JSON"},
		{"two values", `{} {}`, `null`, jsonrpc.CodeParse, "", "not JSON"},
		{"not UTF-8 is JSON's problem", "\"\xff\"", `null`, jsonrpc.CodeInvalidRequest, "", "not a JSON object"},
		{"a number", `7`, `null`, jsonrpc.CodeInvalidRequest, "", "not a JSON object"},
		{"null", `null`, `null`, jsonrpc.CodeInvalidRequest, "", "not a JSON object"},
		{"empty batch", `[]`, `null`, jsonrpc.CodeInvalidRequest, "", "empty"},
		{"endless batch", "[" + strings.Repeat("1,", jsonrpc.MaxInFlight) + "1]", `null`, jsonrpc.CodeInvalidRequest,
			"", "at most"},
		{"no version", `{"id":1,"method":"system.info"}`, `1`, jsonrpc.CodeInvalidRequest, "", "2.0"},
		{"old version", `{"jsonrpc":"1.0","id":1,"method":"system.info"}`, `1`, jsonrpc.CodeInvalidRequest, "", "2.0"},
		{"no method", `{"jsonrpc":"2.0","id":1}`, `1`, jsonrpc.CodeInvalidRequest, "", "method"},
		{"method of a wrong type", `{"jsonrpc":"2.0","id":1,"method":1}`, `1`, jsonrpc.CodeInvalidRequest, "",
			"method"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"system.info"}`, `null`, jsonrpc.CodeInvalidRequest, "",
			"id null"},
		{"id list", `{"jsonrpc":"2.0","id":[1],"method":"system.info"}`, `null`, jsonrpc.CodeInvalidRequest, "",
			"id [1]"},
		{"params of a wrong type", `{"jsonrpc":"2.0","id":1,"method":"system.info","params":1}`, `1`,
			jsonrpc.CodeInvalidRequest, "", "not an object"},
		{"params in order", `{"jsonrpc":"2.0","id":1,"method":"system.info","params":[1]}`, `1`,
			jsonrpc.CodeInvalidParams, "", "not an object"},
		{"further member", `{"jsonrpc":"2.0","id":1,"method":"system.info","fds":1}`, `1`, jsonrpc.CodeInvalidRequest,
			"", `"fds"`},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":1}`, `1`, jsonrpc.CodeInvalidRequest, "", `"result"`},
		{"unknown method", request("x", "sandbox.fly", `{}`), `"x"`, jsonrpc.CodeMethodNotFound, "", "sandbox.fly"},
		{"the library's own method", request(1, "rpc.serverInfo", `{}`), `1`, jsonrpc.CodeMethodNotFound, "",
			"rpc.serverInfo"},

		{"unknown field", run(`{"sandbox":"x","comand":"y"}`), `1`, jsonrpc.CodeInvalidParams, "comand", "comand"},
		{"unknown nested field", request(1, "sandbox.create", `{"limits":{"cpu":1}}`), `1`, jsonrpc.CodeInvalidParams,
			"limits.cpu", "limits.cpu"},
		{"unknown field in a list", request(1, "sandbox.create", `{"mounts":[{"source":"/"},{"src":"/"}]}`), `1`,
			jsonrpc.CodeInvalidParams, "mounts[1].src", "mounts[1].src"},
		{"a field in other letters", run(`{"Sandbox":"x"}`), `1`, jsonrpc.CodeInvalidParams, "Sandbox", "Sandbox"},
		{"a Go name", request(1, "exec.resize", `{"Pty":{"rows":1}}`), `1`, jsonrpc.CodeInvalidParams, "Pty", "Pty"},
		{"a field of no params", request(1, "system.info", `{"x":1}`), `1`, jsonrpc.CodeInvalidParams, "x", "x"},
		{"a string for a number", request(1, "sandbox.create", `{"limits":{"cpus":"2"}}`), `1`,
			jsonrpc.CodeInvalidParams, "limits.cpus", "number"},
		{"a fraction for a whole number", request(1, "sandbox.create", `{"limits":{"pids":1.5}}`), `1`,
			jsonrpc.CodeInvalidParams, "limits.pids", "whole number"},
		{"a negative size", request(1, "exec.resize", `{"rows":-1}`), `1`, jsonrpc.CodeInvalidParams, "rows", "from 0"},
		{"a string for a list", run(`{"argv":"ls"}`), `1`, jsonrpc.CodeInvalidParams, "argv", "list"},
		{"a list for an object", run(`{"limits":[]}`), `1`, jsonrpc.CodeInvalidParams, "limits", "object"},

		{"refused by Validate", run(`{"sandbox":"x"}`), `1`, api.InvalidArgument.Number(), "argv", "argv"},

		{"application error", request(1, "exec.signal", `{"exec":"ex_9","signal":"INT"}`), `1`, -32001, "", "ex_9"},
		{"another", request(1, "system.shutdown", `{"mode":"keep"}`), `1`, -32004, "", "2 sandboxes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			p.send(tt.line)
			e := p.recvErr(tt.id, tt.code)
			if e.Data.Field != tt.field || !strings.Contains(e.Message, tt.say) {
				t.Errorf("field %q, message %q; want %q, %q", e.Data.Field, e.Message, tt.field, tt.say)
			}
			p.alive()
			bystander.t = t
			bystander.alive()
		})
	}
}

func TestOversizedLine(t *testing.T) {
	p := serve(t, newServer(t, &engines{}))
	fits := request(1, "exec.run", runParams(`"stdin":"`+strings.Repeat("x", jsonrpc.MaxLine-200)+`"`))
	go func() {
		_, _ = jsonrpc.Send(p.conn,
			[]byte(fits+"\n"+request(3, "exec.run", runParams(`"stdin":"`+strings.Repeat("x", 9<<20)+`"`))+"\n"+
				request(2, "system.info", `{}`)+"\n"), nil)
	}()
	seen := make(map[string]*jsonrpc.Error) // the answer to 1 may come any time
	for range 3 {
		m := p.recv()
		seen[string(m.ID)] = m.Error
	}
	if e := seen["3"]; e == nil || e.Code != jsonrpc.CodeInvalidRequest || e.Data.Hint == "" {
		t.Errorf("oversized line: %v", e)
	}
	if len(seen) != 3 || seen["1"] != nil || seen["2"] != nil {
		t.Errorf("others: %v", seen)
	}
}

func TestBatch(t *testing.T) {
	p := serve(t, newServer(t, &engines{}))
	tests := []struct{ name, line, want string }{
		{"calls and notifications", `[` + request(1, "image.remove", `{"ref":"a"}`) +
			`,{"jsonrpc":"2.0","method":"image.remove"},` + request("b", "image.list", `{}`) + `]`,
			`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"b","result":{"images":[]}}]`},
		{"one call", `[` + request(1, "image.remove", `{"ref":"a"}`) + `]`, `[{"jsonrpc":"2.0","id":1,"result":{}}]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			p.send(tt.line)
			sameJSON(t, p.line(), tt.want)
			p.alive()
		})
	}
	p.t = t

	// Every member that is no request gets an error with a hint.
	p.send(`[1, {"jsonrpc":"2.0","id":null,"method":"system.info"}, {"foo":"boo"}, {"jsonrpc":"1.0","id":5,"method":"system.info"}, ` + request(6, "image.list", `{}`) + `]`)
	var replies []message
	if err := json.Unmarshal(p.line(), &replies); err != nil || len(replies) != 5 {
		t.Fatal(err, len(replies))
	}
	for i, r := range replies[:4] {
		wantID := []string{"null", "null", "null", "5"}[i]
		if r.Error == nil || r.Error.Code != jsonrpc.CodeInvalidRequest || r.Error.Data.Hint == "" ||
			string(r.ID) != wantID {
			t.Errorf("member %d: %s %+v", i, r.ID, r.Error)
		}
	}
	if replies[4].Error != nil {
		t.Error(replies[4].Error)
	}

	// Notifications only: nothing comes back.
	p.send(`[{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":1}},{"jsonrpc":"2.0","method":"x"}]`)
	p.alive()

	// What would be ambiguous is refused as a whole.
	p.send(`[` + request(1, "system.info", `{}`) + `,` + request(1, "system.info", `{}`) + `]`)
	p.recvErr("null", jsonrpc.CodeInvalidRequest)
	r, _ := pipe(t)
	p.send(`[`+request(1, "exec.run", runParams(`"fds":1`))+`]`, r)
	p.recvErr("null", jsonrpc.CodeInvalidRequest)
	p.alive()
}

func TestDuplicateID(t *testing.T) {
	release := make(chan struct{})
	p := serve(t, newServer(t,
		&engines{run: func(context.Context, api.ExecParams, *jsonrpc.FDs, func(string, int)) (api.ExecResult, error) {
			<-release
			return api.ExecResult{Exec: "first"}, nil
		}}))
	p.send(request(1, "exec.run", runParams("")))
	p.send(request(1, "system.info", `{}`))
	p.recvErr("1", jsonrpc.CodeInvalidRequest)
	p.send(`[` + request(1, "system.info", `{}`) + `]`)
	p.recvErr("null", jsonrpc.CodeInvalidRequest)
	close(release)
	if got := p.recvOK("1"); !strings.Contains(string(got), "first") {
		t.Errorf("the first call answered %s", got)
	}
	p.send(request(1, "system.info", `{}`)) // free again
	p.recvOK("1")
}

func TestTooManyCalls(t *testing.T) {
	release := make(chan struct{})
	p := serve(t, newServer(t,
		&engines{run: func(context.Context, api.ExecParams, *jsonrpc.FDs, func(string, int)) (api.ExecResult, error) {
			<-release
			return api.ExecResult{}, nil
		}}))
	for i := range jsonrpc.MaxInFlight {
		p.send(request(i, "exec.run", runParams("")))
	}
	p.send(request("over", "system.info", `{}`))
	p.recvErr(`"over"`, api.ResourceExhausted.Number())
	close(release) // all of them run at once
	for range jsonrpc.MaxInFlight {
		if m := p.recv(); m.Error != nil {
			t.Fatal(m.Error)
		}
	}
	p.alive()
}

func TestProgress(t *testing.T) {
	p := serve(t, newServer(t, &engines{
		run: func(_ context.Context, _ api.ExecParams, _ *jsonrpc.FDs, started func(string, int)) (api.ExecResult,
			error) {
			started("ex_5", 99)
			return api.ExecResult{}, nil
		},
		pull: func(_ context.Context, _ api.PullParams, progress func(api.Progress)) (api.Image, error) {
			progress(api.Progress{Kind: "image.progress", Done: 1, Total: 2})
			progress(api.Progress{Kind: "image.progress", Done: 2, Total: 2})
			return api.Image{}, nil
		},
	}))
	for _, params := range []string{``, `"progress":false`} {
		p.send(request("quiet", "exec.run", runParams(params)))
		p.recvOK(`"quiet"`) // and nothing before
	}
	p.send(request("é", "exec.run", runParams(`"progress":true`)))
	sameJSON(t, p.line(),
		`{"jsonrpc":"2.0","method":"progress","params":{"request":"é","kind":"exec.started","exec":"ex_5","pid":99}}`)
	p.recvOK(`"é"`)
	p.send(request(2, "image.pull", `{"ref":"x","progress":true}`))
	for range 2 {
		if m := p.recv(); m.Method != "progress" {
			t.Errorf("got %+v", m)
		}
	}
	p.recvOK("2")
}

func TestFDsReachTheHandler(t *testing.T) {
	p := serve(t, newServer(t,
		&engines{run: func(_ context.Context, p api.ExecParams, fds *jsonrpc.FDs, _ func(string, int)) (api.ExecResult,
			error) {
			var files []*os.File
			defer func() {
				for _, f := range files {
					_ = f.Close()
				}
			}()
			for _, i := range []*int{p.Stdio.Stdin, p.Stdio.Stdout, p.Stdio.Stderr} {
				f, err := fds.Take(*i)
				if err != nil {
					return api.ExecResult{}, err
				}
				files = append(files, f)
			}
			_, _ = io.WriteString(files[1], "out ")
			_, _ = io.WriteString(files[2], "err")
			return api.ExecResult{}, nil
		}}))
	in, inw := pipe(t)
	outr, out := pipe(t)
	spare, _ := pipe(t) // sent and not taken
	_ = inw
	p.send(request(1, "exec.run", runParams(`"fds":3,"stdio":{"stdin":0,"stdout":1,"stderr":1}`)), in, out, spare)
	p.recvOK("1")
	_ = out.Close()
	if got, err := io.ReadAll(outr); string(got) != "out err" || err != nil {
		t.Errorf("read %q, %v", got, err) // and the end of file: the server holds no copy
	}
	p.send(request(2, "exec.run", runParams(`"fds":1,"stdio":{"stdin":0,"stdout":4,"stderr":1}`)), in)
	p.recvErr("2", api.InvalidArgument.Number())
}

func TestFDsRefused(t *testing.T) {
	p := serve(t, newServer(t, &engines{}))
	r, w := pipe(t)
	tests := []struct {
		name, line string
		files      []*os.File
		code       int
	}{
		{"none came", request(1, "exec.run", runParams(`"fds":1`)), nil, jsonrpc.CodeInvalidParams},
		{"fewer came", request(1, "exec.run", runParams(`"fds":2`)), []*os.File{w}, jsonrpc.CodeInvalidParams},
		{"not announced", request(1, "exec.run", runParams("")), []*os.File{w}, jsonrpc.CodeInvalidParams},
		{"a method without fds", request(1, "system.info", `{}`), []*os.File{w}, jsonrpc.CodeInvalidParams},
		{"an unknown method", request(1, "x", `{}`), []*os.File{w}, jsonrpc.CodeMethodNotFound},
		{"no request", `{"jsonrpc":"2.0","id":1}`, []*os.File{w}, jsonrpc.CodeInvalidRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			p.send(tt.line, tt.files...)
			p.recvErr("1", tt.code)
		})
	}
	p.t = t
	p.send(`{"jsonrpc":"2.0","method":"exec.run","params":{"fds":1}}`, w) // a notification
	p.alive()
	_ = w.Close()
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a refused fd is still open: %v", err)
	}
}

func TestPanicIsAnError(t *testing.T) {
	p := serve(t, newServer(t, &engines{get: func(string) (api.Sandbox, error) { panic("boom") }}))
	p.send(request(1, "sandbox.get", `{"sandbox":"x"}`))
	if e := p.recvErr("1", api.Internal.Number()); !strings.Contains(e.Message, "boom") || e.Data.Op != "sandbox.get" {
		t.Errorf("%+v", e)
	}
	p.alive()
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}
