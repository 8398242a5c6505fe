package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/shelf"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/files"
	"github.com/hutch-sh/hutch/runtime/meter"
)

// The folder of a stopped sandbox is on the shelf, and nothing of it is left elsewhere but another
// *Sandbox in its place, which knows the record and the folder and has no process. See DESIGN.md, "Stop and start".

// StopSandbox ends all processes of a sandbox and keeps the rest for StartSandbox.
func (m *Manager) StopSandbox(ctx context.Context, p api.StopParams) (api.StopResult, error) {
	if err := p.Validate(); err != nil {
		return api.StopResult{}, err
	}
	grace := stopGrace
	if p.TimeoutS != nil {
		grace = seconds(*p.TimeoutS)
	}
	s, done, err := m.takeTurn(ctx, p.Sandbox)
	if err != nil {
		return api.StopResult{}, err
	}
	defer done()
	if !s.stopped {
		m.audit(ctx, s, "", api.AuditStopped, nil, 0)
	}
	s, ended, err := m.stopAndKeep(ctx, s, grace, "stopped")
	if err != nil {
		return api.StopResult{}, err
	}
	return api.StopResult{Sandbox: s.Record(), Ended: ended}, nil
}

// takeTurn finds a sandbox whose turn to be stopped, started or removed the caller has until done is called.
func (m *Manager) takeTurn(ctx context.Context, ref string) (s *Sandbox, done func(), err error) {
	for {
		if s, err = m.find(ref); err != nil {
			return nil, nil, err
		}
		if done, err = s.turn.take(ctx); err != nil {
			return nil, nil, err
		}
		m.mu.Lock()
		same := m.byID[s.id] == s
		m.mu.Unlock()
		if same {
			return s, done, nil
		}
		done() // it was stopped or started meanwhile: there is another
	}
}

// stopAndKeep is Stop for whoever has the turn; it returns what is in the place of s.
func (m *Manager) stopAndKeep(ctx context.Context, s *Sandbox, grace time.Duration, reason string) (*Sandbox, api.Ended,
	error) {
	ended := s.endedWith()
	if s.stopped {
		return s, ended, nil
	}
	switch s.state() {
	case api.Creating, api.Waiting:
		return nil, ended, s.mustRun()
	case api.Running, api.Paused:
		if err := m.stop(ctx, s, grace, reason); err != nil {
			return nil, ended, err
		}
	}
	stopped, err := m.keepStopped(s, reason)
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
func (m *Manager) keepStopped(s *Sandbox, reason string) (_ *Sandbox, err error) {
	defer func() {
		if err != nil && api.ErrorCode(err) == api.Internal {
			err = api.Errorf(api.Internal, "keep the files of sandbox %s: %w", s.id, err).
				WithHint("is the disk full? its processes have ended; try again, or remove it: hutch rm %s", s.id)
		}
	}()
	<-s.exited
	out, err := s.admission.take(context.Background()) // whoever looks at its files is done
	if err != nil {
		return nil, err
	}
	defer out()
	m.quiet(s)
	lock, err := shelf.Hold(s.dir)
	if err != nil {
		return nil, err
	}
	if !shelf.IsMarked(s.dir) { // else an earlier try came as far
		if err := m.pinAndKeep(s, reason); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	// From here on the folder is put on the shelf whatever happens, by the next hutchd if need be.
	s.ports.AuditEnd(portsBox{m, s, 0})
	destroyed := errors.Join(m.closePorts(s), s.destroy())
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
	p, err := m.stoppedSandbox(s.id, lock)
	if err != nil {
		return nil, err
	}
	p.turn = s.turn.shared() // the caller has it until all is done that it wants of p
	m.exchange(s, p)
	m.recall(p)
	m.watchStopped(p)
	return p, nil
}

// pinAndKeep makes the folder one that belongs on the shelf, with its image, or fails and leaves it what it was.
func (m *Manager) pinAndKeep(s *Sandbox, reason string) (err error) {
	if s.folders.IDs, err = s.foldersNow(); err != nil {
		return err
	}
	if err := m.pin(s); err != nil {
		return err
	}
	if err := m.keepFiles(s, reason); err != nil {
		return errors.Join(err, m.cfg.Images.Unpin(boxPin(s.id)))
	}
	return nil
}

// keepFiles makes the folder one that belongs on the shelf.
func (m *Manager) keepFiles(s *Sandbox, reason string) error {
	if fsDir := filepath.Join(s.dir, "fs"); meter.IsOwn(fsDir) { // a tmpfs, which goes
		if err := copyTree(context.Background(), fsDir, filepath.Join(s.dir, ownCopy)); err != nil {
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
	return diskError("mark the sandbox's folder", os.WriteFile(filepath.Join(s.dir, shelf.Mark), nil, 0o600))
}

// ownCopy is what was in a file system of the sandbox's own.
const ownCopy = "fs.copy"

// copyTree copies a folder to a new one.
func copyTree(ctx context.Context, from, to string) error {
	if err := rmtree.Path(to); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return diskError("copy files", err)
	}
	_, err := copyInto(ctx, from, to)
	return err
}

func boxPin(id string) string { return "box-" + id }

// pin keeps the layers of the image where they are its own; those of the machine are made again.
func (m *Manager) pin(s *Sandbox) error {
	if s.root.Ref == hostImage {
		return nil
	}
	return m.cfg.Images.Pin(boxPin(s.id), s.root.Lower)
}

// quiet stops the clocks and workers of a sandbox that goes.
func (m *Manager) quiet(s *Sandbox) {
	s.mu.Lock()
	for _, t := range []*time.Timer{s.idle, s.ttl, s.claim} {
		if t != nil {
			t.Stop()
		}
	}
	s.mu.Unlock()
	s.keepRest()
	s.files.Close()
}

// shelve puts a folder on the shelf that belongs there. Nothing is mounted in it any more.
func (m *Manager) shelve(dir, id string) error {
	if err := tidyShelved(dir); err != nil {
		return err
	}
	if err := m.cfg.Shelf.Put(dir, id); err != nil {
		return fmt.Errorf("keep the sandbox's folder: %w", err)
	}
	return nil
}

// tidyShelved takes away what is made again at the next start, which fails where it is there already: who was killed
// over a stop or a start has left all of it, and Rescue moves it along.
func tidyShelved(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("keep the sandbox's folder: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(shelved, e.Name()) {
			if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, ownCopy)); err != nil {
		return nil
	}
	return errors.Join(removeAll(filepath.Join(dir, "fs")),
		os.Rename(filepath.Join(dir, ownCopy), filepath.Join(dir, "fs")))
}

// shelved is what of a sandbox's folder is kept: creation.folders says what it is.
var shelved = []string{"record.json", "fs", ownCopy, shelf.Mark, "names", "wanted", undoDir, files.PatchesDir,
	outputDir}

// stoppedSandbox is a sandbox on the shelf. It owns the lock.
func (m *Manager) stoppedSandbox(id string, lock *os.File) (_ *Sandbox, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("stopped sandbox %s: %w", id, err), lock.Close())
		}
	}()
	dir := m.cfg.Shelf.Box(id)
	if err := tidyShelved(dir); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "record.json"))
	if err != nil {
		return nil, err
	}
	from, err := readSaved(data)
	if err != nil || from.Root == nil || from.Record.ID != id {
		return nil, fmt.Errorf("record.json is not one: %w", cmp.Or(err, errNotRecord))
	}
	s := m.newSandbox(from.Record, from.Spec, from.User)
	s.dir, s.cgroup, s.grouped, s.stopped = dir, "", false, true
	s.root, s.templated, s.layers, s.base = from.Root, from.Template, from.Layers, from.Base
	s.folders.IDs = from.Folders
	close(s.exited)
	s.root.Release = func() {}
	s.record.State, s.record.Kept, s.record.PID = api.Stopped, true, 0
	if s.record.Network.Mode != api.NetNone {
		if err := s.seen.Recall(s.wantedFile()); err != nil {
			return nil, err
		}
	}
	s.next = from.Next
	if err := m.rollForward(s); err != nil {
		return nil, err
	}
	release := m.Workspaces.HoldVolumes(workspaceBox{m, s})
	s.lock = lock
	s.destroy = sync.OnceValue(func() error {
		err := m.cfg.Shelf.Remove(id)
		return errors.Join(err, m.cfg.Images.Unpin(boxPin(id)), release(), lock.Close(), m.collectOf(s.layers))
	})
	s.release = sync.OnceValue(func() error { return errors.Join(release(), lock.Close()) })
	return s, nil
}

