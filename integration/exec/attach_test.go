package exec_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// TestAttach is the wire as an outside client sees it: the reply, what is written
// as it is written, the end; on the connection that asked and no other.
func TestAttach(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c, other := w.Dial(t), w.Dial(t)
	sb := c.SandboxOf(nil)
	exec := c.Started(sb, `echo one; echo err >&2; read line; printf 'got %s \377' $line; exit 3`, nil)
	var at struct{ Attachment string }
	c.Call(&at, "exec.attach", world.Params{
		"exec": exec, "from": world.Params{"stdout": 0, "stderr": 1}, "credit_bytes": 1000,
	})
	got := map[string]string{}
	next := map[string]int64{"stderr": 1}
	step := func() (world.Message, bool) {
		m := c.Note()
		if m.Method != "exec.output" {
			return m, false
		}
		var o struct {
			Attachment, Exec, Stream, Encoding, Data string
			Offset                                   int64
		}
		if err := json.Unmarshal(m.Params, &o); err != nil || o.Exec != exec || o.Attachment != at.Attachment ||
			o.Offset != next[o.Stream] {
			t.Fatalf("%s (next %v): %v", m.Params, next, err)
		}
		if o.Encoding == "base64" {
			raw, err := base64.StdEncoding.DecodeString(o.Data)
			if err != nil {
				t.Fatal(err)
			}
			o.Data = string(raw)
		}
		next[o.Stream] += int64(len(o.Data))
		got[o.Stream] += o.Data
		return m, true
	}
	for got["stdout"] != "one\n" || got["stderr"] != "rr\n" {
		if m, ok := step(); !ok {
			t.Fatalf("%s %s", m.Method, m.Params)
		}
	}
	c.Call(nil, "exec.write", world.Params{"exec": exec, "data": "it\n"})
	m, more := step()
	for more {
		m, more = step()
	}
	var end struct {
		Attachment, Exec, Verdict string
		ExitCode                  int `json:"exit_code"`
		Ends                      struct{ Stdout, Stderr int64 }
	}
	if err := json.Unmarshal(m.Params, &end); err != nil || m.Method != "exec.exited" {
		t.Fatalf("%s %s", m.Method, m.Params)
	}
	if got["stdout"] != "one\ngot it \xff" || end.ExitCode != 3 || end.Verdict != "nonzero" ||
		end.Ends.Stdout != next["stdout"] || end.Ends.Stderr != 4 {
		t.Errorf("%q, %+v", got, end)
	}
	if len(other.Notify) != 0 {
		t.Errorf("another connection heard %s", (<-other.Notify).Method)
	}
	c.Call(nil, "exec.credit", world.Params{"exec": exec, "bytes": 1}) // it is over, which a client learns too late
	c.Refused("not_found", "exec.credit", world.Params{"exec": "ex_none", "bytes": 1})
	c.Refused("not_found", "exec.attach", world.Params{"exec": "ex_none"})
	c.Refused("invalid_argument", "exec.attach", world.Params{"exec": exec, "streams": []string{"stdin"}})
	w.OK(t, "rm", "-f", sb)
}

