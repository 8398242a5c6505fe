package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/meter"
)

// The folder of a stopped sandbox is on the shelf, and nothing of it is left elsewhere but another
// *Sandbox in its place, which knows the record and the folder and has no process. See DESIGN.md, "Stop and start".

// stopAndKeep is Stop, and returns what is in the place of the sandbox.
func (b keepBox) stopAndKeep(ctx context.Context, grace time.Duration, reason string) (*Sandbox, api.Ended, error) {
	s := b.s
	ended := s.endedWith()
	if s.stopped {
		return s, ended, nil
	}
	switch s.state() {
	case api.Creating, api.Waiting:
		return nil, ended, s.mustRun()
	case api.Running, api.Paused:
		if err := b.stop(ctx, grace, reason); err != nil {
			return nil, ended, err
		}
	}
	stopped, err := b.keepStopped(reason)
	return stopped, ended, err
}

// endedNote is for people.
const endedNote = "files are kept, processes are not: commands, shells and the contexts of code.run have ended"

// endedWith is what ends with the processes of the sandbox.
func (s *Sandbox) endedWith() api.Ended {
	e := api.Ended{Note: endedNote}
	e.Execs, e.Shells, e.Contexts = s.execs.Names()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.exposed {
		e.Ports = append(e.Ports, api.EndedPort{Port: p.Port, Address: p.Address, Token: p.Token != ""})
	}
	return e
}

// keepStopped puts a sandbox that has ended on the shelf. The caller has its turn.
func (b keepBox) keepStopped(reason string) (_ *Sandbox, err error) {
	m, s := b.m, b.s
	defer func() {
		if err != nil && api.ErrorCode(err) == api.Internal {
			err = api.Errorf(api.Internal, "keep the files of sandbox %s: %w", s.id, err).
				WithHint("is the disk full? its processes have ended; try again, or remove it: hutch rm %s", s.id)
		}
	}()
	<-s.exited
	out, err := s.gate.Take(context.Background()) // whoever looks at its files is done
	if err != nil {
		return nil, err
	}
	defer out()
	s.quiet()
	lock, err := shelf.Hold(s.dir)
	if err != nil {
		return nil, err
	}
	if !shelf.IsMarked(s.dir) { // else an earlier try came as far
		if err := b.pinAndKeep(reason); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	// From here on the folder is put on the shelf whatever happens, by the next hutchd if need be.
	s.ports.AuditEnd(portsBox{m, s, 0})
	destroyed := errors.Join(closePorts(m.cfg.Launcher, s), s.destroy())
	m.Execs.Forget(s.execs)
	s.destroy = func() error { // again, should somebody try again
		return errors.Join(m.takeDown(context.Background(), s.id), m.removeFolder(s))
	}
	if _, err := os.Lstat(s.dir); err == nil {
		return nil, errors.Join(destroyed, lock.Close())
	}
	if destroyed != nil { // the files are safe
		m.cfg.Logger.Error("give back what a stopped sandbox had", "sandbox", s.id, "err", destroyed)
	}
	p, err := keepHost{m}.stopped(s.id, lock)
	if err != nil {
		return nil, err
	}
	p.turn = s.turn // the caller has it until all is done that it wants of p
	m.exchange(s, p)
	execBoxOf(m, p).recall()
	keepBox{m, p}.watchStopped()
	return p, nil
}

// pinAndKeep makes the folder one that belongs on the shelf, with its image, or fails and leaves it what it was.
func (b keepBox) pinAndKeep(reason string) (err error) {
	m, s := b.m, b.s
	if s.folders.IDs, err = s.foldersNow(); err != nil {
		return err
	}
	if err := m.Keep.Pin(s.id, s.root); err != nil {
		return err
	}
	if err := b.keepFiles(reason); err != nil {
		return errors.Join(err, m.Keep.Unpin(s.id))
	}
	return nil
}

// keepFiles makes the folder one that belongs on the shelf.
func (b keepBox) keepFiles(reason string) error {
	m, s := b.m, b.s
	if meter.IsOwn(filepath.Join(s.dir, "fs")) { // a tmpfs, which goes
		if err := m.Keep.CopyOwn(s.dir); err != nil {
			return err
		}
	}
	s.execs.End()
	if err := s.execs.SaveLast(filepath.Join(s.dir, outputDir)); err != nil {
		m.cfg.Logger.Warn("keep what the last command has written; the rest of the sandbox is kept", "sandbox", s.id,
			"err", err)
	}
	m.mu.Lock() // the end of a connection looks at owners
	s.mu.Lock()
	s.spec.Owner = "" // whoever stops it wants it kept, and not with a connection
	s.exposed = nil   // they are listened at by nobody
	s.record.State, s.record.Kept, s.record.PID, s.record.Paused = api.Stopped, true, 0, nil
	s.record.Reason = orElse(s.record.Reason, reason)
	s.mu.Unlock()
	m.mu.Unlock()
	if err := s.saveKept(); err != nil {
		return err
	}
	return m.Keep.Mark(s.dir)
}

// quiet stops the clocks and workers of a sandbox that goes.
func (s *Sandbox) quiet() {
	s.mu.Lock()
	for _, t := range []*time.Timer{s.idle, s.ttl, s.claim} {
		if t != nil {
			t.Stop()
		}
	}
	s.mu.Unlock()
	s.gate.End()
	s.files.Close()
}

// stopped is a sandbox on the shelf. It owns the lock.
func (h keepHost) stopped(id string, lock *os.File) (_ *Sandbox, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("stopped sandbox %s: %w", id, err), lock.Close())
		}
	}()
	m := h.m
	dir := m.cfg.Shelf.Box(id)
	if err := m.Keep.Tidy(dir); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "record.json"))
	if err != nil {
		return nil, err
	}
	from, err := parseRecord(data, id)
	if err != nil {
		return nil, err
	}
	s := m.newSandbox(from.Record, from.Spec, from.User)
	s.dir, s.cgroup, s.grouped, s.stopped = dir, "", false, true
	s.root, s.templated, s.kept = from.Root, from.Template, from.files()
	s.folders.IDs = from.Folders
	close(s.exited)
	s.root.Release = func() {}
	s.record.State, s.record.Kept, s.record.PID = api.Stopped, true, 0
	if s.record.Network.Mode != api.NetNone {
		if err := s.seen.Recall(dir); err != nil {
			return nil, err
		}
	}
	if err := keep.RollForward(keepBox{m, s}); err != nil {
		return nil, err
	}
	release := m.Workspaces.HoldVolumes(workspaceBox{m, s})
	s.lock = lock
	s.destroy = sync.OnceValue(func() error {
		return errors.Join(m.Keep.Remove(id), release(), lock.Close(), m.Keep.CollectOf(s.kept.Layers))
	})
	s.release = sync.OnceValue(func() error { return errors.Join(release(), lock.Close()) })
	return s, nil
}

