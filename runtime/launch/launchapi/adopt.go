package launchapi

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Held is all that hutch-launch holds for hutchd. The files are the caller's.
type Held struct {
	Kept      map[string]*os.File // by key
	Sandboxes []HeldSandbox
}

// HeldSandbox is a sandbox that was created and not destroyed. When its PID 1 has
// ended, the exited callback hears of it again.
type HeldSandbox struct {
	ID    string
	PID   int
	Guest *os.File // hutchd's end of the guest channel
	Pidfd *os.File
	Execs []HeldExec
}

// HeldExec is an exec that was held and not dropped.
type HeldExec struct {
	Exec
	Streams []Stream   // of RoleSpool, in order
	Files   []*os.File // of RoleKeep, in order
}

// Close closes all files.
func (h *Held) Close() {
	for _, f := range h.Kept {
		_ = f.Close()
	}
	for i := range h.Sandboxes {
		h.Sandboxes[i].Close()
	}
}

// Close closes the files of the sandbox and its execs.
func (s *HeldSandbox) Close() {
	packet.CloseAll([]*os.File{s.Guest, s.Pidfd})
	for _, e := range s.Execs {
		e.Close()
	}
}

// Close closes the files of the exec.
func (e *HeldExec) Close() {
	for _, st := range e.Streams {
		packet.CloseAll([]*os.File{st.File, st.Count})
	}
	packet.CloseAll(e.Files)
}

// Adopt takes over what hutch-launch has held for the hutchd before. It is a hutchd's
// first request, once.
func (c *Client) Adopt(ctx context.Context) (*Held, error) {
	c.mu.Lock()
	c.held = &Held{Kept: map[string]*os.File{}}
	c.mu.Unlock()
	a, err := c.call(ctx, Request{Op: OpAdopt})
	packet.CloseAll(a.files)
	c.mu.Lock()
	held := c.held
	err = errors.Join(err, c.heldErr)
	c.held = nil
	c.mu.Unlock()
	if err != nil {
		held.Close()
		return nil, fmt.Errorf("take over from the hutchd before: %w", err)
	}
	return held, nil
}

// adopted adds one thing to what Adopt returns.
func (c *Client) adopted(a Adopted, files []*os.File, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := errors.New("hutch-launch hands over what nobody asked for")
	if c.held != nil {
		err = c.held.add(a, files)
	}
	if lost {
		err = packet.ErrFDsLost
	}
	if err != nil {
		packet.CloseAll(files)
		c.heldErr = errors.Join(c.heldErr, err)
	}
}

// add owns files when it succeeds.
func (h *Held) add(a Adopted, files []*os.File) error {
	wrong := func(what string) error {
		return api.Errorf(api.Internal, "hutch-launch hands over %s with %d fds", what, len(files))
	}
	switch {
	case a.Key != "":
		if len(files) != 1 || h.Kept[a.Key] != nil {
			return wrong("key " + a.Key)
		}
		h.Kept[a.Key] = files[0]
	case a.Sandbox != nil:
		if len(files) != 2 {
			return wrong("sandbox " + a.Sandbox.ID)
		}
		h.Sandboxes = append(h.Sandboxes, HeldSandbox{ID: a.Sandbox.ID, PID: a.Sandbox.PID, Guest: files[0],
			Pidfd: files[1]})
	case a.Exec != nil:
		if len(h.Sandboxes) == 0 || h.Sandboxes[len(h.Sandboxes)-1].ID != a.Exec.Sandbox {
			return wrong("exec " + a.Exec.ID + " of another sandbox")
		}
		e, err := heldExec(a.Exec.Exec, files)
		if err != nil {
			return err
		}
		sb := &h.Sandboxes[len(h.Sandboxes)-1]
		sb.Execs = append(sb.Execs, e)
	default:
		return wrong("nothing")
	}
	return nil
}

// heldExec gives each role its files.
func heldExec(e Exec, files []*os.File) (HeldExec, error) {
	h := HeldExec{Exec: e}
	for _, role := range e.Roles {
		want := 0
		switch role {
		case RoleSpool:
			want = 2
		case RoleKeep:
			want = 1
		}
		if len(files) < want {
			return h, api.Errorf(api.Internal, "hutch-launch hands over exec %s with too few fds", e.ID)
		}
		switch role {
		case RoleSpool:
			h.Streams = append(h.Streams, streams(files[:want])...)
		case RoleKeep:
			h.Files = append(h.Files, files[0])
		}
		files = files[want:]
	}
	if len(files) > 0 {
		return h, api.Errorf(api.Internal, "hutch-launch hands over exec %s with %d fds too many", e.ID, len(files))
	}
	return h, nil
}
