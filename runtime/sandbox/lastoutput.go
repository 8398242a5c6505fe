package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hutch-sh/hutch/internal/spool"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// The end of what the last command of a sandbox has written stays when the sandbox is stopped: why it ended is asked
// then. It is in the sandbox's folder, beside its files, until it is started again.
const (
	outputDir  = "output"    // about, and a file for each stream
	aboutFile  = "exec.json" // api.Exec
	lastOutput = 8 << 20     // bytes kept of a stream; less than the head of a spool, so that the file is one
)

// keepLastOutput writes what is kept, all of it or nothing. All execs have ended.
func (s *Sandbox) keepLastOutput() (err error) {
	dir := filepath.Join(s.dir, outputDir)
	r := s.lastExec()
	if err := removeAll(dir); err != nil || r == nil {
		return err
	}
	defer func() {
		if err != nil { // it may have taken the room that the record needs
			err = errors.Join(err, removeAll(dir))
		}
	}()
	done, err := r.keepOutput()
	if err != nil {
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
	for i, st := range r.io.streams {
		if err := st.saveEnd(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// lastExec is the last background command that has ended, or else the last of all; nil is none.
func (s *Sandbox) lastExec() (last *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.ended {
		if r.kept != "" || r.shell != "" || len(r.io.streams) == 0 {
			continue
		}
		if last == nil || r.params.Background || !last.params.Background {
			last = r
		}
	}
	return last
}

// saveEnd writes the end of a stream that has ended.
func (st *stream) saveEnd(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	total, _ := st.known()
	buf := make([]byte, spool.MaxChunk)
	for off := max(0, total-lastOutput); off < total; {
		n, start, err := st.readInto(buf, off)
		n = int(min(int64(n), total-start))
		if err != nil || n <= 0 { // the disk did not take the rest
			break
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return errors.Join(err, f.Close())
		}
		off = start + int64(n)
	}
	return f.Close()
}

// recallOutput makes what is kept readable again, for a sandbox that is stopped.
func (m *Manager) recallOutput(s *Sandbox) error {
	dir := filepath.Join(s.dir, outputDir)
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
	r := &running{
		id: about.Exec, s: s, params: api.ExecParams{Argv: about.Argv, Command: about.Command,
			Background: about.Background},
		exec: &guestapi.Exec{PID: about.PID}, start: about.Started, done: make(chan struct{}), verdict: about.Verdict,
		end:  guestapi.Event{Status: *about.ExitCode << 8}, // wait(2)
		took: time.Duration(about.DurationMS * float64(time.Millisecond)), io: &stdio{},
	}
	close(r.done)
	if about.TTY {
		r.params.Pty = &api.Pty{}
	}
	for i := range 2 {
		st, err := storedStream(filepath.Join(dir, strconv.Itoa(i)))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			r.io.forget()
			return err
		}
		r.io.streams = append(r.io.streams, st)
	}
	s.ended = append(s.ended, r)
	m.mu.Lock()
	m.execs[r.id] = r
	m.mu.Unlock()
	return nil
}

// recall is recallOutput where a sandbox is of use without.
func (m *Manager) recall(s *Sandbox) {
	if err := m.recallOutput(s); err != nil {
		m.cfg.Logger.Warn("what a stopped sandbox had written is not to be read", "sandbox", s.id, "err", err)
	}
}

// storedStream is a stream that is whole, in a file.
func storedStream(name string) (*stream, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &stream{
		file: f, layout: spool.LayoutOf(spoolSize), total: st.Size(), ended: true, grown: make(chan struct{}),
		closed: make(chan struct{}),
	}, nil
}

// endExecs waits for the ends of all commands of a sandbox whose PID 1 is gone. That is soon: a caller who does not
// read what a command has written is waited for no longer than relayGrace.
func (s *Sandbox) endExecs() {
	for _, r := range s.stopAll(errKilled) {
		<-r.done
	}
}
