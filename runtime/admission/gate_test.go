package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestGate: whoever is in keeps a pause waiting; whoever comes then waits for the pause.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		if !g.tryEnter() {
			t.Fatal("the gate is shut")
		}
		more := g.Again()
		g.leave()
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := g.Clear(short, "sb_1"); err == nil {
			t.Error("the gate was cleared of somebody")
		}
		if g.tryEnter() {
			t.Error("somebody entered")
		}
		g.Open()
		cleared := make(chan error)
		go func() { cleared <- g.Clear(t.Context(), "sb_1") }()
		synctest.Wait() // until it waits
		more()
		more()
		if err := <-cleared; err != nil {
			t.Error(err)
		}
	})
}

// TestTurn: one has it at a time.
func TestTurn(t *testing.T) {
	turn := NewTurn()
	done := turn.TryTake()
	if done == nil || turn.TryTake() != nil {
		t.Fatal("nobody has it, or two")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turn.Take(ended); err == nil {
		t.Error("taken twice")
	}
	done()
	done, err := turn.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done()
}