// watchStopped removes a stopped sandbox when its time is over, if that is what it is to end with.
func (b keepBox) watchStopped() {
	s := b.s
	until := s.Record().Expires
	if until == nil {
		return
	}
	if a := s.spec.TTLAction; a != "" && a != api.LifeRemove {
		s.mu.Lock()
		s.record.Expires = nil
		s.mu.Unlock()
		return
	}
	s.setTTL(b.m, *until)
}

// adopt lists the stopped sandboxes that no other daemon does. A daemon that removes everything in its end has
// none of others'.
func (h keepHost) adopt() error {
	m := h.m
	if m.cfg.Ephemeral && !m.Keep.Own() {
		return nil
	}
	if err := m.Keep.TidyPins(); err != nil {
		m.cfg.Logger.Warn("let go of images that nothing needs any more", "err", err)
	}
	ids, err := m.cfg.Shelf.Boxes()
	if err != nil {
		return fmt.Errorf("look for stopped sandboxes: %w", err)
	}
	for _, id := range ids {
		lock, err := shelf.Hold(m.cfg.Shelf.Box(id))
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue // another's, or it is being started
		}
		var s *Sandbox
		if err == nil {
			s, err = h.stopped(id, lock)
		}
		if err != nil {
			m.cfg.Logger.Error("take over a stopped sandbox; it stays where it is", "sandbox", id, "err", err)
			continue
		}
		m.exchange(nil, s)
		execBoxOf(m, s).recall()
		keepBox{m, s}.watchStopped()
	}
	return nil
}
