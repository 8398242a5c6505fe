package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/client"
)

// daemon is a shared daemon with a state folder and a socket of its own.
type daemon struct {
	hutch string // the command
	env   []string
}

// hutchCommand copies our binaries to where the user of the subjects reaches
// them, once, and returns the command.
func (h *Host) hutchCommand() (string, error) {
	if _, err := os.Stat(h.path("bin", "hutch")); err == nil {
		return h.path("bin", "hutch"), nil
	}
	for _, name := range []string{"hutchd", "hutch-launch", "hutch-init", "hutch-netd", "hutch-scan", "hutch-web",
		"hutch-mcp", "hutch"} {
		from := filepath.Join(h.hutchBin, name)
		if _, err := os.Stat(from); err != nil {
			return "", &Unavailable{NotBuilt, err.Error(), "make build, or -hutch FOLDER"}
		}
		if _, err := h.copyBinary(from); err != nil {
			return "", err
		}
	}
	return h.path("bin", "hutch"), nil
}

// hutchEnv keeps a daemon of ours apart from every other: state and socket in
// the temporary folder, no configuration.
func (h *Host) hutchEnv(state string) ([]string, error) {
	dir, err := h.mkdir(state, 0o700)
	if err != nil {
		return nil, err
	}
	// None is launched ahead, but for the subject that is about that.
	if _, err := h.write("home/config.yaml", []byte("ready: none\n")); err != nil {
		return nil, err
	}
	return h.hutchEnvIn(dir, state), nil
}

// hutchEnvIn is hutchEnv with the state in dir, and a socket of that name.
func (h *Host) hutchEnvIn(dir, name string) []string {
	return []string{
		"HUTCH_ROOT=" + dir,
		"HUTCH_SOCKET=" + h.path("run", name+".sock"),
		"HUTCH_CONFIG=" + h.path("home", "config.yaml"),
	}
}

// approve approves a configuration for the daemon with a state folder of that name, as its user does at a terminal.
func (h *Host) approve(file, state string) error {
	dir, err := h.mkdir(state, 0o700)
	if err != nil {
		return err
	}
	c, err := config.Load(file, yamlread.Parse)
	if err != nil {
		return err
	}
	return c.Approve(filepath.Join(dir, "approved.json"))
}

// sharedDaemon starts the daemon that the hutch subjects share, once, as the
// first command of a user does.
func (h *Host) sharedDaemon(ctx context.Context) (*daemon, error) {
	if h.daemon != nil {
		return h.daemon, nil
	}
	d, err := h.startDaemon(ctx, "state")
	if err == nil {
		h.daemon = d
	}
	return d, err
}

// startDaemon starts a daemon with a state folder of that name, and these variables.
func (h *Host) startDaemon(ctx context.Context, state string, vars ...string) (*daemon, error) {
	env, err := h.hutchEnv(state)
	if err != nil {
		return nil, err
	}
	return h.startDaemonWith(ctx, append(env, vars...))
}

// startDaemonWith starts a daemon that env describes.
func (h *Host) startDaemonWith(ctx context.Context, env []string) (*daemon, error) {
	hutch, err := h.hutchCommand()
	if err != nil {
		return nil, err
	}
	d := &daemon{hutch: hutch, env: env}
	h.undo.Add(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		_, err := h.output(ctx, env, hutch, "rpc", "system.shutdown", `{"mode":"kill"}`)
		return err
	})
	if _, err := h.output(ctx, env, hutch, "run", "host", "--", "true"); err != nil {
		return nil, h.explain(ctx, d, err)
	}
	return d, nil
}

// explain turns the failure of hutch into Unavailable where its doctor finds that
// this host cannot run sandboxes.
func (h *Host) explain(ctx context.Context, d *daemon, err error) error {
	if _, doctor := h.output(ctx, d.env, d.hutch, "doctor"); doctor != nil {
		return &Unavailable{HostKind, "hutch cannot run sandboxes here: " + err.Error(), "`hutch doctor` says why"}
	}
	return err
}

func setupHutchVersion(_ context.Context, h *Host) (*Prepared, error) {
	hutch, err := h.hutchCommand()
	if err != nil {
		return nil, err
	}
	p, err := h.newProcess(nil, hutch, "version")
	if err != nil {
		return nil, err
	}
	return p.prepared(), nil
}

