package sandbox

import (
	"context"
	"testing"
	"time"
)

// Whoever is in keeps a pause waiting; whoever comes then waits for the pause.
func TestDoor(t *testing.T) {
	s := &Sandbox{admission: newAdmission()}
	s.record.State = "running"
	m := &Manager{}
	leave, err := m.enter(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	more := s.again()
	leave()
	leave()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.closeAdmission(short); err == nil {
		t.Error("the admission was closed on somebody")
	}
	s.openAdmission()
	closed := make(chan error)
	go func() { closed <- s.closeAdmission(t.Context()) }()
	for { // until it waits
		s.mu.Lock()
		waits := s.admission.empty != nil
		s.mu.Unlock()
		if waits {
			break
		}
	}
	more()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
