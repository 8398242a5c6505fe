package server

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// Output is a place in an exec's output. It is used by one goroutine.
type Output interface {
	From() api.Offsets
	// Await waits until Next has something, or until more fires. Without credit
	// that is only what needs none: the end, and what is lost.
	Await(ctx context.Context, credit bool, more <-chan struct{}) error
	// Next returns what comes next, with at most as many bytes as buf holds, and
	// does not wait; ok is false when there is nothing.
	Next(buf []byte) (piece exec.Piece, ok bool)
}

// EventCursor is a place in the log. It is used by one goroutine.
type EventCursor interface {
	// Await waits until Read may have something. It returns io.EOF when there will
	// be no more.
	Await(ctx context.Context) error
	// Read returns the next events, at most so many, and does not wait. It may
	// return none.
	Read(most int) ([]api.Event, error)
}
