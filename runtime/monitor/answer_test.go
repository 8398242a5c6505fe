package monitor

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// TestAnswerNumbers: each answer has the number of its question, and what is none gets no answer.
func TestAnswerNumbers(t *testing.T) {
	a, b, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := packet.New(a)
	theirs, err2 := packet.New(b)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	m := &monitor{opts: Options{Paths: paths.Paths{State: t.TempDir()}}, log: slog.New(slog.DiscardHandler)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		m.serveHutchd(t.Context(), &hutchd{conn: ours})
	}()
	project := &monitorapi.Project{Home: "..", Sandbox: "sb_a"}
	for _, q := range []monitorapi.Message{
		{Question: 7, Project: project}, {}, {Question: 8, Project: project},
		{Question: 9, Reload: &monitorapi.Reload{}},
	} {
		if err := theirs.Send(q); err != nil {
			t.Fatal(err)
		}
		if q.Question == 0 {
			continue
		}
		var got monitorapi.Message
		if _, err := theirs.Recv(&got); err != nil {
			t.Fatal(err)
		}
		if got.Question != q.Question || (got.Projected != nil) != (q.Project != nil) ||
			(got.Reloaded != nil) != (q.Reload != nil) {
			t.Errorf("asked %+v, answered %+v", q, got)
		}
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	<-served
	_ = ours.Close()
}
