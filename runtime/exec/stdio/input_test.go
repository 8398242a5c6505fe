package stdio

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// TestWriteUntil: a write whose caller gives up, before, while or after it is done,
// leaves the file as it was for the next one.
func TestWriteUntil(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	stop := errors.New("stop")
	for range 2000 {
		ctx, cancel := context.WithCancelCause(t.Context())
		go cancel(stop)
		if err := writeUntil(ctx, w, []byte("x")); err != nil && !errors.Is(err, stop) {
			t.Fatal(err)
		}
		<-ctx.Done()
		if err := writeUntil(t.Context(), w, []byte("y")); err != nil {
			t.Fatalf("the next write: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := writeUntil(ctx, w, make([]byte, 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a full pipe: %v", err)
	}
}

// TestGate: one enters, and who waits may give up.
func TestGate(t *testing.T) {
	var g gate
	if err := g.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := g.enter(ctx); !errors.Is(err, stop) {
		t.Errorf("entered twice: %v", err)
	}
	g.leave()
	if err := g.enter(t.Context()); err != nil {
		t.Error(err)
	}
}
