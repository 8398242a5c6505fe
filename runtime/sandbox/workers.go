package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

const (
	// workerIdle is how long a files worker lives without a call: starting one costs
	// two milliseconds, keeping it some megabytes.
	workerIdle = 10 * time.Second
	// maxWorkers bounds the workers of one sandbox, that is the users whose files are
	// used at the same time.
	maxWorkers = 8
)

// workers are the files workers of one sandbox, one for each user. They are no
// execs of anybody's: not listed, not counted, and gone with the sandbox.
type workers struct {
	mu     sync.Mutex
	byUser map[string]*worker
	closed bool
}

// worker is one process inside that serves files as one user. Its sandbox may do
// to it what it likes: then calls fail, and the next one starts another.
type worker struct {
	user  string
	ready chan struct{} // closed when the start has ended: err or client is set then
	err   error

	client *filesapi.Client
	exec   *guestapi.Exec
	failed []error // patches that it could not take back whole, set before ready is closed

	calls int // guarded by workers.mu, as idle
	idle  *time.Timer
}

// beginCall and endCall enclose a call: the sandbox is not idle meanwhile.
func (s *Sandbox) beginCall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.idle != nil {
		s.idle.Stop()
	}
}

func (s *Sandbox) endCall(m *Manager) {
	s.mu.Lock()
	s.calls--
	s.mu.Unlock()
	s.rearmIdle(m)
}

// mustRun refuses what needs a running sandbox.
func (s *Sandbox) mustRun() error {
	if s.state() == api.Running {
		return nil
	}
	if s.state() == api.Paused {
		return api.Errorf(api.Unavailable, "sandbox %s was paused meanwhile", s.id).
			WithHint("try again, which resumes it")
	}
	if r := s.Record(); r.State == api.Waiting {
		return api.Errorf(api.FailedPrecondition, "sandbox %s waits in pool %q", s.id, r.Pool).
			WithHint("take one out of the pool: hutch pool acquire %s", r.Pool)
	}
	if r := s.Record(); r.Kept || r.State == api.Stopped || r.State == api.Failed {
		return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", s.id, describe(r)).
			WithHint("go on with its files: hutch start %s; or remove it: hutch rm %s", s.id, s.id)
	}
	return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", s.id, describe(s.Record())).
		WithHint("create a new one, or remove it: hutch rm %s", s.id)
}

// worker returns the worker of a user, started if there is none. release must
// follow. The caller has entered the sandbox.
func (m *Manager) worker(ctx context.Context, s *Sandbox, user string) (*worker, error) {
	w, err := s.files.take(user, func(w *worker) {
		leave := s.again() // the caller may give up meanwhile
		m.watchers.Go(func() {
			defer leave()
			w.err = m.prepareWorker(s, w)
			close(w.ready)
		})
	})
	if err != nil {
		return nil, err
	}
	s.beginCall()
	select {
	case <-w.ready:
		err = w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		m.release(s, w)
		return nil, err
	}
	return w, nil
}

// take finds the worker of a user, or has one started; whoever asks meanwhile waits
// for the same.
func (ws *workers) take(user string, start func(*worker)) (*worker, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byUser[user]
	if w != nil && !w.gone() {
		if w.idle != nil {
			w.idle.Stop()
		}
		w.calls++
		return w, nil
	}
	if ws.closed {
		return nil, errRemoved
	}
	if w == nil && len(ws.byUser) == maxWorkers {
		return nil, api.Errorf(api.ResourceExhausted, "the files of this sandbox are in use as %d users", maxWorkers).
			WithField("user").WithHint("use fewer users at a time; one is free %v after its last call", workerIdle)
	}
	w = &worker{user: user, ready: make(chan struct{}), calls: 1}
	if ws.byUser == nil {
		ws.byUser = map[string]*worker{}
	}
	ws.byUser[user] = w
	start(w)
	return w, nil
}

// gone reports whether w has ended, or could not be started.
func (w *worker) gone() bool {
	select {
	case <-w.ready:
	default:
		return false
	}
	if w.err != nil {
		return true
	}
	select {
	case <-w.client.Dead():
		return true
	default:
		return false
	}
}

