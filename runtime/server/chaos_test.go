package server

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestChaos lets clients behave as badly as they can at the same time, each from
// a seed of its own, beside one that must not notice. What they leave behind is
// the leak check's matter.
func TestChaos(t *testing.T) {
	s := newServer(t, &engines{run: func(ctx context.Context, p api.ExecParams, fds *jsonrpc.FDs,
		started func(string, int)) (api.ExecResult, error) {
		started("ex_1", 1)
		if p.Stdio != nil && p.Stdio.Stdout != nil {
			f, err := fds.Take(*p.Stdio.Stdout)
			if err != nil {
				return api.ExecResult{}, err
			}
			defer f.Close()
		}
		if p.Argv[0] == "wait" {
			<-ctx.Done()
			return api.ExecResult{}, context.Cause(ctx)
		}
		return api.ExecResult{Stdout: strings.Repeat("x", 100_000)}, nil
	}})
	var wg sync.WaitGroup
	for seed := range uint64(6) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 0))
			for range 40 {
				misbehave(t, s, r)
			}
		})
	}
	quick := serve(t, s)
	for range 200 {
		quick.alive()
	}
	wg.Wait()
	quick.alive()
	if err := s.Shutdown(deadline(t)); err != nil {
		t.Error(err)
	}
}

// misbehave is the life of one bad client.
func misbehave(t *testing.T, s *Server, r *rand.Rand) {
	p := serve(t, s)
	read, write, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	defer read.Close()
	defer write.Close()
	lines := []string{
		request(r.IntN(4), "exec.run", `{"sandbox":"x","argv":["wait"],"progress":true}`) + "\n",
		request(r.IntN(4), "exec.run", `{"sandbox":"x","argv":["go"],"fds":2,"stdio":{"stdout":1}}`) + "\n",
		`{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":` + string(mustJSON(r.IntN(4))) + "}}\n",
		`[` + request("a", "system.info", `{}`) + `,` +
			request(r.IntN(4), "exec.run", `{"sandbox":"x","argv":["go"]}`) + "]\n",
		`{"jsonrpc":"2.0","id":1,"meth`,
		"\n", "nonsense\n", "[]\n",
	}
	for range r.IntN(12) {
		line := lines[r.IntN(len(lines))]
		if r.IntN(8) == 0 {
			line = line[:r.IntN(len(line))]
		}
		var files []*os.File
		for range r.IntN(4) {
			files = append(files, write)
		}
		if line == "" {
			continue
		}
		if _, err := jsonrpc.Send(p.conn, []byte(line), files); err != nil {
			break // the server may have given up; that is its right
		}
	}
	switch r.IntN(3) {
	case 0: // gone without a word
	case 1:
		_ = p.conn.CloseWrite()
	case 2:
		_ = p.conn.CloseRead()
	}
	_ = p.conn.Close()
	<-p.done
}

// FuzzDecode: what params.Decode accepts, encoding/json accepts strictly and
// understands in the same way; what it refuses has a hint.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"image":"host","limits":{"cpus":1.5,"pids":20},"mounts":[{"source":"/a","target":"/b","mode":"ro"}]}`))
	f.Add([]byte(`{"image":"host","network":{"mode":"allow","allow":["a"]},"workspace":{"path":"/w","mode":"rw","fd":0},"fds":1}`))
	f.Add([]byte(`{"image":"host","scope":null,"labels":{"a":"b"},"env":{}}`))
	f.Add([]byte(`{"Image":"host"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return // the channel has refused it
		}
		var ours api.CreateParams
		var err error
		cost.Of(t, len(raw), func() {
			ours = api.CreateParams{}
			err = params.Decode(raw, &ours)
		})
		if err != nil {
			var wire *jsonrpc.Error
			var e *api.Error
			if errors.As(err, &wire) && (wire.Code != jsonrpc.CodeInvalidParams || wire.Data.Hint == "") {
				t.Errorf("%s: %+v", raw, wire)
			} else if wire == nil && !errors.As(err, &e) {
				t.Errorf("%s: a %T", raw, err)
			}
			return
		}
		if string(raw) == "null" {
			return
		}
		var std api.CreateParams
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&std); err != nil {
			t.Fatalf("%s: encoding/json refuses it: %v", raw, err)
		}
		if !reflect.DeepEqual(ours, std) {
			t.Errorf("%s: %+v, encoding/json %+v", raw, ours, std)
		}
	})
}
