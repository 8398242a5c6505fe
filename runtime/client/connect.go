package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// ConnectOptions are for Connect. The zero value is ready.
type ConnectOptions struct {
	Binary string   // hutchd's path; default: see StartOptions
	Env    []string // decides the places and is the daemon's environment; default: os.Environ()
	// Eager does not ask a daemon that answers who it is: the first call must say IfBuild, and where that is refused
	// (WrongBuild) connect again without Eager.
	Eager bool
}

// Connect connects to the user's shared daemon. When none answers it starts one
// in the background; of callers that do so at once, one starts it and the others
// wait. A daemon of another build is replaced if it has no sandboxes; one that has
// some is used if it has the same API (Peer tells its build), else Connect fails with
// failed_precondition. A program that is not of any build of hutch, but imports this
// package, takes any daemon with the same API.
//
// The daemon outlives the Client and the caller.
func Connect(ctx context.Context, o ConnectOptions) (*Client, error) {
	places, err := resolve(o.Env)
	if err != nil {
		return nil, err
	}
	c, err := attach(ctx, places.Socket, &o)
	if c != nil || err != nil {
		return c, err
	}
	if err := places.MakeDirs(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, lockPath(places))
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Somebody else may have started it while this one waited for the lock.
	c, err = attach(ctx, places.Socket, &o)
	if c != nil || err != nil {
		return c, err
	}
	if _, err := (launch{binary: o.Binary, env: o.Env, log: places.Log}).start(ctx); err != nil {
		return nil, err
	}
	return Dial(ctx, places.Socket)
}

// attachTries bounds how often one call meets a hutchd that is just being replaced.
const attachTries = 8

// firstPatience is how long the first of them waits for it; each one after that waits twice as long, half a second in
// all.
const firstPatience = 2 * time.Millisecond

// attach connects to a daemon of this build. It returns nil and no error when
// none runs, or none any more because it has ended one of another build.
func attach(ctx context.Context, socket string, o *ConnectOptions) (c *Client, err error) {
	for try := range attachTries {
		conn, err := dial(ctx, socket)
		if absent(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if o.Eager {
			c := New(conn)
			err := c.authenticate(ctx, o.Env)
			if err == nil {
				return c, nil
			}
			if err = errors.Join(err, c.Close()); !errors.Is(err, ErrLost) {
				return nil, err
			}
			peerExit{}.within(ctx, firstPatience<<try) // it has just ended
			continue
		}
		exit := watchPeer(conn)
		c, again, err := greet(ctx, New(conn), exit, o.Env)
		// it ends, and its socket with it, or its hutchd has crashed, and the next one will serve the same socket
		if again {
			exit.within(ctx, firstPatience<<try)
		}
		exit.close()
		if !again {
			return c, err
		}
	}
	return nil, api.Errorf(api.Unavailable, "the daemon at %s closes every connection", socket).WithOp("connect").
		WithHint("its log says why; kill it if it hangs")
}

// greet finds out who answers. It reports again when nobody did: hutchd has just ended,
// and the next dial gets its successor, or nobody.
func greet(ctx context.Context, c *Client, exit peerExit, env []string) (_ *Client, again bool, _ error) {
	var who greeting
	err := c.authenticate(ctx, env)
	if err == nil {
		who, err = c.greet(ctx)
	}
	if err == nil && who.Ending {
		defer c.Close()
		return nil, false, exit.wait(ctx, c)
	}
	if err == nil {
		err = sameState(&who, env)
	}
	if err == nil && usable(&who) {
		return c, false, nil
	}
	defer c.Close()
	if errors.Is(err, &api.Error{Code: api.Unavailable}) {
		return nil, true, nil
	}
	if err == nil && (who.Counts.Sandboxes > 0 || version.BuildID == version.Foreign) {
		err = api.Errorf(api.FailedPrecondition,
			"the running daemon is build %s with version %d of the API and %d sandboxes, this is build %s with version %d",
			who.BuildID, who.APIVersion, who.Counts.Sandboxes, version.BuildID, api.Version).
			WithOp("connect").WithHint("%s", otherAPI())
	}
	if err != nil {
		return nil, false, err
	}
	err = c.Shutdown(ctx, api.ShutdownParams{Mode: "keep"})
	if err != nil && !errors.Is(err, &api.Error{Code: api.Unavailable}) {
		return nil, false, err
	}
	return nil, false, exit.wait(ctx, c)
}

func otherAPI() string {
	if version.BuildID == version.Foreign {
		return "build this program against the version of hutch that is installed, or start a daemon of its own (client.Start)"
	}
	return "use the hutch that the daemon is of, or remove its sandboxes with that; or use a daemon of your own (--private)"
}

// usable reports whether a daemon is to be used, and not replaced.
func usable(who *greeting) bool {
	return who.BuildID == version.BuildID ||
		who.APIVersion == api.Version && (who.Counts.Sandboxes > 0 || version.BuildID == version.Foreign)
}

// sameState refuses a daemon with another state folder than env names: its sandboxes and images are not those that the
// caller means.
func sameState(who *greeting, env []string) error {
	places, err := resolve(env)
	if err != nil {
		return err
	}
	if who.Paths.State == places.State || who.Paths.State == "" { // an older build says nothing
		return nil
	}
	a, aerr := os.Stat(who.Paths.State)
	b, berr := os.Stat(places.State)
	if aerr == nil && berr == nil && os.SameFile(a, b) {
		return nil
	}
	return api.Errorf(api.FailedPrecondition, "the daemon at %s keeps its state in %s, and this command names %s",
		places.Socket, who.Paths.State, places.State).
		WithOp("connect").WithHint("set HUTCH_ROOT=%s; or give the daemon of the other folder a socket of its own: HUTCH_SOCKET", who.Paths.State)
}

// lockPath is one lock per socket, in the runtime folder.
func lockPath(p paths.Paths) string {
	return filepath.Join(p.Runtime, "start-"+p.SocketID()+".lock")
}

// lockTries bounds how often a caller finds that the file which it has locked was removed
// by the one before it.
const lockTries = 1 << 10

// lock takes the flock(2) on path, which unlock removes: there is one for each socket
// that ever was.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	for range lockTries {
		f, err := lockFile(ctx, path)
		if err != nil {
			return nil, err
		}
		if isAt(f, path) {
			return func() {
				_ = os.Remove(path) // while it is locked: whoever waits for it sees that
				_ = f.Close()
			}, nil
		}
		_ = f.Close()
	}
	return nil, api.Errorf(api.Unavailable, "%s is removed again and again", path).WithOp("start hutchd").
		WithHint("try again")
}

