package server

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestRunBuild: a call for another build is refused, and nothing is run.
func TestRunBuild(t *testing.T) {
	var ran atomic.Int32 // the race detector does not see that an answer comes behind it
	p := serve(t, newServer(t,
		&engines{run: func(context.Context, api.ExecParams, *jsonrpc.FDs, func(string, int)) (api.ExecResult, error) {
			ran.Add(1)
			return api.ExecResult{}, nil
		}}))
	const params = `{"sandbox":{"image":"host"},"exec":{"argv":["true"]},"if_build":`
	p.send(request(1, "sandbox.run", params+`"another"}`))
	if m := p.recv(); m.Error == nil || m.Error.Code != api.FailedPrecondition.Number() ||
		m.Error.Data.Field != "if_build" || ran.Load() != 0 {
		t.Fatalf("ran %d times, answered %+v", ran.Load(), m)
	}
	build, _ := json.Marshal(version.BuildID)
	p.send(request(2, "sandbox.run", params+string(build)+`}`))
	if p.recvOK("2"); ran.Load() != 1 {
		t.Errorf("ran %d times, want once", ran.Load())
	}
}

// TestRunProgress: who asks for it hears of a command that runs for a while, and not of one that is over before.
func TestRunProgress(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var heard []api.Progress
			over := make(chan struct{})
			s := newServer(t, &engines{run: func(_ context.Context, _ api.ExecParams, _ *jsonrpc.FDs,
				started func(string, int)) (api.ExecResult, error) {
				started("ex_5", 99)
				if long {
					<-over
				}
				return api.ExecResult{}, nil
			}})
			call := &Call{dispatcher: &dispatcher{s: s, line: &line{}},
				Progress: func(p api.Progress) { heard = append(heard, p); close(over) }}
			if _, err := s.table[api.MethodSandboxRun].run(t.Context(), call,
				json.RawMessage(`{"sandbox":{"image":"host"},"exec":{"argv":["true"]}}`)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if long && (len(heard) != 1 || heard[0].Sandbox != "sb_1" || heard[0].Exec != "ex_5" ||
				heard[0].PID != 99) || !long && heard != nil {
				t.Errorf("long %v: heard %+v", long, heard)
			}
		})
	}
}
