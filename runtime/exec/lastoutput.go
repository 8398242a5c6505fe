package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec/stdio"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// The end of what the last command of a sandbox has written stays when the sandbox is stopped: why it ended is asked
// then. It is in the sandbox's folder, beside its files, until it is started again.

// aboutFile is api.Exec, beside a file for each stream.
const aboutFile = "exec.json"

// SaveLast writes that into a folder, all of it or nothing. All execs have ended.
func (set *Set) SaveLast(dir string) (err error) {
	r := set.last()
	if err := removeAll(dir); err != nil || r == nil {
		return err
	}
	defer func() {
		if err != nil { // it may have taken the room that the record needs
			err = errors.Join(err, removeAll(dir))
		}
	}()
	done, ok := r.io.KeepOutput()
	if !ok {
		return nil // forgotten meanwhile
	}
	defer done()
	about, err := json.Marshal(r.record())
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, aboutFile), about, 0o600)); err != nil {
		return err
	}
	return r.io.Save(dir)
}

// last is the last background command that has ended, or else the last of all; nil is none.
func (set *Set) last() (last *Exec) {
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, r := range set.ended {
		if r.isKept() || len(r.io.Streams) == 0 {
			continue
		}
		if last == nil || r.params.Background || !last.params.Background {
			last = r
		}
	}
	return last
}

// Recall makes what is in such a folder readable again, for a sandbox that is stopped.
func (t *Table) Recall(s Sandbox, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, aboutFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var about api.Exec
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err == nil && about.ExitCode == nil {
		err = errors.New("it has no exit code")
	}
	if err != nil {
		return fmt.Errorf("read what its last command was: %w", err)
	}
	io, err := stdio.Recall(dir)
	if err != nil {
		return err
	}
	r := &Exec{
		t: t, id: about.Exec, s: s, set: s.Commands(), params: api.ExecParams{Argv: about.Argv, Command: about.Command,
			Background: about.Background},
		leader: over{pid: about.PID}, start: about.Started, verdict: about.Verdict,
		end:  guestapi.Event{Status: *about.ExitCode << 8}, // wait(2)
		took: time.Duration(about.DurationMS * float64(time.Millisecond)), io: io, recalled: true,
		done: make(chan struct{}), forgotten: make(chan struct{}),
	}
	close(r.done)
	if about.TTY {
		r.params.Pty = &api.Pty{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.set.recall(r)
	t.execs[r.id] = r
	return nil
}

// recall lists one that has ended before.
func (set *Set) recall(r *Exec) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.ended = append(set.ended, r)
}

// over is the leader of a command of which nothing is left.
type over struct {
	Process
	pid int
}

func (o over) PID() int { return o.pid }

func removeAll(dir string) error {
	if err := rmtree.Path(dir); err != nil {
		return fmt.Errorf("remove the sandbox's folder: %w", err)
	}
	return nil
}
