package web_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestQuickStart is what quick starts of hosted products do: make a sandbox, run Python, upload a table, read it,
// delete the sandbox.
func TestQuickStart(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	s := serve(t, w)
	var sb struct {
		SandboxID, State, Image string
		StartedAt, EndAt        string
		Metadata                map[string]string
		Network                 struct{ Mode string }
	}
	s.ask(t, "POST", "/sandboxes", object{"image": "host", "timeout": 60, "metadata": object{"team": "data"},
		"env": object{"GREETING": "hello"}}).want(http.StatusCreated, &sb)
	if sb.State != "running" || sb.Image != "host" || sb.EndAt == "" || sb.Metadata["team"] != "data" ||
		sb.Network.Mode != "none" {
		t.Errorf("%+v", sb)
	}
	at := "/sandboxes/" + sb.SandboxID
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("path", "/root/data/")
	file, err := parts.CreateFormFile("file", "table.csv")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(file, "name,price\napple,3\npear,4\n")
	_ = parts.Close()
	s.ask(t, "POST", at+"/files", &form, "Content-Type", parts.FormDataContentType()).want(http.StatusCreated)
	var res struct {
		ProcessID, Stdout, Stderr, Verdict string
		ExitCode                           int
		TimedOut                           bool
	}
	s.ask(t, "POST", at+"/processes", object{"cmd": "/usr/bin/python3", "args": []string{"-c",
		"import csv, os; print(os.environ['GREETING'], sum(int(r['price']) for r in csv.DictReader(open('/root/data/table.csv'))))"}}).
		want(http.StatusOK, &res)
	if res.Stdout != "hello 7\n" || res.ExitCode != 0 || res.Verdict != "ok" || res.TimedOut {
		t.Errorf("%+v", res)
	}
	s.ask(t, "POST", at+"/processes", object{"cmd": "echo out; echo err >&2; exit 3"}).want(http.StatusOK, &res)
	if res.Stdout != "out\n" || res.Stderr != "err\n" || res.ExitCode != 3 || res.Verdict != "nonzero" {
		t.Errorf("%+v", res)
	}
	s.ask(t, "POST", at+"/processes", object{"cmd": "sleep 60", "timeout": 0.2}).want(http.StatusOK, &res)
	if !res.TimedOut || res.Verdict != "timeout_wall" {
		t.Errorf("%+v", res)
	}
	var list struct{ Sandboxes []struct{ SandboxID string } }
	s.ask(t, "GET", "/sandboxes?metadata=team%3Ddata&state=running", nil).want(http.StatusOK, &list)
	if len(list.Sandboxes) != 1 || list.Sandboxes[0].SandboxID != sb.SandboxID {
		t.Errorf("%+v", list)
	}
	s.ask(t, "GET", "/sandboxes?metadata=team%3Dother", nil).want(http.StatusOK, &list)
	if len(list.Sandboxes) != 0 {
		t.Errorf("%+v", list)
	}
	s.ask(t, "DELETE", at, nil).want(http.StatusNoContent)
	s.ask(t, "GET", at, nil).fails(http.StatusNotFound, "not_found")
	s.ask(t, "DELETE", at, nil).fails(http.StatusNotFound, "not_found")
}

