package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// What hutch-launch holds of an exec, so that it goes on when hutchd is killed: the other
// ends of the pipes, and two notes to the next hutchd.

// meta is noted before PID 1 is asked to start the exec.
type meta struct {
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
	Group    Group  `json:"group,omitzero"`
	OOM      uint64 `json:"oom,omitempty"`
	PIDs     uint64 `json:"pids,omitempty"`
	// Input and Master say which files are kept, in this order.
	Input  bool `json:"input,omitempty"`
	Master bool `json:"master,omitempty"`
	// Shell is the id of the shell that the exec is. Its channel is kept.
	Shell string `json:"shell,omitempty"`
	// Kept is the name of an exec that is kept for later (Table.Keep), User whose it is.
	Kept string `json:"kept,omitempty"`
	User string `json:"user,omitempty"`
}

// ending is noted when the exec has ended, before PID 1 may forget that.
type ending struct {
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
	Group     Group           `json:"group,omitzero"` // where what it has left behind is
}

// hold hands r over to hutch-launch.
func (r *Exec) hold() error {
	p, kept := &r.params, r.io.Kept()
	note, err := json.Marshal(meta{
		Guest: r.guest, Start: r.start, Until: r.until, Paused: r.before,
		CPU: r.bounds.cpu, Output: r.bounds.output, FSize: r.bounds.fsize, FSizeOwn: r.bounds.fsizeOwn,
		FileSize: r.bounds.fileSize, WasOver: r.use.Over, Group: r.group, OOM: r.oom, PIDs: r.pids,
		// All that is shown of an exec later.
		Params: api.ExecParams{Sandbox: p.Sandbox, Argv: p.Argv, Command: p.Command, Background: p.Background,
			Pty: p.Pty},
		Input: kept.Input, Master: kept.Master, Shell: r.shell, Kept: r.kept, User: p.User,
	})
	if err != nil {
		return fmt.Errorf("note exec: %w", err)
	}
	return r.io.Hold(launchapi.Exec{ID: r.id, Meta: note},
		func(e launchapi.Exec, files ...*os.File) (func() ([]launchapi.Stream, error), error) {
			return r.t.cfg.Launcher.Hold(r.s.ID(), e, files...)
		})
}

// relayGrace is how long a caller may still read what an exec that was ended has written.
const relayGrace = 2 * time.Second

var errNotRead = errors.New("the caller does not read what the command has written")

// patience bounds how long the rest of r's output may take. What is spooled takes no time.
// What is relayed waits for the caller to read: not when that is gone, and not for long
// when the exec's own time is over or somebody has ended it.
func (r *Exec) patience(limited context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(context.Background())
	cancel := func() { end(errNotRead) }
	if !r.io.Relayed() {
		return ctx, cancel
	}
	stop := context.AfterFunc(limited, func() {
		if errors.Is(context.Cause(limited), ErrGone) {
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
func (r *Exec) collect(ctx context.Context) error {
	if !r.io.Flows() {
		return nil
	}
	spooled, err := r.t.cfg.Launcher.Flush(ctx, r.s.ID(), r.id)
	for _, st := range spooled {
		r.cut = r.cut || st.Lost >= 0
	}
	if ctx.Err() != nil {
		r.t.dropNow(r) // ends what waits for the caller
	}
	return err
}

// noteEnd puts r's end on record; then PID 1 may forget it.
func (r *Exec) noteEnd() error {
	end, err := json.Marshal(ending{
		End: r.end, Verdict: r.verdict, Took: r.took, CPU: r.cpu, Memory: r.memory, Limit: r.met, Cut: r.cut,
		Disk: r.disk, Denials: r.denials, Unguarded: r.unguarded, Group: r.groupNow(),
	})
	if err != nil {
		return fmt.Errorf("note the end of an exec: %w", err)
	}
	if err := r.t.cfg.Launcher.End(r.s.ID(), r.id, end); err != nil {
		return err
	}
	r.leader.Ack()
	return nil
}

// Note replaces what the next hutchd learns about an exec that is a shell, beside its own notes.
func (r *Exec) Note(note json.RawMessage) error { return r.t.cfg.Launcher.Note(r.s.ID(), r.id, note) }

// launcherGone reports whether err says that hutch-launch has ended.
func launcherGone(err error) bool { return errors.Is(err, &api.Error{Code: api.Unavailable}) }