// startWorker asks PID 1 for a worker. What it may do is what any command of the
// user may: the same stub, capabilities, limits and seccomp filter.
func (m *Manager) startWorker(s *Sandbox, w *worker) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), killTimeout,
		api.Errorf(api.Unavailable, "the sandbox's init has not started a files worker within %v", killTimeout).
			WithHint("the sandbox is overloaded or paused; try again, or remove it"))
	defer cancel()
	ours, theirs, err := packet.Pair()
	if err != nil {
		return fmt.Errorf("start files worker: %w", err)
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		ours.Close()
		return fmt.Errorf("start files worker: %w", err)
	}
	defer null.Close()
	req := guestapi.Request{
		Worker: guestapi.WorkerFiles, User: w.user, Env: []string{"HOME=/"},
		Rlimits: []guestapi.Rlimit{{Resource: unix.RLIMIT_NPROC, Soft: s.nproc, Hard: s.nproc}},
	}
	if s.disk != nil && s.disk.bound().Bytes > 0 { // what is over it already is refused before: mayWrite
		size := uint64(s.disk.bound().Bytes)
		req.Rlimits = append(req.Rlimits, guestapi.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: size, Hard: size})
	}
	if req.Cgroup, err = m.groupOfWorkers(s); err != nil {
		ours.Close()
		return err
	}
	w.exec, err = s.guest.Start(ctx, req, []*os.File{theirs, null, null})
	if err != nil {
		ours.Close()
		_, err = notStarted(ctx, &running{}, err)
		return err
	}
	w.client = filesapi.NewClient(ours)
	return s.files.started(w)
}

// errRemoved refuses the files of a sandbox that goes.
var errRemoved = api.Errorf(api.FailedPrecondition, "the sandbox is being removed")

// started closes the channel of a worker that has come up too late.
func (ws *workers) started(w *worker) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return errors.Join(errRemoved, w.client.Close())
	}
	return nil
}

// prepareWorker starts a worker, whose first work is what others have left half done.
func (m *Manager) prepareWorker(s *Sandbox, w *worker) error {
	if err := m.startWorker(s, w); err != nil {
		return err
	}
	if err := m.settlePatches(s, w); err != nil {
		return errors.Join(err, w.client.Close())
	}
	return nil
}

// groupOfWorkers is the cgroup of all files workers of a sandbox. It lies beside PID 1's, so
// that whoever takes a worker over is frozen and killed with the sandbox.
func (m *Manager) groupOfWorkers(s *Sandbox) (string, error) {
	if !s.grouped {
		return "", nil
	}
	s.mu.Lock()
	name := s.workersGroup
	s.mu.Unlock()
	if name != "" {
		return name, nil
	}
	name = newID("files_") // another hutchd may have killed the one before
	if err := m.cfg.Cgroups.Make(s.cgroup, name, api.Limits{}); err != nil {
		return "", api.Errorf(api.ResourceExhausted, "%w", err).WithHint("allow more cgroups (cgroup.max.descendants)")
	}
	s.mu.Lock()
	s.workersGroup = name // of two that are made at once the later one goes on
	s.mu.Unlock()
	return name, nil
}

// release gives a worker back. The last one to do so starts the clock of its end.
func (m *Manager) release(s *Sandbox, w *worker) {
	s.files.mu.Lock()
	w.calls--
	switch known := s.files.byUser[w.user] == w; {
	case w.gone():
		if known {
			delete(s.files.byUser, w.user)
		}
		if w.err == nil && !s.files.closed {
			m.endWorker(w)
		}
	case w.calls == 0 && known:
		w.idle = time.AfterFunc(workerIdle, func() { m.idleWorker(s, w) })
	}
	s.files.mu.Unlock()
	s.endCall(m)
}

// idleWorker ends a worker that nobody has used for a while.
func (m *Manager) idleWorker(s *Sandbox, w *worker) {
	<-w.ready // since long: a start is bounded
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	if w.calls > 0 || s.files.closed {
		return // taken at the last moment
	}
	if s.files.byUser[w.user] == w {
		delete(s.files.byUser, w.user)
	}
	if w.err == nil {
		m.endWorker(w)
	}
}

// endWorker closes a worker's channel, upon which it ends; what is a worker no more
// is killed. The caller holds the lock of a sandbox that is not closed.
func (m *Manager) endWorker(w *worker) {
	_ = w.client.Close()
	m.watchers.Go(func() {
		if err := w.exec.Kill(); err != nil && !errors.Is(err, &api.Error{Code: api.Unavailable}) {
			m.cfg.Logger.Debug("end files worker", "err", err)
		}
	})
}

// endWorkers ends the workers of a sandbox that is paused, and with them the calls under
// way. None is being started.
func (s *Sandbox) endWorkers(m *Manager) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	if s.files.closed {
		return
	}
	for user, w := range s.files.byUser {
		if w.idle != nil {
			w.idle.Stop()
		}
		delete(s.files.byUser, user)
		if w.gone() {
			continue
		}
		m.endWorker(w)
	}
}

// closeWorkers ends the workers of a sandbox that is removed.
func (s *Sandbox) closeWorkers() {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.files.closed = true
	for _, w := range s.files.byUser {
		if w.idle != nil {
			w.idle.Stop()
		}
		select {
		case <-w.ready:
			if w.err == nil {
				_ = w.client.Close()
			}
		default: // startWorker closes it
		}
	}
}