// ownShelf says that the shelf is in memory, and so goes with this daemon.
func (m *Manager) ownShelf() bool { return filepath.Dir(m.cfg.Shelf.Dir()) == m.cfg.Dir }

// tidyPins ends the pins of what a daemon was killed over: it had pinned an image, and kept nothing.
func (m *Manager) tidyPins() error {
	if m.ownShelf() { // there may be others that this daemon cannot look into
		return nil
	}
	all, err := m.cfg.Shelf.Lock()
	if err != nil {
		return err
	}
	defer all.Close()
	pins, err := m.cfg.Images.Pins()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range pins {
		var places []string
		if id, ok := strings.CutPrefix(name, boxPin("")); ok {
			homes, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(m.cfg.Dir)), "*", "sandboxes", id))
			errs = append(errs, err)
			places = append(homes, m.cfg.Shelf.Box(id))
		} else if id, ok := strings.CutPrefix(name, snapshotPin("")); ok {
			places = []string{m.cfg.Shelf.Snapshot(id)}
		} else {
			continue
		}
		if !slices.ContainsFunc(places, func(at string) bool { _, err := os.Lstat(at); return err == nil }) {
			errs = append(errs, m.cfg.Images.Unpin(name))
		}
	}
	return errors.Join(errs...)
}

// closeShelf ends the pins of what goes with this daemon.
func (m *Manager) closeShelf() error {
	if !m.ownShelf() {
		return nil
	}
	ids, err := m.cfg.Shelf.Snapshots()
	for _, id := range ids {
		err = errors.Join(err, m.cfg.Images.Unpin(snapshotPin(id)))
	}
	return err
}

// exchange puts another object in the place of a sandbox.
func (m *Manager) exchange(old, s *Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byID[s.id] = s; s.name != "" && (m.byName[s.name] == nil || m.byName[s.name] == old) {
		m.byName[s.name] = s
	}
	if s.spec.Scope != nil {
		if sc := m.scopeOf(keyOf(s.user, *s.spec.Scope)); sc.s == nil || sc.s == old {
			sc.s = s
		}
	}
	m.lastBusy = time.Now()
}

// watchStopped removes a stopped sandbox when its time is over, if that is what it is to end with.
func (m *Manager) watchStopped(s *Sandbox) {
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
	s.setTTL(m, *until)
}

// adoptStopped lists the stopped sandboxes that no other daemon does. A daemon that removes everything in its end has
// none of others'.
func (m *Manager) adoptStopped() error {
	if m.cfg.Ephemeral && !m.ownShelf() {
		return nil
	}
	if err := m.tidyPins(); err != nil {
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
			s, err = m.stoppedSandbox(id, lock)
		}
		if err != nil {
			m.cfg.Logger.Error("take over a stopped sandbox; it stays where it is", "sandbox", id, "err", err)
			continue
		}
		m.exchange(nil, s)
		m.recall(s)
		m.watchStopped(s)
	}
	return nil
}
