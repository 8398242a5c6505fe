package client

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
)

// StartOptions are for Start. The zero value is ready.
type StartOptions struct {
	// Binary is hutchd's path. By default it is beside the running binary or in ../libexec/hutch; for a program that is
	// not of hutch's build also in PATH, or where the hutch in PATH would find it.
	Binary string
	Env    []string // the daemon's environment; default: os.Environ()
	Log    string   // file that the daemon's messages are appended to; default: hutchd.log in the state folder
}

// Start starts a daemon of the caller's own and connects to it. It serves nobody
// else, and it ends, with all of its sandboxes, when the Client is closed or the
// caller dies: the connection is its lease.
func Start(ctx context.Context, o StartOptions) (*Client, error) {
	places, err := resolve(o.Env)
	if err != nil {
		return nil, err
	}
	if err := places.MakeDirs(); err != nil {
		return nil, err
	}
	ours, theirs, err := connectedPair()
	if err != nil {
		return nil, err
	}
	l := launch{binary: o.Binary, env: o.Env, log: o.Log, lease: theirs}
	if l.log == "" {
		l.log = places.Log
	}
	d, err := l.start(ctx)
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	c := New(ours)
	c.daemon = d
	return c, nil
}

// connectedPair makes a connection whose other end goes to a child.
func connectedPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "lease")
	f := os.NewFile(uintptr(fds[0]), "lease")
	nc, err := net.FileConn(f) // duplicates
	_ = f.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return nc.(*net.UnixConn), theirs, nil
}

// resolve finds the places that a daemon with this environment uses; nil is the
// caller's environment.
func resolve(env []string) (paths.Paths, error) {
	return paths.Resolve(getter(env), os.Geteuid())
}

// getter looks variables up; nil is the caller's environment.
func getter(env []string) func(name string) string {
	get := os.Getenv
	if env != nil {
		get = func(name string) string {
			value := ""
			for _, kv := range env { // the last one counts, as in os/exec
				if len(kv) > len(name) && kv[:len(name)] == name && kv[len(name)] == '=' {
					value = kv[len(name)+1:]
				}
			}
			return value
		}
	}
	return get
}
