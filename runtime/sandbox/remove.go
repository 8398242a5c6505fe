package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
)

// A removal has two parts. Before the reply every process is dead, and whatever others may ask for next is free: the
// name, the scope, the quota, ports, volumes, the image, and the record, without which the next hutchd takes the rest
// for something to remove. Mounts, cgroup and folder go behind the reply: nobody can reach them any more. See
// DESIGN.md, "Remove".

// maxBehind is how many sandboxes may be gone for everybody, and still have their mounts and cgroup. Who removes one
// more waits, so that no more is there than what was allowed and these.
const maxBehind = 16

// backlog is what is removed that nobody sees any more.
type backlog struct {
	removals crew
	counted  atomic.Int64  // of removals, those of sandboxes and of folders
	behind   chan struct{} // a token of each sandbox whose mounts and cgroup are being removed: see forget
	folders  chan struct{} // and of each folder
}

func newBacklog() backlog {
	return backlog{behind: make(chan struct{}, maxBehind), folders: make(chan struct{}, 2)}
}

// begin counts a removal until done is called.
func (b *backlog) begin() {
	b.removals.Add()
	b.counted.Add(1)
}

func (b *backlog) done() {
	b.counted.Add(-1)
	b.removals.Done()
}

// afterwards removes a folder in the background, beside one other.
func (b *backlog) afterwards(remove func()) {
	b.begin()
	go func() {
		defer b.done()
		b.folders <- struct{}{}
		defer func() { <-b.folders }()
		remove()
	}()
}

// Removing counts the removals that go on behind their replies.
func (b *backlog) Removing() int { return int(b.counted.Load()) }

// Settle waits until what is removed behind replies is gone, or ctx ends. The next hutchd would find those sandboxes,
// and wait for owners who have long had their reply.
func (b *backlog) Settle(ctx context.Context) { b.removals.Wait(ctx) }

// lease notes what has to be given back, once, before anybody hears that the sandbox is removed. What it returns
// belongs to the undo.
func (s *Sandbox) lease(giveBack func() error) func() error {
	giveBack = sync.OnceValue(giveBack)
	s.leases = append(s.leases, giveBack)
	return giveBack
}

// letGo gives back all leases, the last one first.
func (s *Sandbox) letGo() error {
	var errs []error
	for _, giveBack := range slices.Backward(s.leases) {
		errs = append(errs, giveBack())
	}
	return errors.Join(errs...)
}

// Remove kills a sandbox and deletes its record and files.
func (m *Manager) Remove(ctx context.Context, ref string) (api.KillResult, error) {
	s, err := m.findStarted(ctx, ref)
	if err != nil {
		return api.KillResult{}, err
	}
	m.audit(ctx, s, "", api.AuditRemove, nil, 0)
	res, err := m.kill(ctx, s, "removed")
	if err != nil {
		return res, err
	}
	if err := m.forget(s); err != nil {
		return res, err
	}
	if m.of(s.id) != nil { // it was stopped meanwhile, or started
		return m.Remove(ctx, s.id)
	}
	return res, nil
}

// forget takes s, whose processes are dead, out of the maps and undoes what create did, as much of it as nobody has to
// wait for behind its back. The first caller does the work; others return at once, and so do all when another has taken
// its place.
func (m *Manager) forget(s *Sandbox) error {
	done, ok, err := m.withdraw(s)
	if !ok {
		return err
	}
	return m.dismantle(s, done)
}

// withdraw takes s out of the maps, and reports whether it was there: then dismantle must follow, and gets done.
func (m *Manager) withdraw(s *Sandbox) (done func(), ok bool, err error) {
	done, err = s.turn.Take(context.Background())
	if err != nil {
		return nil, false, err
	}
	m.behind <- struct{}{}
	if !m.takeOut(s) {
		<-m.behind
		done()
		return nil, false, nil
	}
	return done, true, nil
}