// TestAttachers: many at once, on one connection and on several, with different
// credit, while some never read; all the others get the same bytes.
func TestAttachers(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	exec := world.StartIn(t, c, sb, `read x; seq 1 200000; seq 1 1000 >&2`)
	dead := w.Dial(t)
	_ = dead.Conn.SetReadBuffer(4096)
	for range world.Rounds(200) {
		dead.SendRaw(fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":%q,"method":"exec.attach","params":{"exec":%q,"credit_bytes":1000000000}}`+"\n",
			"x", exec))
	}
	type sum struct{ out, errs uint64 }
	var mu sync.Mutex
	sums := map[sum]int{}
	var wg sync.WaitGroup
	for i := range 8 {
		conn := w.Connect(t)
		for j := range world.Rounds(25) {
			a, err := conn.Attach(t.Context(), exec, hutch.AttachOptions{Window: int64(1+i*j) << 10})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				out, errs := fnv.New64(), fnv.New64()
				res, err := a.Copy(t.Context(), out, errs)
				if err != nil || res.ExitCode != 0 {
					t.Errorf("%v %+v", err, res)
				}
				mu.Lock()
				sums[sum{out.Sum64(), errs.Sum64()}]++
				mu.Unlock()
			})
		}
	}
	if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: exec, Data: "\n"}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if len(sums) != 1 {
		t.Errorf("%d different outputs: %v", len(sums), sums)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestAttachSlow: a subscriber that has no credit, one that never reads its socket
// and one that is gone hold up neither the command nor anybody else, and one that
// comes late learns what is lost.
func TestAttachSlow(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	exec := world.StartIn(t, c, sb, `read x; head -c 200000000 /dev/zero; echo done >&2`)
	stalled, err := c.Attach(t.Context(), exec, hutch.AttachOptions{Window: 1 << 20}) // and is not read
	if err != nil {
		t.Fatal(err)
	}
	gone := w.Dial(t)
	gone.Call(nil, "exec.attach", world.Params{"exec": exec, "credit_bytes": 1 << 30})
	gone.Close()
	daemon, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: exec, Data: "\n"}); err != nil {
		t.Fatal(err)
	}
	res, err := c.ExecWait(t.Context(), api.WaitParams{Exec: exec, OutputBytes: 100})
	if err != nil || res.ExitCode != 0 || res.Stderr != "done\n" {
		t.Fatalf("%+v %v", res, err)
	}
	if info, err := c.Info(t.Context()); err != nil || info.PID != daemon.PID {
		t.Errorf("%+v %v", info, err)
	}
	var got, dropped int64
	for o, err := range stalled.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if o.Stream == api.Stdout {
			got, dropped = got+int64(len(o.Data)), dropped+o.Dropped
		}
	}
	if got+dropped != 200000000 || dropped == 0 {
		t.Errorf("%d bytes and %d dropped", got, dropped)
	}
	late, err := c.Attach(t.Context(), exec, hutch.AttachOptions{From: api.Offsets{Stdout: -100, Stderr: 2}})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if _, err := late.Copy(t.Context(), &out, &errs); err != nil || out.Len() != 100 || errs.String() != "ne\n" {
		t.Errorf("after the end: %d %q %v", out.Len(), errs.String(), err)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestAttachRemoved: removing the sandbox ends what follows it.
func TestAttachRemoved(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	exec := world.StartIn(t, c, sb, `echo up; sleep 1000`)
	a, err := c.Attach(t.Context(), exec, hutch.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := a.Next(t.Context()); err != nil || string(o.Data) != "up\n" {
		t.Fatalf("%q %v", o.Data, err)
	}
	w.OK(t, "rm", "-f", sb)
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience)
	defer cancel()
	switch o, err := a.Next(ctx); {
	case errors.Is(err, context.DeadlineExceeded):
		testenv.Late(t, "it does not end: %v", err)
	case !errors.Is(err, io.EOF):
		t.Errorf("%+v %v", o, err)
	}
	if res, ok := a.Result(); !ok || res.ExitCode != 137 {
		t.Errorf("%+v", res)
	}
}

// TestAttachRun: who is attached to an exec.run gets all of it, though the reply comes
// first.
func TestAttachRun(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	run := func(command string, started func(api.Progress)) {
		res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Command: command}, nil, started)
		if err != nil || res.ExitCode != 0 {
			t.Errorf("%s: %+v %v", command, res, err)
		}
	}
	run("mkfifo /tmp/go", nil)
	var going sync.WaitGroup
	attached := make(chan *hutch.Attachment, 1)
	run("read x </tmp/go; seq 1 300000", func(p api.Progress) {
		a, err := w.Connect(t).Attach(t.Context(), p.Exec, hutch.AttachOptions{Window: 1 << 10})
		if err != nil {
			t.Error(err)
		}
		attached <- a
		going.Go(func() { run("echo >/tmp/go", nil) })
	})
	going.Wait()
	a := <-attached
	if a == nil {
		t.FailNow()
	}
	var out bytes.Buffer
	if _, err := a.Copy(t.Context(), &out, nil); err != nil || !bytes.HasSuffix(out.Bytes(), []byte("\n300000\n")) ||
		out.Len() != 1988895 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestLogsFollow: hutch logs -f prints both streams as they come and ends with
// the command.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	exec := world.StartIn(t, c, sb, `echo one; read x; echo two; echo err >&2`)
	cmd := w.Command("logs", "-f", sb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(out, first); err != nil || string(first) != "one\n" {
		t.Fatalf("%q %v", first, err)
	}
	if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: exec, Data: "\n"}); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if code := world.Await(t, cmd); code != 0 || string(rest) != "two\n" || errs.String() != "err\n" || err != nil {
		t.Errorf("exit code %d, %q, %q, %v", code, rest, errs.String(), err)
	}
	if got := w.OK(t, "logs", "--tail-bytes", "4", exec); got != "two\n" {
		t.Errorf("tail %q", got)
	}
	w.OK(t, "rm", "-f", sb)
}
