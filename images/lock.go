package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// flight is one piece of work in progress in this process.
type flight struct {
	done chan struct{} // closed when the work ended
}

// acquire makes the caller the only one of this process that works on key. It
// waits for another one to finish, or for ctx. The returned function ends the
// caller's turn.
func (f *flights) acquire(ctx context.Context, key string) (func(), error) {
	for {
		f.mu.Lock()
		other, busy := f.m[key]
		if !busy {
			if f.m == nil {
				f.m = make(map[string]*flight)
			}
			mine := &flight{done: make(chan struct{})}
			f.m[key] = mine
			f.mu.Unlock()
			return func() { f.release(key, mine) }, nil
		}
		f.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (f *flights) release(key string, mine *flight) {
	f.mu.Lock()
	delete(f.m, key)
	f.mu.Unlock()
	close(mine.done)
}

// lockUnit makes the caller the only goroutine of all processes that makes a
// unit. The returned function ends that.
func (s *folder) lockUnit(ctx context.Context, name string) (func(), error) {
	release, err := s.pulls.acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	unlock, err := s.lockFile(ctx, path.Base(name))
	if err != nil {
		release()
		return nil, err
	}
	return func() { unlock(); release() }, nil
}

// lockFile takes the lock locks/<name> against other processes, waiting until
// ctx ends. The returned function releases it. The lock files are empty and
// stay: removing a lock file that another process waits for would split it.
func (s *folder) lockFile(ctx context.Context, name string) (func(), error) {
	p := filepath.Join(s.path(locksDir), name)
	f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	switch err := flockNow(f, unix.LOCK_EX); {
	case err == nil:
		return func() { _ = f.Close() }, nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("lock %s: %w", p, err), f.Close())
	}
	// flock(2) cannot be interrupted by a context, so the wait has a goroutine
	// of its own. It owns the file until it has handed over the lock; when
	// nobody wants it any more it gives it back and ends.
	got := make(chan error) // unbuffered: a send means it was received
	go func() {
		err := flockWait(f)
		select {
		case got <- err:
		case <-ctx.Done():
			_ = f.Close()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", p, err), f.Close())
		}
		return func() { _ = f.Close() }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func flockWait(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