// dismantle gives back and removes what s, which nobody finds any more and whose processes are dead, has had.
func (m *Manager) dismantle(s *Sandbox, done func()) (err error) {
	defer done()
	s.quiet()
	err = m.unmark(s)
	// what has a mark is put on the shelf, and others may look for it there
	later := !s.stopped && !shelf.IsMarked(s.dir)
	if later {
		err = errors.Join(err, s.deleteRecord())
	}
	err = errors.Join(err, closePorts(m.cfg.Launcher, s), s.letGo())
	if !later {
		err = errors.Join(err, s.destroy())
	}
	m.Execs.Forget(s.execs)
	s.mu.Lock()
	m.stateChanged(s, api.StateRemoved, "")
	s.mu.Unlock()
	end := func() {
		<-m.behind
		m.done()
	}
	if later {
		go func() {
			defer end()
			if err := s.destroy(); err != nil {
				m.cfg.Logger.Error("remove sandbox", "sandbox", s.id, "err", err)
			}
		}()
	} else {
		end()
	}
	if err != nil {
		m.cfg.Logger.Error("remove sandbox", "sandbox", s.id, "err", err)
		return api.Errorf(api.Internal, "sandbox %s is gone, but not all of it could be removed: %w", s.id, err).
			WithHint("hutch gc sweeps what is left")
	}
	return nil
}

// unmark has the folder of a sandbox go with it that was to be stopped and could not be. In its end the daemon removes
// none of those.
func (m *Manager) unmark(s *Sandbox) error {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if s.stopped || closed || !shelf.IsMarked(s.dir) {
		return nil
	}
	return m.Keep.Unmark(s.dir, s.id)
}

// removalPause is how long a removal behind a reply leaves the CPUs to whom the reply has woken.
const removalPause = 2 * time.Millisecond

// removeAfter removes s behind a reply, in which nobody finds it any more, and all is free that others may ask for. Of
// its processes at most PID 1 is left (leftNothing), and ends behind the reply, too. sent calls what it is given when
// the reply is written, or cannot be. A caller that does not read is not waited for: meanwhile the removal counts in
// maxBehind, which is there for all.
func (m *Manager) removeAfter(s *Sandbox, sent func(func())) error {
	m.audit(context.Background(), s, "", api.AuditRemove, nil, 0)
	done, ok, err := m.withdraw(s)
	if !ok {
		return err // others are removing it, or have
	}
	s.quiet()
	if err := errors.Join(closePorts(m.cfg.Launcher, s), s.letGo()); err != nil {
		m.cfg.Logger.Error("remove sandbox", "sandbox", s.id, "err", err)
	}
	over, cancel := context.WithTimeout(m.ctx, api.RunReplyPatience)
	context.AfterFunc(over, func() {
		if _, err := m.kill(context.Background(), s, "removed"); err != nil {
			m.cfg.Logger.Error("kill sandbox", "sandbox", s.id, "err", err)
		}
		_ = m.dismantle(s, done) // logged there
	})
	sent(func() { time.AfterFunc(removalPause, cancel) })
	return nil
}

// takeOut takes s out of the maps, and reports whether it was there. Its removal counts from then on.
func (m *Manager) takeOut(s *Sandbox) bool {
	leavePool(m.Pools, s)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byID[s.id] != s {
		return false
	}
	m.begin()
	m.registry.remove(s)
	m.unscope(s)
	return true
}

// deleteRecord removes the record: without it whatever is left of the sandbox is nothing to the next hutchd but
// something to remove.
func (s *Sandbox) deleteRecord() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.struck = true
	if err := os.Remove(filepath.Join(s.dir, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the sandbox's record: %w", err)
	}
	return nil
}

// removeFolder removes the sandbox's folder; of one that has lived in the background, because what it has written
// can be a lot, and ext4 takes milliseconds for a few files.
func (m *Manager) removeFolder(s *Sandbox) error {
	if shelf.IsMarked(s.dir) {
		return m.Keep.Shelve(s.dir, s.id)
	}
	if s.destroy == nil {
		return removeAll(s.dir)
	}
	if err := s.deleteRecord(); err != nil {
		return err
	}
	m.afterwards(func() { // by forget, which counts as well
		if err := removeAll(s.dir); err != nil {
			m.cfg.Logger.Error("remove sandbox", "sandbox", s.id, "err", err)
		}
	})
	return nil
}
