// Package bootstrap is the monitor's side of hutch-launch: it decides the id
// maps of the daemon's user namespace, starts hutch-launch in it and tells it
// what to start. It links neither libcontainer nor cgo.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Options is what Start needs. All files stay the caller's and may be closed
// when Start returns.
type Options struct {
	// Binary is hutch-launch, open for reading. It runs from a sealed copy, so
	// that no sandbox can reach the file (CVE-2019-5736) and an upgrade does not
	// disturb it.
	Binary *os.File
	// IDMap is the user namespace, see PlanIDMap.
	IDMap IDMap
	// Boot is sent as it is, but for SetGroups, which follows from IDMap, and Keep,
	// which follows from Socket. The daemon's uid 0 (the first of IDMap) must be able to
	// walk to Boot.Mount, and the content of StateDir must be its own.
	Boot launchapi.Boot
	// Init is hutch-init.
	Init *os.File
	// Socket is bound, to Boot.Socket, and waits for the monitors that take over when the
	// caller has died (see Attach); nil makes hutch-launch end with the caller.
	Socket *os.File
	// Hold stays open for as long as hutch-launch lives.
	Hold []*os.File
	// Stderr is hutch-launch's and the daemon's standard error; nil discards it.
	Stderr *os.File
	// Env is hutch-launch's own environment, normally empty.
	Env []string
}

// Launcher is a running hutch-launch.
type Launcher struct {
	// PID is hutch-launch's, in the caller's pid namespace.
	PID int

	method Method
	pidfd  *os.File
	proc   *os.Process // nil when another process started it
	conn   *packet.Conn
	wait   func() (code int, err error)
}

// Wait waits until hutch-launch has ended, and with it every sandbox and all its
// mounts. Its exit code is hutchd's, 128+n after death by signal n, and 0 where another
// process started it. It may be called more than once.
func (l *Launcher) Wait() (code int, err error) { return l.wait() }

// endTimeout bounds how long hutch-launch may take to end: it destroys every sandbox
// first. One that is killed takes them along, and leaves folders and cgroups to sweeps.
const endTimeout = 40 * time.Second

// End asks for what Close does, and does not wait for it.
func (l *Launcher) End() {
	_ = l.conn.SetWriteDeadline(time.Now().Add(time.Second)) // it may hang
	_ = l.conn.Send(launchapi.Order{End: true})              // or have ended
}

// Close ends hutch-launch, hutchd and all sandboxes and waits for that. It
// releases the Launcher's fds.
func (l *Launcher) Close() error {
	l.End()
	err := l.conn.Close()
	late := time.AfterFunc(endTimeout, func() { _ = sys.KillPidfd(l.pidfd) })
	defer late.Stop()
	_, werr := l.wait()
	return errors.Join(err, werr, l.pidfd.Close())
}

// Leave ends hutchd and releases the Launcher's fds. A hutch-launch with sandboxes and
// a Socket waits for the next monitor; any other ends, for which Leave does not wait.
func (l *Launcher) Leave() error { return errors.Join(l.conn.Close(), l.pidfd.Close()) }

// Start starts hutch-launch in a user and mount namespace of its own and writes the
// id maps. ctx bounds the start only. Nothing is left running when Start fails.
func Start(ctx context.Context, o Options) (_ *Launcher, err error) {
	var undo cleanup.Stack
	defer undo.Run(&err)
	l, err := spawn(o)
	if err != nil {
		return nil, err
	}
	undo.Add(func() error {
		// It may not have got as far as noticing that its channel is closed.
		_ = l.proc.Kill()
		_ = l.Close() // the reason is in err already
		return nil
	})
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer stop()

	if err := o.IDMap.write(ctx, l.PID); err != nil {
		if gone, perr := sys.HasExited(l.pidfd); perr == nil && gone {
			return nil, l.died(ctx, io.EOF) // a dead process takes no maps
		}
		return nil, err
	}
	boot := o.Boot
	boot.SetGroups = o.IDMap.Method != MethodSelf
	boot.Keep = o.Socket != nil
	files := []*os.File{o.Init}
	if boot.Keep {
		files = append(files, o.Socket)
	}
	if err := l.conn.Send(boot, append(files, o.Hold...)...); err != nil {
		return nil, l.died(ctx, err)
	}
	news, err := l.news(ctx)
	switch {
	case err != nil:
		return nil, err
	case news.Error != nil:
		return nil, news.Error.API()
	case news.Hello == nil:
		return nil, errors.New("hutch-launch said something else than hello")
	}
	if !stop() {
		return nil, l.died(ctx, context.Cause(ctx))
	}
	undo.Release()
	return l, nil
}

// errGone is the end of a hutch-launch that this process has not started.
var errGone = errors.New("hutch-launch is gone")

