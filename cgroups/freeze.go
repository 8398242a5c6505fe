package cgroups

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// InitGroup is the child of a sandbox's cgroup that PID 1 is in, alone. Beside cgroup v1 there is none: PID 1 is in the
// sandbox's own.
const InitGroup = "init"

// freezeRounds bounds how often new cgroups are looked for: they are made by hutchd
// itself, which makes none meanwhile.
const freezeRounds = 8

// Freeze stops every process of a sandbox but PID 1, which must go on answering, and
// returns when they stand still (cgroups(7), cgroup.freeze, Linux 5.2). A frozen process
// can still be killed, and so can its cgroup. One that is in an uninterruptible wait in
// the kernel cannot be frozen before that has ended: then ctx does, and the error says
// so. What was frozen by then stays so until Thaw.
func (x *Execs) Freeze(ctx context.Context, sandbox string) error {
	var done []string
	for range freezeRounds {
		names, err := x.below(sandbox)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(done, name) })
		if len(names) == 0 {
			return nil
		}
		for _, name := range names { // all of them first: they then come to a halt together
			if err := setFrozen(x.dir(sandbox, name), "1"); err != nil {
				return err
			}
		}
		for _, name := range names {
			if err := awaitFrozen(ctx, x.dir(sandbox, name)); err != nil {
				return err
			}
		}
		done = append(done, names...)
	}
	return fmt.Errorf("freeze cgroup %s: new groups turn up all the time", sandbox)
}

// Thaw lets the processes of a sandbox go on.
func (x *Execs) Thaw(sandbox string) error {
	names, err := x.below(sandbox)
	for _, name := range names {
		err = errors.Join(err, setFrozen(x.dir(sandbox, name), "0"))
	}
	return err
}

// below are the cgroups of a sandbox that are not PID 1's.
func (x *Execs) below(sandbox string) ([]string, error) {
	entries, err := os.ReadDir(x.dir(sandbox, ""))
	if err != nil {
		return nil, fmt.Errorf("list cgroups of a sandbox: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != InitGroup {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// gone says that a cgroup was removed, as those are that their execs have left empty.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

func setFrozen(dir, value string) error {
	if err := write(filepath.Join(dir, "cgroup.freeze"), value); err != nil && !gone(err) {
		return err
	}
	return nil
}

// awaitFrozen waits until a cgroup's processes stand still; an empty one does at once.
func awaitFrozen(ctx context.Context, dir string) error {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("freeze cgroup: %w", err)
	}
	defer events.Close()
	err = awaitEvent(ctx, events, "frozen", 1)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("a process of %s is in an uninterruptible wait and cannot be stopped: %w", dir, err)
	}
	return err
}

// awaitEvent waits until key has the value in a cgroup.events file, or for the end of ctx; a cgroup that is
// removed meanwhile is as good. A kernfs file reports a change with POLLPRI.
func awaitEvent(ctx context.Context, events *os.File, key string, want uint64) error {
	there, err := hasEvent(events, key, want)
	if there || err != nil {
		return err
	}
	ended, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", events.Name(), err)
	}
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		_, _ = unix.Write(ended, binary.NativeEndian.AppendUint64(nil, 1))
	})
	defer func() {
		if !stop() {
			<-told
		}
		_ = unix.Close(ended)
	}()
	for {
		if there, err = hasEvent(events, key, want); there || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s to say %s %d: %w", events.Name(), key, want, context.Cause(ctx))
		}
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}, {Fd: int32(ended), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for %s: %w", events.Name(), err)
		}
	}
}

// hasEvent says whether key has the value, or the cgroup is gone.
func hasEvent(events *os.File, key string, want uint64) (bool, error) {
	buf := make([]byte, 128)
	n, err := events.ReadAt(buf, 0)
	if errors.Is(err, unix.ENODEV) {
		return true, nil
	}
	if n == 0 {
		return false, fmt.Errorf("read %s: %w", events.Name(), err)
	}
	got, ok := flatKey(string(buf[:n]), key)
	return ok && got == want, nil
}

// KillAll kills every process of a sandbox but PID 1, and waits until they are gone or ctx
// ends. None of the cgroups that there are can be used again.
func (x *Execs) KillAll(ctx context.Context, sandbox string) error {
	names, err := x.below(sandbox)
	for _, name := range names { // all of them first
		if kerr := write(filepath.Join(x.dir(sandbox, name), "cgroup.kill"), "1"); kerr != nil && !gone(kerr) {
			err = errors.Join(err, kerr)
		}
	}
	for _, name := range names {
		events, oerr := os.Open(filepath.Join(x.dir(sandbox, name), "cgroup.events"))
		if gone(oerr) {
			continue
		}
		if oerr == nil {
			oerr = awaitEvent(ctx, events, "populated", 0)
			_ = events.Close()
		}
		err = errors.Join(err, oerr)
	}
	return err
}
