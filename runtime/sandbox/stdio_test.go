package sandbox

import (
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestTransitions(t *testing.T) {
	s := &Sandbox{record: api.Sandbox{State: api.Creating, PID: 7}}
	if s.transition(api.Stopped, "") {
		t.Error("a sandbox was stopped while being created")
	}
	if !s.transition(api.Running, "") || !s.transition(api.Failed, "PID 1 ended") {
		t.Error("an allowed change was refused")
	}
	if s.transition(api.Running, "") {
		t.Error("a failed sandbox ran again")
	}
	if r := s.Record(); r.PID != 0 || r.Reason != "PID 1 ended" {
		t.Errorf("record of an ended sandbox: %+v", r)
	}
}
