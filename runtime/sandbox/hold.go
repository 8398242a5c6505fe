package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// What hutch-launch holds of an exec, so that it goes on when hutchd is killed: the other
// ends of the pipes, and two notes to the next hutchd.

// execMeta is noted before PID 1 is asked to start the exec.
type execMeta struct {
	Guest  uint64         `json:"guest"`
	Params api.ExecParams `json:"params"`
	Start  time.Time      `json:"start"`
	Until  time.Time      `json:"until,omitzero"`
	// Input and Master say which files are kept, in this order.
	Input  bool `json:"input,omitempty"`
	Master bool `json:"master,omitempty"`
}

// execEnd is noted when the exec has ended, before PID 1 may forget that.
type execEnd struct {
	End     guestapi.Event `json:"end"`
	Verdict api.Verdict    `json:"verdict,omitempty"`
	Took    time.Duration  `json:"took"`
}

// hold hands r over to hutch-launch.
func (m *Manager) hold(ctx context.Context, r *running, io *stdio) error {
	p := &r.params
	meta := execMeta{
		Guest: r.guest, Start: r.start, Until: r.until,
		// All that is shown of an exec later.
		Params: api.ExecParams{Sandbox: p.Sandbox, Argv: p.Argv, Command: p.Command, Background: p.Background, Pty: p.Pty},
		Input:  io.input != nil, Master: io.master != nil,
	}
	e := launchapi.Exec{ID: r.id, Size: spoolSize}
	var files []*os.File
	add := func(role launchapi.Role, f *os.File) {
		e.Roles = append(e.Roles, role)
		files = append(files, f)
	}
	for _, f := range io.spool {
		add(launchapi.RoleSpool, f)
	}
	if io.input != nil {
		add(launchapi.RoleKeep, io.input)
	}
	if io.master != nil {
		add(launchapi.RoleKeep, io.master)
	}
	var err error
	if e.Meta, err = json.Marshal(meta); err != nil {
		return fmt.Errorf("note exec: %w", err)
	}
	streams, err := m.cfg.Launcher.Hold(ctx, r.s.id, e, files...)
	if err != nil {
		return err
	}
	for _, st := range streams {
		io.streams = append(io.streams, openStream(st))
	}
	packet.CloseAll(io.spool)
	io.spool = nil
	return nil
}

// record makes hutch-launch store the rest of r's output and note its end; then PID 1
// may forget it.
func (m *Manager) record(r *running) error {
	end, err := json.Marshal(execEnd{End: r.end, Verdict: r.verdict, Took: r.took})
	if err != nil {
		return fmt.Errorf("note the end of an exec: %w", err)
	}
	if len(r.io.streams) > 0 {
		_, err = m.cfg.Launcher.Flush(context.Background(), r.s.id, r.id, end)
	} else {
		err = m.cfg.Launcher.End(r.s.id, r.id, end)
	}
	if err == nil && r.exec != nil {
		r.exec.Ack()
	}
	return err
}