// TestProcesses: streams that go on after a break, stdin, signals, results, and processes of other sandboxes.
func TestProcesses(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	at := "/sandboxes/" + s.sandbox(t, object{})
	var out struct {
		Data, Encoding string
		Offset         int64
	}
	// The first stream breaks after the first word; the second goes on behind it.
	first := s.events(t, "POST", at+"/processes",
		object{"cmd": "printf 'one \\360\\237'; read x; printf '\\246\\206 two'; echo err >&2; exit 4",
			"stdin": "go\n"})
	var p struct{ ProcessID string }
	first.want("start").into(t, &p)
	ev := first.want("stdout")
	ev.into(t, &out)
	if out.Data != "one " || out.Encoding != "utf-8" {
		if out.Data != "one \U0001F986 two" { // it was fast
			t.Errorf("%+v", out)
		}
	}
	_ = first.body.Close()
	proc := at + "/processes/" + p.ProcessID
	var res struct {
		ExitCode       int
		Stdout, Stderr string
	}
	s.ask(t, "GET", proc+"/result", nil).want(http.StatusOK, &res)
	if res.ExitCode != 4 || res.Stdout != "one \U0001F986 two" {
		t.Errorf("%+v", res)
	}
	again := s.events(t, "GET", proc+"/events", nil, "Last-Event-ID", "4-0")
	again.want("stdout").into(t, &out)
	if out.Data != "\U0001F986 two" || out.Offset != 4 {
		t.Errorf("%+v", out)
	}
	again.want("end").into(t, &res)
	if _, err := again.next(); res.ExitCode != 4 || err != io.EOF {
		t.Errorf("%+v, %v", res, err)
	}
	s.ask(t, "GET", proc+"/events", nil, "Last-Event-ID", "x").
		fails(http.StatusBadRequest, "invalid_argument", "Last-Event-ID")

	var bg struct{ ProcessID, State string }
	s.ask(t, "POST", at+"/processes", object{"cmd": "read line; echo got $line; sleep 60", "background": true,
		"openStdin": true}).
		want(http.StatusCreated, &bg)
	proc = at + "/processes/" + bg.ProcessID
	s.ask(t, "POST", proc+"/stdin", object{"data": "word\n", "close": true}).want(http.StatusNoContent)
	said := s.events(t, "GET", proc+"/events", nil)
	said.want("stdout").into(t, &out)
	if out.Data != "got word\n" {
		t.Errorf("%+v", out)
	}
	s.ask(t, "GET", proc+"/result?wait=0", nil).fails(http.StatusGatewayTimeout, "deadline_exceeded")
	s.ask(t, "POST", proc+"/signal", object{"signal": "SIGTERM"}).want(http.StatusNoContent)
	said.want("end").into(t, &res)
	if res.ExitCode != 128+15 {
		t.Errorf("%+v", res)
	}
	s.ask(t, "DELETE", proc, nil).want(http.StatusOK)
	other := "/sandboxes/" + s.sandbox(t, object{})
	s.ask(t, "GET", other+"/processes/"+bg.ProcessID, nil).fails(http.StatusNotFound, "not_found")
	var list struct {
		Processes []struct{ ProcessID, State string }
	}
	s.ask(t, "GET", at+"/processes", nil).want(http.StatusOK, &list)
	if len(list.Processes) != 2 || list.Processes[1].State != "exited" {
		t.Errorf("%+v", list)
	}
}

