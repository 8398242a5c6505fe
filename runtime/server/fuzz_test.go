package server

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
)

// FuzzServe sends anything, with fds, and then asks a question that must still
// be answered; every line that comes back must be proper.
//
// Cost: not measured, because the server answers in goroutines of its own; FuzzDecode measures what decodes.
//
// Rate: 300/s, because each input is a connection of its own, with files, that is served to its end.
func FuzzServe(f *testing.F) {
	f.Add([]byte(request(1, "exec.run", runParams(`"fds":1`))), uint8(1))
	f.Add([]byte(`[`+request(1, "system.info", `{}`)+`,`+request("1", "x", `[]`)+`,3]`), uint8(0))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":1}}`), uint8(0))
	f.Add([]byte(request(1, "sandbox.create", `{"mounts":[{"source":"/","mode":"ro"}],"limits":{"cpus":1}}`)), uint8(2))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":1}`+"\n"+`{"jsonrpc":"2.0","id":"last","method":"x"}`), uint8(9))
	// one for all, as a daemon has it: making the table of methods takes longer than a call
	s := newServer(f, &engines{})
	f.Fuzz(func(t *testing.T, data []byte, fds uint8) {
		p := serve(t, s)
		r, w := pipe(t)
		_ = r
		_, _ = jsonrpc.Send(p.conn, append(data, '\n'), slices.Repeat([]*os.File{w}, int(fds%9)))
		p.send(request("the last question", "system.info", `{}`))
		if err := p.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answered := false
		for {
			line, _, err := p.r.ReadLine()
			if err != nil {
				break
			}
			for _, m := range messages(t, line) {
				if m.Error != nil && (m.Error.Data.Hint == "" || m.Error.Code == 0) {
					t.Errorf("error without hint or code: %s", line)
				}
				if m.Error == nil && m.Result == nil {
					t.Errorf("neither result nor error: %s", line)
				}
				answered = answered || (string(m.ID) == `"the last question"` && m.Result != nil)
			}
		}
		if !answered && !bytes.Contains(data, []byte("last")) {
			t.Error("the last question was not answered")
		}
	})
}

func messages(t *testing.T, line []byte) []message {
	var list []message
	if line[0] == '[' {
		if err := json.Unmarshal(line, &list); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return list
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return []message{m}
}

func BenchmarkRoundTrip(b *testing.B) {
	p := serve(b, newServer(b, &engines{}))
	line := []byte(request(1, "system.info", `{}`) + "\n")
	for b.Loop() {
		if _, err := jsonrpc.Send(p.conn, line, nil); err != nil {
			b.Fatal(err)
		}
		p.line()
	}
}

func BenchmarkRoundTripWithFDs(b *testing.B) {
	p := serve(b, newServer(b, &engines{}))
	_, w := pipe(b)
	files := []*os.File{w, w, w}
	line := []byte(request(1, "exec.run",
		`{"sandbox":"x","argv":["true"],"fds":3,"stdio":{"stdin":0,"stdout":1,"stderr":2}}`) + "\n")
	for b.Loop() {
		if _, err := jsonrpc.Send(p.conn, line, files); err != nil {
			b.Fatal(err)
		}
		p.line()
	}
}

// BenchmarkRoundTripLarge is a request whose params have 2 MiB.
func BenchmarkRoundTripLarge(b *testing.B) {
	p := serve(b, newServer(b, &engines{}))
	line := []byte(request(1, "fs.write", `{"sandbox":"x","path":"/f","encoding":"base64","data":"`+
		strings.Repeat("QUJD", 1<<19)+`"}`) + "\n")
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := jsonrpc.Send(p.conn, line, nil); err != nil {
			b.Fatal(err)
		}
		p.line()
	}
}
