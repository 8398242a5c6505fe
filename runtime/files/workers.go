package files

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

const (
	// workerIdle is how long a files worker lives without a call: starting one costs
	// two milliseconds, keeping it some megabytes.
	workerIdle = 10 * time.Second
	// maxWorkers bounds the workers of one sandbox, that is the users whose files are
	// used at the same time.
	maxWorkers = 8
	// patience bounds how long PID 1 may take to start a worker, and a worker to take a patch back.
	patience = 10 * time.Second
)

// Workers are the files workers of one sandbox, one for each user. They are no
// execs of anybody's: not listed, not counted, and gone with the sandbox. The zero value has none.
type Workers struct {
	mu     sync.Mutex // guards what follows; never held over a call that blocks
	byUser map[string]*worker
	closed bool

	settled sync.Once // done once nothing is left half done by a hutchd before, or before a stop
}

// worker is one process inside that serves files as one user. Its sandbox may do
// to it what it likes: then calls fail, and the next one starts another.
type worker struct {
	user  string
	ready chan struct{} // closed when the start has ended: err or client is set then
	err   error

	client *filesapi.Client
	exec   Process
	failed []error // patches that it could not take back whole, set before ready is closed

	calls int // guarded by Workers.mu, as idle
	idle  *time.Timer
}

// worker returns the worker of a user, started if there is none. release must
// follow. The caller has entered the sandbox.
func (f *Files) worker(ctx context.Context, s Sandbox, user string) (*worker, error) {
	leave := s.Again() // the caller may give up before a start has ended
	w, fresh, err := f.take(s.Workers(), user, func(w *worker) {
		defer leave()
		w.err = f.prepareWorker(s, w)
		close(w.ready)
	})
	if !fresh {
		leave()
	}
	if err != nil {
		return nil, err
	}
	s.BeginCall()
	select {
	case <-w.ready:
		err = w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		f.release(s, w)
		return nil, err
	}
	return w, nil
}

// take finds the worker of a user; whoever asks while it starts waits for the same. If there is none a fresh one is
// begun, by start, in the background.
func (f *Files) take(ws *Workers, user string, start func(*worker)) (w *worker, fresh bool, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w = ws.byUser[user]
	switch {
	case w != nil && !w.gone():
		if w.idle != nil {
			w.idle.Stop()
		}
		w.calls++
		return w, false, nil
	case ws.closed:
		return nil, false, errRemoved
	case w == nil && len(ws.byUser) == maxWorkers:
		return nil, false,
			api.Errorf(api.ResourceExhausted, "the files of this sandbox are in use as %d users", maxWorkers).
				WithField("user").WithHint("use fewer users at a time; one is free %v after its last call", workerIdle)
	}
	w = &worker{user: user, ready: make(chan struct{}), calls: 1}
	if ws.byUser == nil {
		ws.byUser = map[string]*worker{}
	}
	ws.byUser[user] = w
	f.background.Go(func() { start(w) })
	return w, true, nil
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

// startWorker asks PID 1 for a worker.
func (f *Files) startWorker(s Sandbox, w *worker) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience,
		api.Errorf(api.Unavailable, "the sandbox's init has not started a files worker within %v", patience).
			WithHint("the sandbox is overloaded or paused; try again, or remove it"))
	defer cancel()
	ours, theirs, err := packet.Pair()
	if err != nil {
		return fmt.Errorf("start files worker: %w", err)
	}
	defer theirs.Close()
	if w.exec, err = s.StartWorker(ctx, w.user, theirs); err != nil {
		ours.Close()
		return err
	}
	w.client = filesapi.NewClient(ours)
	return s.Workers().started(w)
}

// errRemoved refuses the files of a sandbox that goes.
var errRemoved = api.Errorf(api.FailedPrecondition, "the sandbox is being removed")

// started closes the channel of a worker that has come up too late.
func (ws *Workers) started(w *worker) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return errors.Join(errRemoved, w.client.Close())
	}
	return nil
}

// prepareWorker starts a worker, whose first work is what others have left half done.
func (f *Files) prepareWorker(s Sandbox, w *worker) error {
	if err := f.startWorker(s, w); err != nil {
		return err
	}
	if err := f.settlePatches(s, w); err != nil {
		return errors.Join(err, w.client.Close())
	}
	return nil
}

// release gives a worker back. The last one to do so starts the clock of its end.
func (f *Files) release(s Sandbox, w *worker) {
	f.giveBack(s.Workers(), w)
	s.EndCall()
}

func (f *Files) giveBack(ws *Workers, w *worker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.calls--
	switch known := ws.byUser[w.user] == w; {
	case w.gone():
		if known {
			delete(ws.byUser, w.user)
		}
		if w.err == nil && !ws.closed {
			f.endWorker(w)
		}
	case w.calls == 0 && known:
		w.idle = time.AfterFunc(workerIdle, func() { f.idleWorker(ws, w) })
	}
}

// idleWorker ends a worker that nobody has used for a while.
func (f *Files) idleWorker(ws *Workers, w *worker) {
	<-w.ready // since long: a start is bounded
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.calls > 0 || ws.closed {
		return // taken at the last moment
	}
	if ws.byUser[w.user] == w {
		delete(ws.byUser, w.user)
	}
	if w.err == nil {
		f.endWorker(w)
	}
}

// endWorker closes a worker's channel, upon which it ends; what is a worker no more
// is killed. The caller holds the lock of a sandbox that is not closed.
func (f *Files) endWorker(w *worker) {
	_ = w.client.Close()
	f.background.Go(func() {
		if err := w.exec.Kill(); err != nil && !errors.Is(err, &api.Error{Code: api.Unavailable}) {
			f.log.Debug("end files worker", "err", err)
		}
	})
}

// End ends the workers of a sandbox that is paused, and with them the calls under way. None is being started.
func (f *Files) End(ws *Workers) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return
	}
	for user, w := range ws.byUser {
		if w.idle != nil {
			w.idle.Stop()
		}
		delete(ws.byUser, user)
		if w.gone() {
			continue
		}
		f.endWorker(w)
	}
}

// Close ends the workers of a sandbox that is removed. There are none from then on.
func (ws *Workers) Close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for _, w := range ws.byUser {
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

// Count is how many workers there are.
func (ws *Workers) Count() (n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byUser {
		if !w.gone() {
			n++
		}
	}
	return n
}
