package sandbox

import (
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Caller is who calls, and what came with the call.
type Caller struct {
	User     uint32
	Conn     uint64
	FDs      packet.Taker
	Progress func(api.Progress)
}
