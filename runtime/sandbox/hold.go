package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
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
	Paused time.Duration  `json:"paused,omitempty"` // that the sandbox had been paused before
	// What the verdict takes: limits, and counters of the sandbox at the start.
	CPU    time.Duration `json:"cpu,omitempty"`
	Output int64         `json:"output,omitempty"`
	FSize  bool          `json:"fsize,omitempty"`
	// FSizeOwn says that the limit of each file was asked for; WasOver that the sandbox was
	// over its limit of disk space already.
	FSizeOwn bool   `json:"fsize_own,omitempty"`
	FileSize uint64 `json:"file_size,omitempty"` // of FSizeOwn
	WasOver  bool   `json:"was_over,omitempty"`
	Group    group  `json:"group,omitzero"`
	OOM      uint64 `json:"oom,omitempty"`
	PIDs     uint64 `json:"pids,omitempty"`
	// Input and Master say which files are kept, in this order.
	Input  bool `json:"input,omitempty"`
	Master bool `json:"master,omitempty"`
	// Shell is the id of the shell that the exec is. Its channel is kept.
	Shell string `json:"shell,omitempty"`
	// Kept is the name of an exec that is kept for later (KeepExec), User whose it is.
	Kept string `json:"kept,omitempty"`
	User string `json:"user,omitempty"`
}

// execEnd is noted when the exec has ended, before PID 1 may forget that.
type execEnd struct {
	End     guestapi.Event `json:"end"`
	Verdict api.Verdict    `json:"verdict,omitempty"`
	Took    time.Duration  `json:"took"`
	CPU     time.Duration  `json:"cpu"`
	Memory  int64          `json:"memory"`
	Limit   *api.LimitHit  `json:"limit,omitempty"`
	Cut     bool           `json:"cut,omitempty"`
	Disk    diskuse.Usage  `json:"disk,omitzero"`
	Denials []api.Denial   `json:"denials,omitempty"`

	Unguarded []api.Unguarded `json:"unguarded,omitempty"`
	Group     group           `json:"group,omitzero"` // where what it has left behind is
}

// hold hands r over to hutch-launch. r.io.held must be called when r was started: what
// hutch-launch answers is waited for meanwhile.
func (m *Manager) hold(r *running, io *stdio) error {
	p := &r.params
	meta := execMeta{
		Guest: r.guest, Start: r.start, Until: r.until, Paused: r.before,
		CPU: r.bounds.cpu, Output: r.bounds.output, FSize: r.bounds.fsize, FSizeOwn: r.bounds.fsizeOwn,
		FileSize: r.bounds.fileSize, WasOver: r.wasOver, Group: r.group, OOM: r.oom, PIDs: r.pids,
		// All that is shown of an exec later.
		Params: api.ExecParams{Sandbox: p.Sandbox, Argv: p.Argv, Command: p.Command, Background: p.Background,
			Pty: p.Pty},
		Input: io.input != nil, Master: io.master != nil, Shell: r.shell, Kept: r.kept, User: p.User,
	}
	e := launchapi.Exec{ID: r.id, Size: spoolSize, Roles: io.roles}
	files := slices.Clone(io.lend)
	for _, f := range []*os.File{io.input, io.master, io.channel} {
		if f != nil {
			e.Roles = append(e.Roles, launchapi.RoleKeep)
			files = append(files, f)
		}
	}
	io.flows = e.Flows()
	var err error
	if e.Meta, err = json.Marshal(meta); err != nil {
		return fmt.Errorf("note exec: %w", err)
	}
	io.await, err = m.cfg.Launcher.Hold(r.s.id, e, files...)
	packet.CloseAll(io.lend)
	io.lend = nil
	return err
}

// held takes what hutch-launch has answered.
func (io *stdio) held(r *running) error {
	if io.await == nil {
		return nil
	}
	streams, err := io.await()
	io.await = nil
	for _, st := range streams {
		io.streams = append(io.streams, openStream(st, r.wrote))
	}
	return err
}

// relayGrace is how long a caller may still read what an exec that was ended has written.
const relayGrace = 2 * time.Second

var errNotRead = errors.New("the caller does not read what the command has written")

// patience bounds how long the rest of r's output may take. What is spooled takes no time.
// What is relayed waits for the caller to read: not when that is gone, and not for long
// when the exec's own time is over or somebody has ended it.
func (r *running) patience(limited context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(context.Background())
	cancel := func() { end(errNotRead) }
	if !slices.Contains(r.io.roles, launchapi.RoleOut) {
		return ctx, cancel
	}
	stop := context.AfterFunc(limited, func() {
		if errors.Is(context.Cause(limited), errGone) {
			cancel()
			return
		}
		time.AfterFunc(relayGrace, cancel)
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// collect makes hutch-launch store, or pass on, the rest of r's output. The end of ctx
// says that the caller, who would have to read that, is gone.
func (m *Manager) collect(ctx context.Context, r *running) error {
	if !r.io.flows || r.io.stored() {
		return nil
	}
	spooled, err := m.cfg.Launcher.Flush(ctx, r.s.id, r.id)
	for _, st := range spooled {
		r.cut = r.cut || st.Lost >= 0
	}
	if ctx.Err() != nil {
		m.dropNow(r) // ends what waits for the caller
	}
	return err
}

// stored reports whether hutch-launch has stored every byte of the exec, and moves nothing
// else: most commands leave nobody behind who holds their pipes.
func (io *stdio) stored() bool {
	for _, role := range io.roles {
		if role != launchapi.RoleSpool && role != launchapi.RoleKeep {
			return false
		}
	}
	return len(io.streams) > 0 && !slices.ContainsFunc(io.streams, func(st *stream) bool { return !st.stored() })
}

// note puts r's end on record; then PID 1 may forget it.
func (m *Manager) note(r *running) error {
	end, err := json.Marshal(execEnd{
		End: r.end, Verdict: r.verdict, Took: r.took, CPU: r.cpu, Memory: r.memory, Limit: r.met, Cut: r.cut,
		Disk: r.disk, Denials: r.denials, Unguarded: r.unguarded, Group: r.group,
	})
	if err != nil {
		return fmt.Errorf("note the end of an exec: %w", err)
	}
	if err := m.cfg.Launcher.End(r.s.id, r.id, end); err != nil {
		return err
	}
	r.exec.Ack()
	return nil
}
