package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec/stdio"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Held is an exec of a hutchd before, as hutch-launch has held it.
type Held struct {
	e    *launchapi.HeldExec
	meta meta
}

// ReadHeld reads the notes of execs, whose files stay the caller's until Adopt.
func ReadHeld(execs []launchapi.HeldExec) ([]Held, error) {
	all := make([]Held, len(execs))
	for i := range execs {
		all[i].e = &execs[i]
		if err := json.Unmarshal(execs[i].Meta, &all[i].meta); err != nil {
			return nil, fmt.Errorf("note of exec %s: %w", execs[i].ID, err)
		}
	}
	return all, nil
}

// Guest is its id on the channel to PID 1.
func (h *Held) Guest() uint64 { return h.meta.Guest }

// Ended reports whether its end is on record, so that PID 1 may have forgotten it.
func (h *Held) Ended() bool { return h.e.End != nil }

// Note is what Exec.Note has noted last.
func (h *Held) Note() json.RawMessage { return h.e.Note }

// Adopt takes over an exec in a sandbox; leader is what PID 1 knows of it, and not used where its end is on record. It
// owns the files that hutch-launch has held from then on. It returns nil when the command never ran.
func (t *Table) Adopt(ctx context.Context, s Sandbox, h *Held, leader Process) *Exec {
	meta := &h.meta
	r := &Exec{
		t: t, id: h.e.ID, s: s, set: s.Commands(), params: meta.Params, open: meta.Input, guest: meta.Guest,
		leader: leader, shell: meta.Shell, kept: meta.Kept, start: meta.Start, until: meta.Until, before: meta.Paused,
		oom: meta.OOM, pids: meta.PIDs, use: Use{Over: meta.WasOver}, group: meta.Group,
		bounds: bounds{cpu: meta.CPU, output: meta.Output, fsize: meta.FSize, fsizeOwn: meta.FSizeOwn,
			fileSize: meta.FileSize},
		company: true, // nobody knows who else has run meanwhile
		done:    make(chan struct{}), forgotten: make(chan struct{}),
	}
	r.params.User, r.group.Once = meta.User, true
	own, cancel := context.WithCancelCause(context.Background())
	r.stop = cancel
	r.io = stdio.Adopt(h.e, stdio.Kept{Input: meta.Input, Master: meta.Master, Channel: meta.Shell != ""}, r.wrote)
	if h.Ended() {
		cancel(nil)
		t.adoptEnded(r, h.e.End)
		return r
	}
	if err := leader.Resume(ctx); err != nil && s.Init().Err() == nil {
		cancel(nil)
		t.notAdopted(r, err)
		return nil
	}
	limited, stopTimer := r.limit(own)
	t.add(r)
	if r.kept != "" {
		r.set.AddKept(1)
		watchKept(r)
	}
	r.watch(limited)
	t.cfg.Background.Go(func() {
		defer cancel(nil)
		defer stopTimer()
		t.supervise(limited, r)
	})
	return r
}

// notAdopted gives up an exec of which PID 1 says that it never ran, or nothing.
func (t *Table) notAdopted(r *Exec, err error) {
	if !neverRan(err) { // it may still start, and nobody would watch it
		r.s.Distrust("its PID 1 did not say what became of a command")
	}
	// Else it never ran, and nobody was told that it did.
	r.leaveGroup()
	if c := r.io.Channel(); c != nil {
		_ = c.Close()
	}
	r.io.Abort()
	t.dropNow(r)
}

// neverRan reports whether err says that a command was not started.
func neverRan(err error) bool {
	_, failed := errors.AsType[*guestapi.StartError](err)
	return failed || errors.Is(err, guestapi.ErrNoExec)
}

// adoptEnded takes over an exec whose end is on record.
func (t *Table) adoptEnded(r *Exec, note json.RawMessage) {
	var end ending
	if err := json.Unmarshal(note, &end); err != nil {
		end.End.Status = int(syscall.SIGKILL)
		end.Verdict = api.VerdictLost
	}
	r.end, r.verdict, r.took = end.End, end.Verdict, end.Took
	r.leader = r.s.Init().Ended(r.guest, end.End.PID)
	r.cpu, r.memory, r.met, r.cut, r.group = end.CPU, end.Memory, end.Limit, end.Cut, end.Group
	r.disk, r.denials, r.unguarded = end.Disk, end.Denials, end.Unguarded
	r.leaveGroup() // what it has left behind may still be there
	r.io.Release()
	t.add(r)
	t.end(r)
	close(r.done)
}