func setupHutchRun(ctx context.Context, h *Host) (*Prepared, error) {
	d, err := h.sharedDaemon(ctx)
	if err != nil {
		return nil, err
	}
	return h.hutchProcess(ctx, d, "run", "host", "--", "true")
}

// setupHutchRunReady has a daemon that launches sandboxes ahead.
func setupHutchRunReady(ctx context.Context, h *Host) (*Prepared, error) {
	env, err := h.hutchEnv("ready")
	if err != nil {
		return nil, err
	}
	config, err := h.write("home/ready.yaml", []byte("ready: 2\n"))
	if err != nil {
		return nil, err
	}
	d, err := h.startDaemonWith(ctx, append(env, "HUTCH_CONFIG="+config))
	if err != nil {
		return nil, err
	}
	return h.whenFull(ctx, d, "ready", 2, func(ctx context.Context, c *client.Client) (int, error) {
		info, err := c.Info(ctx)
		return info.Counts.Ready, err
	}, "run", "host", "--", "true")
}

func setupHutchRunPool(ctx context.Context, h *Host) (*Prepared, error) {
	d, err := h.startDaemon(ctx, "pool")
	if err != nil {
		return nil, err
	}
	if _, err := h.output(ctx, d.env, d.hutch, "pool", "create", "--size", "8", "p", "host"); err != nil {
		return nil, err
	}
	return h.whenFull(ctx, d, "pool", 8, func(ctx context.Context, c *client.Client) (int, error) {
		p, err := c.Pool(ctx, "p")
		return p.Available, err
	}, "run", "--pool", "p", "--", "true")
}

// How long a run waits until as many sandboxes wait as shall, and how long they do before it begins: whoever has
// launched them is at rest then.
const (
	fullLimit = 10 * time.Second
	fullRest  = 50 * time.Millisecond
)

// whenFull is hutchProcess of a daemon whose runs begin when so many sandboxes wait.
func (h *Host) whenFull(ctx context.Context, d *daemon, state string, want int,
	waiting func(context.Context, *client.Client) (int, error), args ...string) (*Prepared, error) {
	p, err := h.hutchProcess(ctx, d, args...)
	if err != nil {
		return nil, err
	}
	c, err := h.dial(ctx, state)
	if err != nil {
		return nil, err
	}
	p.Note = "each run begins when all wait that shall"
	p.Before = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, fullLimit)
		defer cancel()
		for { // nobody is told when a pool is full
			n, err := waiting(ctx, c)
			if err != nil {
				return err
			}
			select {
			case <-time.After(fullRest):
			case <-ctx.Done():
				return fmt.Errorf("%d of %d sandboxes wait: %w", n, want, context.Cause(ctx))
			}
			if n >= want {
				return nil
			}
		}
	}
	return p, nil
}

func setupHutchExec(ctx context.Context, h *Host) (*Prepared, error) {
	d, err := h.sharedDaemon(ctx)
	if err != nil {
		return nil, err
	}
	sandbox, err := h.output(ctx, d.env, d.hutch, "create", "host")
	if err != nil {
		return nil, err
	}
	if sandbox == "" {
		return nil, fmt.Errorf("hutch create printed no id")
	}
	return h.hutchProcess(ctx, d, "exec", sandbox, "true")
}

// setupHutchPrivate has a state folder of its own, so that daemons of two kinds
// do not meet on one.
func setupHutchPrivate(ctx context.Context, h *Host) (*Prepared, error) {
	hutch, err := h.hutchCommand()
	if err != nil {
		return nil, err
	}
	env, err := h.hutchEnv("private")
	if err != nil {
		return nil, err
	}
	d := &daemon{hutch: hutch, env: env}
	if _, err := h.output(ctx, env, hutch, "run", "--private", "host", "--", "true"); err != nil {
		return nil, h.explain(ctx, d, err)
	}
	return h.hutchProcess(ctx, d, "run", "--private", "host", "--", "true")
}

// hutchProcess prepares a call of the hutch command.
func (h *Host) hutchProcess(ctx context.Context, d *daemon, args ...string) (*Prepared, error) {
	p, err := h.newProcess(d.env, append([]string{d.hutch}, args...)...)
	if err != nil {
		return nil, err
	}
	ready := p.prepared()
	ready.Version = h.version(ctx, d.hutch, "version")
	return ready, nil
}
