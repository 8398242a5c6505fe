package stdio

import (
	"os"
	"slices"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// What hutch-launch holds of a command, so that it goes on when hutchd is killed: the other ends of the pipes.

// Kept says which files hutch-launch only keeps for the next hutchd, in this order.
type Kept struct{ Input, Master, Channel bool }

// Kept says which of them there are.
func (io *IO) Kept() Kept {
	return Kept{Input: io.input != nil, Master: io.master != nil, Channel: io.channel != nil}
}

// Hold hands over to hutch-launch what it is to serve and to keep of the command that e names, by its way. Held must
// be called when the command was started: what hutch-launch answers is waited for meanwhile.
func (io *IO) Hold(e launchapi.Exec,
	hold func(launchapi.Exec, ...*os.File) (await func() ([]launchapi.Stream, error), err error)) (err error) {
	e.Size, e.Roles = SpoolSize, io.roles
	files := slices.Clone(io.lend)
	for _, f := range []*os.File{io.input, io.master, io.channel} {
		if f != nil {
			e.Roles = append(e.Roles, launchapi.RoleKeep)
			files = append(files, f)
		}
	}
	io.flows = e.Flows()
	io.await, err = hold(e, files...)
	packet.CloseAll(io.lend)
	io.lend = nil
	return err
}

// Held takes what hutch-launch has answered. more is told how much was added to either stream, and must not wait.
func (io *IO) Held(more func(int64)) error {
	if io.await == nil {
		return nil
	}
	streams, err := io.await()
	io.await = nil
	for _, st := range streams {
		io.Streams = append(io.Streams, Open(st, SpoolSize, more))
	}
	return err
}

// Adopt is that of a command of a hutchd before. The files of e are its own from then on.
func Adopt(e *launchapi.HeldExec, kept Kept, more func(int64)) *IO {
	io := &IO{flows: e.Flows(), roles: e.Roles}
	for _, st := range e.Streams {
		io.Streams = append(io.Streams, Open(st, SpoolSize, more))
	}
	files := e.Files
	for _, k := range []struct {
		has bool
		to  **os.File
	}{{kept.Input, &io.input}, {kept.Master, &io.master}, {kept.Channel, &io.channel}} {
		if k.has && len(files) > 0 {
			*k.to, files = files[0], files[1:]
		}
	}
	return io
}

// Channel is hutchd's end of the channel to a worker that keeps a shell, nil of others; it is the shell's.
func (io *IO) Channel() *os.File { return io.channel }

// Flows reports whether hutch-launch has anything to store or to pass on that may not have come yet.
func (io *IO) Flows() bool { return io.flows && !io.stored() }

// Relayed reports whether what the command writes is passed on to its caller, who may not read it.
func (io *IO) Relayed() bool { return slices.Contains(io.roles, launchapi.RoleOut) }

// stored reports whether hutch-launch has stored every byte of the exec, and moves nothing
// else: most commands leave nobody behind who holds their pipes.
func (io *IO) stored() bool {
	for _, role := range io.roles {
		if role != launchapi.RoleSpool && role != launchapi.RoleKeep {
			return false
		}
	}
	return len(io.Streams) > 0 && !slices.ContainsFunc(io.Streams, func(st *Stream) bool { return !st.stored() })
}
