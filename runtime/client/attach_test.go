package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// fakeAttach is an exec of a test's: pushes are what its attachment is sent after
// the reply.
type fakeAttach struct {
	mu     sync.Mutex
	params api.AttachParams
	credit int64 // given by exec.credit
	push   func(notify func(method string, params any))
}

func (f *fakeAttach) handle(r *fakeCall) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.Method {
	case api.MethodExecAttach:
		if err := json.Unmarshal(r.Params, &f.params); err != nil {
			return nil, err
		}
		r.AfterReply(func() {
			go f.push(func(method string, params any) {
				notifyLine(r, method, params)
			})
		})
		return api.Attached{Attachment: "at_1", From: f.params.From}, nil
	case api.MethodExecCredit:
		var p api.CreditParams
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, err
		}
		f.credit += p.Bytes
	}
	return api.Empty{}, nil
}

func output(stream api.Stream, offset, dropped int64, data string) api.Output {
	return api.Output{Attachment: "at_1", Exec: "ex_1", Stream: stream, Offset: offset, Dropped: dropped,
		Encoding: api.Base64, Data: base64.StdEncoding.EncodeToString([]byte(data))}
}

func attachedTo(t *testing.T, f *fakeAttach, o AttachOptions) *Attachment {
	t.Helper()
	a, err := connected(t, f.handle).Attach(within(t), "ex_1", o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAttachCopy(t *testing.T) {
	f := &fakeAttach{push: func(notify func(string, any)) {
		notify(api.NotifyOutput, output(api.Stdout, 5, 0, "one "))
		notify(api.NotifyOutput, output(api.Stderr, 0, 0, "err"))
		text := output(api.Stdout, 9, 0, "")
		text.Encoding, text.Data = api.Text, "two \"é\"\n"
		notify(api.NotifyOutput, text)
		notify(api.NotifyOutput, output(api.Stdout, 118, 100, "three"))
		notify(api.NotifyExited, api.Exited{Attachment: "at_1", ExecResult: api.ExecResult{Exec: "ex_1", ExitCode: 7}})
	}}
	a := attachedTo(t, f, AttachOptions{From: api.Offsets{Stdout: 5}})
	if _, ok := a.Result(); ok {
		t.Error("a result before the end")
	}
	var out, errs bytes.Buffer
	res, err := a.Copy(within(t), &out, &errs)
	var gap *GapError
	if !errors.As(err, &gap) || *gap != (GapError{api.Stdout, 18, 118}) {
		t.Errorf("%v", err)
	}
	if out.String() != "one two \"é\"\nthree" || errs.String() != "err" || res.ExitCode != 7 {
		t.Errorf("%q %q %+v", out.String(), errs.String(), res)
	}
	if a.Offsets() != (api.Offsets{Stdout: 123, Stderr: 3}) {
		t.Errorf("%+v", a.Offsets())
	}
	if res, ok := a.Result(); !ok || res.ExitCode != 7 {
		t.Errorf("%+v %v", res, ok)
	}
	if _, err := a.Next(within(t)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestAttachWindow: credit is given back for what was read, and only for that.
func TestAttachWindow(t *testing.T) {
	f := &fakeAttach{push: func(notify func(string, any)) {
		for i := range int64(20) {
			notify(api.NotifyOutput, output(api.Stdout, i*10, 0, "0123456789"))
		}
		notify(api.NotifyExited, api.Exited{Attachment: "at_1"})
	}}
	a := attachedTo(t, f, AttachOptions{Window: 100, Streams: []api.Stream{api.Stdout}})
	f.mu.Lock()
	if f.params.CreditBytes != 100 || len(f.params.Streams) != 1 {
		t.Errorf("%+v", f.params)
	}
	f.mu.Unlock()
	r := a.Reader(within(t))
	first := make([]byte, 65)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	if f.credit > 70 || string(first[60:]) != "01234" {
		t.Errorf("%d bytes of credit for 65 read", f.credit)
	}
	f.mu.Unlock()
	rest, err := io.ReadAll(r)
	if err != nil || len(rest) != 135 || !strings.HasPrefix(string(rest), "567890") {
		t.Errorf("%q %v", rest, err)
	}
}

func TestAttachReaderGap(t *testing.T) {
	f := &fakeAttach{push: func(notify func(string, any)) {
		notify(api.NotifyOutput, output(api.Stdout, 0, 0, "ab"))
		notify(api.NotifyOutput, output(api.Stdout, 5, 3, "cd"))
		notify(api.NotifyExited, api.Exited{Attachment: "at_1"})
	}}
	r := attachedTo(t, f, AttachOptions{}).Reader(within(t))
	var gap *GapError
	if text, err := io.ReadAll(r); string(text) != "ab" || !errors.As(err, &gap) {
		t.Errorf("%q %v", text, err)
	}
	if text, err := io.ReadAll(r); string(text) != "cd" || err != nil {
		t.Errorf("%q %v", text, err)
	}
}

// TestAttachLost: what came before the connection was lost is read, and Offsets
// says where to go on.
func TestAttachLost(t *testing.T) {
	pushed := make(chan struct{})
	f := &fakeAttach{push: func(notify func(string, any)) {
		notify(api.NotifyOutput, output(api.Stdout, 0, 0, "abc"))
		close(pushed)
	}}
	a := attachedTo(t, f, AttachOptions{})
	<-pushed
	ctx := within(t)
	if o, err := a.Next(ctx); err != nil || string(o.Data) != "abc" {
		t.Fatalf("%+v %v", o, err)
	}
	go a.c.Close()
	if _, err := a.Next(ctx); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("%v", err)
	}
	if a.Offsets().Stdout != 3 {
		t.Errorf("%+v", a.Offsets())
	}
}

// TestAttachClose: Close wakes the reader, and what comes late is dropped.
func TestAttachClose(t *testing.T) {
	f := &fakeAttach{push: func(func(string, any)) {}}
	a := attachedTo(t, f, AttachOptions{})
	go func() { _ = a.Close() }()
	if _, err := a.Next(within(t)); !errors.Is(err, ErrDetached) {
		t.Errorf("%v", err)
	}
	if err := a.c.output(mustJSON(output(api.Stdout, 0, 0, "late"))); err != nil {
		t.Error(err)
	}
}

// FuzzSplitOutput: the fast way gives what encoding/json gives.
func FuzzSplitOutput(f *testing.F) {
	f.Add([]byte(`{"attachment":"at_1","exec":"ex_1","stream":"stdout","offset":3,"encoding":"base64","data":"QUJD"}`))
	f.Add([]byte(`{"attachment":"at_1","encoding":"base64","data":"QUJD","data":"QQ=="}`))
	f.Add([]byte("{\"exec\":\"ex_1\",\"encoding\":\"base64\",\"data\":\"QUJ\nD\"}"))
	f.Add([]byte(`{"":"at_1","encoding":"base64","dAta":"QUJD","data":"QQ=="}`))
	f.Add([]byte(`{"encoding":"utf-8","data":"a\u00e9\n"}`))
	f.Add([]byte(`{"x":{"y":1,"data":"QUJD"},"encoding":"base64","data":"QQ=="}`))
	f.Fuzz(func(t *testing.T, params []byte) {
		var head api.Output
		var data []byte
		var err error
		cost.Input(t, params, func(params []byte) { head, data, err = splitOutput(params) })
		var want api.Output
		if werr := json.Unmarshal(params, &want); werr != nil {
			if err == nil {
				t.Fatalf("%q is no JSON, but %+v", params, head)
			}
			return
		}
		text := []byte(want.Data)
		if want.Encoding == api.Base64 {
			var derr error
			if text, derr = base64.StdEncoding.DecodeString(want.Data); derr != nil {
				if err == nil {
					t.Fatalf("%q is no base64, but %q", params, data)
				}
				return
			}
		}
		want.Data = ""
		if err != nil || head != want || !bytes.Equal(data, text) {
			t.Errorf("%q: %+v %q %v; want %+v %q", params, head, data, err, want, text)
		}
	})
}
