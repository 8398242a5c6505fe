package server

import (
	"encoding/json"
	"time"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Actor is who is on the other end of a connection: what the kernel said about
// the peer when it connected, outside the daemon's user namespace.
type Actor struct {
	UID, GID uint32
	PID      int32
	Private  bool // the connection is the daemon's lease, not the shared socket
	// Conn tells connections apart: unique within one daemon, never 0.
	Conn uint64
}

// Call is one request under way, beside its params.
type Call struct {
	Actor
	ID json.RawMessage // as the client wrote it
	// FDs came with the request. A handler takes what it needs; the rest is
	// closed when it returns.
	FDs *jsonrpc.FDs
	// Progress sends news to the client if it asked for any. It never blocks.
	Progress func(api.Progress)
	// AfterSent calls what it is given when the reply has been written, or nobody is there to read it.
	AfterSent func(func())

	dispatcher *dispatcher
	afterReply func(func()) // the same when the reply has been queued
	endTurn    func()       // of InTurn
	news       *time.Timer  // of StartedIn
}