// died explains a broken channel: the caller's ctx, or hutch-launch's end.
func (l *Launcher) died(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return api.Errorf(api.DeadlineExceeded, "start hutch-launch: %w", context.Cause(ctx)).
			WithHint("try again; the log in the state folder has the daemon's last words")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) {
		_ = l.conn.Close()
		if l.proc == nil {
			return api.Errorf(api.Unavailable, "%w", errGone).WithHint("try again: a new daemon starts by itself")
		}
		if code, werr := l.wait(); werr == nil {
			return api.Errorf(api.Unavailable, "hutch-launch ended before it started hutchd: exit code %d", code).
				WithHint("the log in the state folder has its last words")
		}
	}
	return fmt.Errorf("talk to hutch-launch: %w", err)
}

// exitUnknown stands for the exit code of a process that cannot be waited for.
const exitUnknown = 125

// spawn starts the process, which waits for its maps.
func spawn(o Options) (*Launcher, error) {
	ours, theirs, err := packet.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	conn, err := packet.New(ours)
	if err != nil {
		return nil, err
	}
	proc, pidfd, err := fork(o, theirs)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Launcher{
		PID: proc.Pid, proc: proc, pidfd: pidfd, conn: conn, method: o.IDMap.Method,
		wait: sync.OnceValues(func() (int, error) {
			state, err := proc.Wait()
			if err != nil {
				return exitUnknown, err
			}
			if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				return 128 + int(ws.Signal()), nil
			}
			return state.ExitCode(), nil
		}),
	}, nil
}

func fork(o Options, channel *os.File) (*os.Process, *os.File, error) {
	sealed, err := sealedBinary(o.Binary)
	if err != nil {
		return nil, nil, err
	}
	if sealed != o.Binary {
		defer sealed.Close()
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	stderr := o.Stderr
	if stderr == nil {
		stderr = null
	}
	caps, err := allCaps()
	if err != nil {
		return nil, nil, err
	}
	files := []*os.File{null, null, stderr, launchapi.BootFD: channel}
	program, path, err := sys.ForExec(sealed, files)
	if err != nil {
		return nil, nil, err
	}
	defer program.Close()
	defer lazyTimers()()
	pidfd := -1
	proc, err := os.StartProcess(path, []string{"hutch-launch"}, &os.ProcAttr{
		Dir: "/", Env: append([]string{}, o.Env...), Files: files,
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			AmbientCaps: caps,
			// A session of its own: the terminal's signals are for the monitor, and
			// nothing below has a controlling terminal to push input into.
			Setsid: true,
			PidFD:  &pidfd,
		},
	})
	if err != nil {
		return nil, nil, namespaceError(err)
	}
	return proc, os.NewFile(uintptr(pidfd), "pidfd:hutch-launch"), nil
}

// sealedBinary is f itself when it is sealed already.
func sealedBinary(f *os.File) (*os.File, error) {
	if sys.IsSealed(f) {
		return f, nil
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return sys.SealedMemfd("hutch-launch", io.NewSectionReader(f, 0, st.Size()), sys.MemfdProgram)
}

// allCaps are the capabilities of a new user namespace's first process. Ambient,
// they survive the exec, which happens while its uid is unmapped.
func allCaps() ([]uintptr, error) {
	data, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil, err
	}
	var last uintptr
	if _, err := fmt.Sscan(string(data), &last); err != nil {
		return nil, fmt.Errorf("/proc/sys/kernel/cap_last_cap: %w", err)
	}
	var caps []uintptr
	for c := uintptr(0); c <= last; c++ {
		caps = append(caps, c)
	}
	return caps, nil
}

// namespaceError explains a clone or exec that failed.
func namespaceError(err error) error {
	e := api.Errorf(api.Unavailable, "start hutch-launch in a user namespace: %w", err)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return e.WithHint("raise the sysctl user.max_user_namespaces, or leave some of the nested user namespaces")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return e.WithHint("user namespaces are restricted here: `hutch doctor` names the sysctl, profile or container flag")
	case errors.Is(err, unix.EINVAL):
		return e.WithHint("this kernel has no user namespaces (CONFIG_USER_NS)")
	}
	return e.WithHint("run `hutch doctor` to see what this host allows")
}

// timerSlack is how much later than asked for the timers of hutch-launch, hutchd and
// hutch-init may fire, in ns. While a Go process has work, its runtime's sysmon thread
// sleeps 20 us at a time, and each of these costs a timer interrupt: with the kernel's
// 50 us they were a sixth of hutchd's CPU time, and calls took an eighth longer.
const timerSlack = 1_000_000

// lazyTimers gives what this thread starts that timer slack, which processes and threads
// inherit across execve (PR_SET_TIMERSLACK(2const)); commands get the kernel's again from
// the exec stub. The returned function ends that.
func lazyTimers() (restore func()) {
	runtime.LockOSThread()
	old, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	}
	return func() {
		if err == nil {
			_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(old), 0, 0, 0)
		}
		runtime.UnlockOSThread()
	}
}
