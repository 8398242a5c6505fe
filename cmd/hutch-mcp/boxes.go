package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/hutch-sh/hutch/internal/hostfs"
	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// boxes are the connection to the daemon and the sandboxes of one session. They belong to the connection, unless they
// are to stay: whoever kills this process has ended them.
type boxes struct {
	cfg mcpapi.Config
	// session is over when the session is: calls that are under way are cancelled, and nothing is made any more.
	session context.Context
	finish  context.CancelCauseFunc
	wg      sync.WaitGroup // of what goes on beside calls

	mu   sync.Mutex // guards what follows, also while a sandbox is made: the second call waits for it
	c    *client.Client
	own  string   // the session's own sandbox; "" until a tool needs it
	made []string // others that were asked for

	kernels hostKernels
	asks    *asks
}

func newBoxes(cfg mcpapi.Config) *boxes {
	b := &boxes{cfg: cfg, own: cfg.Sandbox}
	b.asks = newAsks(b)
	b.session, b.finish = context.WithCancelCause(context.Background())
	if b.cfg.Spec.Scope == nil && !cfg.Keep {
		b.cfg.Spec.Owner = api.OwnerConnection
	} else {
		b.cfg.Spec.Keep = true
	}
	return b
}

// connection is that to the daemon, a new one where the old one was lost. A hutchd that takes over for one that was
// killed still has the sandboxes.
func (b *boxes) connection(ctx context.Context) (*client.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.connected(ctx)
}

// errOver is why a call of a session that has ended fails.
var errOver = errors.New("the session is over")

// connected is connection; mu is held.
func (b *boxes) connected(ctx context.Context) (*client.Client, error) {
	if b.session.Err() != nil {
		return nil, errOver
	}
	if b.c != nil {
		select {
		case <-b.c.Done():
			_ = b.c.Close() // lost already
			b.c = nil
		default:
			return b.c, nil
		}
	}
	var err error
	if b.cfg.Private {
		b.c, err = client.Start(ctx, client.StartOptions{})
	} else {
		b.c, err = client.Connect(ctx, client.ConnectOptions{})
	}
	if err != nil {
		b.c = nil
		return nil, err
	}
	if b.cfg.Spec.Owner == api.OwnerConnection {
		gone := func(id string) bool {
			_, err := b.c.Claim(ctx, id)
			return err != nil
		}
		if b.own != "" && b.own != b.cfg.Sandbox && gone(b.own) {
			b.own = ""
		}
		b.made = slices.DeleteFunc(b.made, gone)
	}
	return b.c, nil
}

// get returns the connection and a sandbox: the session's own, made if there is none, where ref is "".
func (b *boxes) get(ctx context.Context, ref string) (*client.Client, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := b.connected(ctx)
	if err == nil {
		err = b.asks.watch(ctx, c)
	}
	if err != nil || ref != "" {
		return c, ref, err
	}
	if b.own == "" {
		sb, err := b.create(ctx, c, "")
		if err != nil {
			return nil, "", err
		}
		b.own = sb.ID
	}
	return c, b.own, nil
}

// create makes a sandbox of the session's spec, with another image where that is not "".
func (b *boxes) create(ctx context.Context, c *client.Client, image string) (api.Sandbox, error) {
	spec := b.cfg.Spec
	if image != "" {
		spec.Image, spec.Template = image, ""
	}
	fetches := b.mayFetch(image)
	if !fetches {
		spec.Pull = api.PullNever
	}
	var sb api.Sandbox
	who, err := c.Peer(ctx)
	if err == nil {
		err = settle(ctx, c, &spec)
	}
	if err != nil {
		return sb, b.explained(image, err, fetches)
	}
	err = hostfs.Lend(who.IDBase, spec, func(opened api.Spec, files []*os.File) (err error) {
		sb, err = c.CreateSandbox(ctx, api.CreateParams{Spec: opened}, files, nil)
		return err
	})
	if err != nil {
		return sb, b.explained(image, err, fetches)
	}
	if spec.Workdir != b.cfg.Spec.Workdir && sb.Image != ownHost {
		// Commands make the folder that they run in, tools for files do not.
		if _, err = c.MakeFolder(ctx, api.FileMkdirParams{FileParams: api.FileParams{Sandbox: sb.ID,
			Path: spec.Workdir}, Parents: true}); err != nil {
			_, gone := c.Remove(context.WithoutCancel(ctx), sb.ID)
			return sb, errors.Join(err, gone)
		}
	}
	return sb, nil
}

// another makes a sandbox that the model has asked for. It has what the user gave this session and no more.
func (b *boxes) another(ctx context.Context, image string) (api.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := b.connected(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	if b.cfg.Spec.Name != "" || b.cfg.Spec.Scope != nil {
		return api.Sandbox{}, api.Errorf(api.FailedPrecondition, "this server was started for one named sandbox").
			WithHint("work in it, or have the server started without --name and --scope")
	}
	sb, err := b.create(ctx, c, image)
	if err == nil {
		b.made = append(b.made, sb.ID)
	}
	return sb, err
}

// mine says whether the session may remove or use a sandbox by its id.
func (b *boxes) mine(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return id == "" || id == b.own || slices.Contains(b.made, id)
}

// list is every sandbox of the session; the own one first, once it is made.
func (b *boxes) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	if b.own != "" {
		list = append(list, b.own)
	}
	return append(list, b.made...)
}

// remove removes one of the session's; the next call that needs it gets a new one.
func (b *boxes) remove(ctx context.Context, id string) error {
	c, err := b.connection(ctx)
	if err != nil {
		return err
	}
	if id == b.cfg.Sandbox {
		return api.Errorf(api.PermissionDenied, "sandbox %s was there before this session", id).
			WithHint("the user removes it: hutch rm %s", id)
	}
	if _, err := c.Remove(ctx, id); err != nil && api.ErrorCode(err) != api.NotFound {
		return err
	}
	b.forget(id)
	return nil
}

// forget says that a sandbox is gone.
func (b *boxes) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.own == id && id != b.cfg.Sandbox {
		b.own = ""
	}
	b.made = slices.DeleteFunc(b.made, func(m string) bool { return m == id })
}

// end removes what does not stay.
func (b *boxes) end(ctx context.Context) error {
	b.finish(errOver)
	b.kernels.end()
	b.wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		return nil
	}
	var errs []error
	if !b.cfg.Keep && b.cfg.Spec.Scope == nil {
		for _, id := range append([]string{b.own}, b.made...) {
			if id == "" || id == b.cfg.Sandbox {
				continue
			}
			if _, err := b.c.Remove(ctx, id); err != nil && api.ErrorCode(err) != api.NotFound &&
				!errors.Is(err, client.ErrLost) {
				errs = append(errs, fmt.Errorf("remove sandbox %s: %w", id, err))
			}
		}
	}
	return errors.Join(append(errs, b.c.Close())...)
}
