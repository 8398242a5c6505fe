package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// awaitGate waits until who called opens the gate, which is one of fds: until eight bytes can be read of it, as of an
// eventfd(2) that was written to. When ctx ends first it returns why.
func awaitGate(ctx context.Context, fds packet.Taker, field string, index int) error {
	gate, err := fds.Take(index)
	if err != nil {
		return err
	}
	defer gate.Close()
	var count [8]byte
	// Of what the runtime's poller cannot watch a read might never end.
	if err := gate.SetReadDeadline(time.Time{}); err != nil {
		return badGate(field, "cannot wait for it: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = gate.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	switch _, err := io.ReadFull(gate, count[:]); {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("wait for the gate: %w", context.Cause(ctx))
	default:
		return badGate(field, "cannot read it: %w", err)
	}
}

func badGate(field, format string, err error) error {
	return api.Errorf(api.InvalidArgument, format, err).WithField(field).
		WithHint("Send an eventfd that was made with EFD_NONBLOCK.")
}