// isAt reports whether an open file is still the one at path. Of callers that have locked
// different files of one name only one holds the lock.
func isAt(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(own, there)
}

// lockFile opens a file and takes the flock(2) on it.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, api.Errorf(api.FailedPrecondition, "open the start lock: %w", err).WithOp("start hutchd").
			WithHint("Make the folder writable, or set XDG_RUNTIME_DIR to a folder of your own.")
	}
	var lerr error // valid once got is closed
	got := make(chan struct{})
	go func() {
		defer close(got)
		for {
			if lerr = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(lerr, unix.EINTR) {
				return
			}
		}
	}()
	select {
	case <-got:
		if lerr != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, lerr)
		}
		return f, nil
	case <-ctx.Done():
		// flock cannot be interrupted; whoever holds the lock is bounded by its
		// own start, so the goroutine ends soon.
		go func() {
			<-got
			_ = f.Close()
		}()
		return nil, fmt.Errorf("wait for another hutch to start the daemon: %w", context.Cause(ctx))
	}
}

// peerExit waits for the process at the other end of a connection.
type peerExit struct{ pidfd *os.File } // nil when the process cannot be watched

// watchPeer must be called while the peer is known to live, because its pid may
// be somebody else's later.
func watchPeer(conn *net.UnixConn) peerExit {
	peer, err := peerOf(conn)
	if err != nil || peer.Pid <= 0 {
		return peerExit{}
	}
	fd, err := unix.PidfdOpen(int(peer.Pid), unix.PIDFD_NONBLOCK)
	if err != nil {
		return peerExit{}
	}
	return peerExit{os.NewFile(uintptr(fd), "pidfd")}
}

func (p peerExit) close() {
	if p.pidfd != nil {
		_ = p.pidfd.Close()
	}
}

// endTimeout bounds how long a daemon that said it ends may take: it removes its
// sandboxes first.
const endTimeout = 40 * time.Second

// wait returns when the peer has ended, so that the next daemon does not meet
// the last moments of this one; where its process cannot be watched, when its
// connection has ended.
func (p peerExit) wait(ctx context.Context, c *Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, endTimeout, api.Errorf(api.Unavailable,
		"the daemon closes connections and does not end").WithHint("its log says why; kill it if it hangs"))
	defer cancel()
	select {
	case <-c.Done():
	case <-ctx.Done():
		return fmt.Errorf("wait for the old daemon to end: %w", context.Cause(ctx))
	}
	if p.pidfd == nil {
		return nil
	}
	return p.ended(ctx)
}

// within returns when the peer has ended, and after d in any case.
func (p peerExit) within(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if p.pidfd == nil {
		<-ctx.Done()
		return
	}
	_ = p.ended(ctx) // whoever asks tries again
}

// ended waits for the end of the peer, which is watched. It may be called once.
func (p peerExit) ended(ctx context.Context) error {
	rc, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for the old daemon to end: %w", err)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = p.pidfd.Close(); close(ended) })
	err = rc.Read(func(fd uintptr) bool {
		now, perr := sys.Ready(int(fd), unix.POLLIN)
		return now != 0 || perr != nil
	})
	if !stop() {
		<-ended
		return fmt.Errorf("wait for the old daemon to end: %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("wait for the old daemon to end: %w", err)
	}
	return nil
}