// TestPages: lists come in pages, each in the place of the one before, whatever comes and goes meanwhile.
func TestPages(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	var made []string
	for range 3 {
		made = append(made, s.sandbox(t, object{}))
	}
	at := "/sandboxes/" + made[0]
	for i := range 5 {
		s.ask(t, "PUT", at+"/files?path=/root/d/"+strconv.Itoa(i), strings.NewReader("x")).want(http.StatusOK)
		if i < 3 {
			s.ask(t, "POST", at+"/snapshots", object{}).want(http.StatusCreated)
			s.ask(t, "POST", at+"/processes", object{"cmd": "true", "background": true}).want(http.StatusCreated)
		}
	}
	for path, want := range map[string]int{"/sandboxes": 3, "/snapshots": 3, at + "/processes": 3,
		at + "/files/list?path=/root/d": 5} {
		all, seen := 0, map[string]bool{}
		for next := path; next != ""; {
			if !strings.Contains(next, "limit=") {
				next += map[bool]string{true: "&", false: "?"}[strings.Contains(next, "?")] + "limit=2"
			}
			a := s.ask(t, "GET", next, nil).want(http.StatusOK)
			var page map[string]json.RawMessage
			a.want(http.StatusOK, &page)
			for name, text := range page {
				var list []object
				if name == "truncated" || json.Unmarshal(text, &list) != nil {
					continue
				}
				if len(list) > 2 {
					t.Errorf("%s: %d in one page", next, len(list))
				}
				for _, one := range list {
					all++
					seen[sprint("%v%v%v%v", one["sandboxID"], one["snapshotID"], one["processID"], one["path"])] = true
				}
			}
			next = ""
			if link, ok := strings.CutSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`); ok {
				next = link
			}
			if (next != "") != (a.header.Get("X-Next-Token") != "") {
				t.Errorf("%v", a.header)
			}
		}
		if all != want || len(seen) != want {
			t.Errorf("%s: %d of %d: %v", path, all, want, seen)
		}
	}
	token := s.ask(t, "GET", "/sandboxes?limit=1", nil).header.Get("X-Next-Token")
	s.ask(t, "DELETE", at, nil).want(http.StatusNoContent)
	var list struct{ Sandboxes []struct{ SandboxID string } }
	if s.ask(t, "GET", "/sandboxes?limit=1&nextToken="+token, nil).want(http.StatusOK,
		&list); len(list.Sandboxes) != 1 || list.Sandboxes[0].SandboxID != made[1] {
		t.Errorf("%+v, want %s", list, made[1])
	}
	for _, query := range []string{"limit=0", "limit=x", "nextToken=%21", "limit=-1"} {
		s.ask(t, "GET", "/sandboxes?"+query, nil).fails(http.StatusBadRequest, "invalid_argument")
	}
	s.ask(t, "GET", "/sandboxes/"+made[1]+"/files/list?path=/&nextToken=eHg", nil).
		fails(http.StatusBadRequest, "invalid_argument", "nextToken")
}

// TestTerminal: a process in a terminal: its size, what is typed, and a stream that goes on where it broke.
func TestTerminal(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	at := "/sandboxes/" + s.sandbox(t, object{}) + "/processes"
	screen := s.events(t, "POST", at, object{"cmd": "stty size; read line; echo got $line; stty size; read line; tty",
		"tty": object{"cols": 91, "rows": 33}})
	var p struct {
		ProcessID string
		TTY       bool
	}
	screen.want("start").into(t, &p)
	proc := at + "/" + p.ProcessID
	var shown strings.Builder
	last := ""
	until := func(text string) {
		t.Helper()
		for !strings.Contains(shown.String(), text) {
			ev := screen.want("stdout")
			var out struct{ Data string }
			ev.into(t, &out)
			shown.WriteString(out.Data)
			last = ev.id
		}
	}
	until("33 91")
	s.ask(t, "PATCH", proc, object{"tty": object{"cols": 100, "rows": 20}}).want(http.StatusNoContent)
	_ = screen.body.Close() // whoever looked is gone; the terminal is not
	s.ask(t, "POST", proc+"/stdin", object{"data": "word\n"}).want(http.StatusNoContent)
	screen = s.events(t, "GET", proc+"/events", nil, "Last-Event-ID", last)
	until("got word")
	until("20 100")
	s.ask(t, "POST", proc+"/stdin", object{"data": "\n"}).want(http.StatusNoContent)
	until("/dev/")
	screen.want("end")
	if !p.TTY || strings.Count(shown.String(), "33 91") != 1 {
		t.Errorf("%+v: %q", p, shown.String())
	}
	size := object{"cols": 80, "rows": 24}
	s.ask(t, "POST", at, object{"cmd": "true", "tty": size}).fails(http.StatusBadRequest, "invalid_argument", "stream")
	s.ask(t, "POST", at, object{"cmd": "true", "tty": size, "background": true, "stdin": "x"}).
		fails(http.StatusBadRequest, "invalid_argument", "stdin")
	s.ask(t, "POST", at, object{"cmd": "true", "tty": object{"cols": 0, "rows": 24}, "background": true}).
		fails(http.StatusBadRequest, "invalid_argument")
	s.ask(t, "POST", at, object{"cmd": "true", "tty": object{"cols": 70000, "rows": 24}, "background": true}).
		fails(http.StatusBadRequest, "invalid_argument")
	var bg struct{ ProcessID string }
	s.ask(t, "POST", at, object{"cmd": "read x; exit 7", "tty": size, "background": true}).want(http.StatusCreated, &bg)
	s.ask(t, "POST", at+"/"+bg.ProcessID+"/stdin", object{"data": "\n"}).want(http.StatusNoContent)
	var res struct{ ExitCode int }
	if s.ask(t, "GET", at+"/"+bg.ProcessID+"/result", nil).want(http.StatusOK, &res); res.ExitCode != 7 {
		t.Errorf("%+v", res)
	}
	s.ask(t, "POST", at, object{"cmd": "sleep 60", "background": true}).want(http.StatusCreated, &bg)
	s.ask(t, "PATCH", at+"/"+bg.ProcessID, object{"tty": size}).
		fails(http.StatusConflict, "failed_precondition", "no terminal")
}

// failing is the end of a connection in the middle of a body.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLife: pause, resume, stop, forks, snapshots, updates, ports, code, metrics.
func TestLife(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	s := serve(t, w)
	id := s.sandbox(t, object{"name": "life", "limits": object{"memoryMB": 256, "pids": 100, "bestEffort": true}})
	at := "/sandboxes/life"
	var sb struct {
		SandboxID, State, EndAt string
		Limits                  struct{ MemoryMB, PIDs int }
		Network                 struct{ Allow []string }
	}
	s.ask(t, "PUT", at+"/files?path=/root/state", strings.NewReader("before")).want(http.StatusOK)
	var snap struct{ SnapshotID, SandboxID string }
	s.ask(t, "POST", at+"/snapshots", object{"name": "good"}).want(http.StatusCreated, &snap)
	s.ask(t, "PUT", at+"/files?path=/root/state", strings.NewReader("after")).want(http.StatusOK)
	var forks struct{ Sandboxes []struct{ SandboxID string } }
	s.ask(t, "POST", at+"/fork", object{"count": 2}).want(http.StatusCreated, &forks)
	s.ask(t, "POST", "/snapshots/good/fork", object{}).want(http.StatusCreated, &forks)
	if len(forks.Sandboxes) != 1 {
		t.Fatalf("%+v", forks)
	}
	read := func(at string) string { return string(s.ask(t, "GET", at+"/files?path=/root/state", nil).body) }
	if got := read("/sandboxes/" + forks.Sandboxes[0].SandboxID); got != "before" {
		t.Errorf("%q", got)
	}
	s.ask(t, "POST", at+"/stop", nil).want(http.StatusOK, &sb)
	s.ask(t, "POST", at+"/processes", object{"cmd": "true"}).fails(http.StatusConflict, "failed_precondition")
	s.ask(t, "POST", at+"/resume", nil).want(http.StatusOK, &sb)
	if sb.State != "running" || sb.SandboxID != id || read(at) != "after" {
		t.Errorf("%+v, %q", sb, read(at))
	}
	s.ask(t, "POST", "/snapshots/good/restore", nil).want(http.StatusOK, &sb)
	if read(at) != "before" {
		t.Errorf("%q", read(at))
	}
	s.ask(t, "DELETE", "/snapshots/good", nil).want(http.StatusNoContent)
	change := object{"timeout": 1000}
	if world.Grouped() {
		change["limits"] = object{"pids": 200}
	}
	s.ask(t, "PATCH", at, change).want(http.StatusOK, &sb)
	if world.Grouped() && (sb.Limits.PIDs != 200 || sb.Limits.MemoryMB != 256) || sb.EndAt == "" {
		t.Errorf("%+v", sb)
	}
	s.ask(t, "PATCH", at, object{}).fails(http.StatusBadRequest, "invalid_argument", "nothing to change")
	var code struct {
		Stdout, Text string
		Artifacts    []any
	}
	s.ask(t, "POST", at+"/code", object{"code": "x = 6\nx * 7"}).want(http.StatusOK, &code)
	if code.Text != "42" {
		t.Errorf("%+v", code)
	}
	streamed := s.events(t, "POST", at+"/code", object{"code": "print('out')\nx + 1"})
	told := ""
	for ev, err := streamed.next(); ; ev, err = streamed.next() {
		if err != nil {
			t.Fatal("no end:", err)
		}
		if ev.name == "end" {
			ev.into(t, &code)
			break
		}
		var piece struct{ Data string }
		ev.into(t, &piece)
		told += ev.name + " " + piece.Data
	}
	if strings.ReplaceAll(told, "stdout ", "") != "out\n" || code.Text != "7" || code.Stdout != "out\n" {
		t.Errorf("%q, %+v", told, code)
	}
	s.ask(t, "POST", at+"/code", object{"code": "1", "language": "cobol"}, "Accept", "text/event-stream").
		fails(http.StatusBadRequest, "invalid_argument", "language")
	var port struct {
		Address, Token string
	}
	w.ServeInside(t, id, "127.0.0.1", "8000")
	s.ask(t, "POST", at+"/ports", object{"port": 8000}).want(http.StatusCreated, &port)
	if status, text := world.Get(t, "http://"+port.Address+"/", "Authorization", "Bearer "+
		port.Token); status != http.StatusOK ||
		text != "hello from 127.0.0.1" {
		t.Errorf("%d: %s", status, text)
	}
	if status, _ := world.Get(t, "http://"+port.Address+"/"); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d", status)
	}
	s.ask(t, "DELETE", at+"/ports/8000", nil).want(http.StatusNoContent)
	s.ask(t, "GET", at+"/metrics", nil).want(http.StatusOK)
	s.ask(t, "GET", at+"/network", nil).want(http.StatusOK)
	s.ask(t, "GET", "/templates", nil).want(http.StatusOK)
}

// TestEvents: what happens, from now on and from a number on, and that a break loses nothing.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	all := s.events(t, "GET", "/events?kinds=sandbox.state", nil)
	id := s.sandbox(t, object{})
	var e struct {
		SandboxID string
		Data      struct{ State string }
	}
	ev := all.want("sandbox.state")
	if ev.into(t, &e); e.SandboxID != id || e.Data.State != "running" {
		t.Errorf("%+v", e)
	}
	_ = all.body.Close()
	s.ask(t, "DELETE", "/sandboxes/"+id, nil).want(http.StatusNoContent)
	later := s.events(t, "GET", "/events?sandbox="+id, nil, "Last-Event-ID", ev.id)
	for e.Data.State != "removed" {
		later.want("sandbox.state").into(t, &e)
	}
	s.ask(t, "GET", "/events?kinds=nonsense", nil).fails(http.StatusBadRequest, "invalid_argument", "nonsense")
}
