package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

const (
	// burst is how many sandboxes are asked for at once.
	burst = 32
	// workers are clients that make and remove sandboxes at the same time, sustained how many each of them.
	workers, sustained = 4, 15
	// crowd is how many sandboxes live beside one that is made.
	crowd = 200
)

// lifeSubjects measure the whole life of sandboxes over warm connections.
func lifeSubjects() []Subject {
	return []Subject{
		{Name: "hutch-create", About: "sandbox.create over a warm connection",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareLife(ctx, "host", 0, create)
			}},
		{Name: "hutch-launch", About: "of a sandbox.create where none is launched ahead, the launch", Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareLife(ctx, "host", 0, launch)
			}},
		{Name: "hutch-create-exec", About: "the same, and the first exec.run of true",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareLife(ctx, "host", 0, createAndCall)
			}},
		{Name: "hutch-acquire", About: "pool.acquire out of a pool of 8",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareAcquire(ctx, false)
			}},
		{Name: "hutch-acquire-exec", About: "the same, and the first exec.run of true",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareAcquire(ctx, true)
			}},
		{Name: "hutch-template-exec",
			About: "the same out of the pool of a template, with a server that is ready in each",
			Setup: prepareTemplate},
		{Name: "hutch-create-exec-pulled", About: "the same with a pulled image of 5 layers, 216 MB", Named: true,
			Setup: setupCreatePulled},
		{Name: "hutch-create-crowd", About: "sandbox.create beside 200 idle sandboxes", Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareLife(ctx, "host", crowd, create)
			}},
		{Name: "hutch-remove", About: "sandbox.remove of an idle sandbox",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareLife(ctx, "host", 0, remove)
			}},
		{Name: "hutch-create-ready", About: "sandbox.create, where sandboxes were launched ahead",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareReady(ctx, "create-ready", 2, create)
			}},
		{Name: "hutch-create-exec-ready", About: "the same, and the first exec.run of true",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareReady(ctx, "create-exec-ready", 2, createAndCall)
			}},
		{Name: "hutch-create-exec-pulled-ready", About: "the same with a pulled image of 5 layers, 216 MB", Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareReadyOf(ctx, "pulled-ready", h.pullForLife, 2, 0, createAndCall)
			}},
		{Name: "hutch-create-crowd-ready", About: "hutch-create-ready beside 200 idle sandboxes", Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareReadyOf(ctx, "crowd-ready", hostImage, 2, crowd, create)
			}},
		{Name: "hutch-burst-ready",
			About: fmt.Sprintf("%d sandboxes created at once, where as many were launched ahead", burst), Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareReady(ctx, "burst-ready", burst, createBurst)
			}},
		{Name: "hutch-sustained-ready", About: "hutch-sustained, where sandboxes are launched ahead all the time",
			Named: true, Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareReady(ctx, "sustained-ready", burst, createSustained)
			}},
		{Name: "hutch-burst", About: fmt.Sprintf("%d sandboxes created at once, until the last is there", burst),
			Named: true, Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareLife(ctx, "host", 0, createBurst)
			}},
		{Name: "hutch-sustained",
			About: fmt.Sprintf("a sandbox with one command, when %d clients make and remove %d in all", workers,
				workers*sustained), Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareLife(ctx, "host", 0, createSustained)
			}},
	}
}

// life makes sandboxes of an image and removes them, and says how long the part took that is measured.
type life func(ctx context.Context, c *client.Client, image string) (time.Duration, error)

// prepareLife measures a life in a daemon of its own, beside so many idle sandboxes.
func (h *Host) prepareLife(ctx context.Context, image string, idle int, one life) (*Prepared, error) {
	if idle > 0 {
		return h.prepareLifeIn(ctx, "crowd", image, idle, one)
	}
	c, err := h.dialShared(ctx)
	if err != nil {
		return nil, err
	}
	return lifeOf(c, image, one), nil
}

func (h *Host) prepareLifeIn(ctx context.Context, state, image string, idle int, one life) (*Prepared, error) {
	if _, err := h.dialShared(ctx); err != nil { // whether this machine can
		return nil, err
	}
	if _, err := h.startDaemon(ctx, state); err != nil {
		return nil, err
	}
	c, err := h.dial(ctx, state)
	if err != nil {
		return nil, err
	}
	if _, err := createMany(ctx, c, idle, api.NetPolicy{}); err != nil {
		return nil, err
	}
	return lifeOf(c, image, one), nil
}

// prepareReady measures a life where so many sandboxes have been launched ahead when it begins.
func (h *Host) prepareReady(ctx context.Context, state string, n int, one life) (*Prepared, error) {
	return h.prepareReadyOf(ctx, state, hostImage, n, 0, one)
}

// hostImage is the image of whoever wants no other.
func hostImage(context.Context, *daemon) (string, error) { return "host", nil }

// prepareReadyOf is prepareReady for sandboxes of the image that get has the daemon pull, beside so many idle ones.
func (h *Host) prepareReadyOf(ctx context.Context, state string, get func(context.Context, *daemon) (string, error), n,
	idle int, one life) (*Prepared, error) {
	env, err := h.hutchEnv(state)
	if err != nil {
		return nil, err
	}
	config, err := h.write("home/"+state+".yaml", fmt.Appendf(nil, "ready: %d\n", n))
	if err != nil {
		return nil, err
	}
	d, err := h.startDaemonWith(ctx, append(env, "HUTCH_CONFIG="+config))
	if err != nil {
		return nil, err
	}
	image, err := get(ctx, d)
	if err != nil {
		return nil, err
	}
	c, err := h.dial(ctx, state)
	if err != nil {
		return nil, err
	}
	if _, err := createMany(ctx, c, idle, api.NetPolicy{}); err != nil {
		return nil, err
	}
	if _, err := create(ctx, c, image); err != nil { // none is launched ahead before the first
		return nil, err
	}
	return lifeOf(c, image, func(ctx context.Context, c *client.Client, image string) (time.Duration, error) {
		for {
			info, err := c.Info(ctx)
			if err != nil {
				return 0, err
			}
			if info.Counts.Ready == n {
				return one(ctx, c, image)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}), nil
}

// prepareAcquire measures taking a sandbox out of a pool, and with use its first command.
func (h *Host) prepareAcquire(ctx context.Context, use bool) (*Prepared, error) {
	state := "acquire"
	if use {
		state += "-exec"
	}
	if _, err := h.startDaemon(ctx, state); err != nil {
		return nil, err
	}
	c, err := h.dial(ctx, state)
	if err != nil {
		return nil, err
	}
	if _, err := c.CreatePool(ctx, api.PoolSpec{Name: "p", Size: 8, Sandbox: api.Spec{Image: "host"}},
		nil); err != nil {
		return nil, err
	}
	return acquireOf(c, use), nil
}

// prepareTemplate measures what prepareAcquire does, of a template whose steps were run and whose server listens.
func prepareTemplate(ctx context.Context, h *Host) (*Prepared, error) {
	const state = "template-exec"
	if _, err := h.startDaemon(ctx, state); err != nil {
		return nil, err
	}
	c, err := h.dial(ctx, state)
	if err != nil {
		return nil, err
	}
	const server = `import socket; s = socket.create_server(("127.0.0.1", 8000)); s.accept()`
	p := api.TemplateCreateParams{TemplateSpec: api.TemplateSpec{
		Name: "p", Image: "host", PoolSize: 8, Steps: []api.TemplateStep{{Run: "echo built >/built"}},
		Start: &api.TemplateStart{Argv: []string{"python3", "-c", server}}, Ready: &api.TemplateReady{Port: 8000},
	}}
	if _, err := c.CreateTemplate(ctx, p); err != nil {
		return nil, err
	}
	acquired := acquireOf(c, true)
	measure := acquired.Run
	// what is made meanwhile starts a Python: that is another number
	acquired.Run = func(ctx context.Context) (Sample, error) {
		for {
			p, err := c.Pool(ctx, "p")
			if err != nil {
				return Sample{}, err
			}
			if p.Available == p.Size {
				return measure(ctx)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return Sample{}, ctx.Err()
			}
		}
	}
	return acquired, nil
}

// acquireOf takes sandboxes out of the pool p.
func acquireOf(c *client.Client, use bool) *Prepared {
	return lifeOf(c, "host", func(ctx context.Context, c *client.Client, _ string) (time.Duration, error) {
		start := time.Now()
		sb, err := c.Acquire(ctx, api.AcquireParams{Pool: "p", WaitMS: 10_000})
		if err != nil {
			return 0, err
		}
		if sb == nil {
			return 0, errors.New("the pool stays empty")
		}
		if use {
			_, err = call(ctx, c, sb.ID, nil)
		}
		took := time.Since(start)
		_, end := c.Release(ctx, sb.ID)
		return took, errors.Join(err, end)
	})
}

func lifeOf(c *client.Client, image string, one life) *Prepared {
	return &Prepared{Command: "sandbox.create, exec.run {argv: [/bin/true]} and sandbox.remove by the Go client",
		Run: func(ctx context.Context) (Sample, error) {
			took, err := one(ctx, c, image)
			return Sample{Wall: took}, err
		}}
}

func setupCreatePulled(ctx context.Context, h *Host) (*Prepared, error) {
	d, err := h.startDaemon(ctx, "pulled")
	if err != nil {
		return nil, err
	}
	ref, err := h.pullForLife(ctx, d)
	if err != nil {
		return nil, err
	}
	return h.prepareLifeIn(ctx, "pulled", ref, 0, createAndCall)
}

// pullForLife pulls an image that has /bin/true.
func (h *Host) pullForLife(ctx context.Context, d *daemon) (ref string, err error) {
	source, err := h.write("true.c", []byte("int main(void) { return 0; }\n"))
	if err != nil {
		return "", err
	}
	bin := h.path("home", "true")
	if err := h.compile(ctx, bin, source); err != nil {
		return "", err
	}
	s := mixed
	s.name = "mixed-with-true"
	if s.program, err = os.ReadFile(bin); err != nil {
		return "", err
	}
	r, err := h.registry()
	if err != nil {
		return "", err
	}
	ref, err = r.image(s)
	if err != nil {
		return "", err
	}
	if _, err := h.outputWithin(ctx, pullLimit, d.env, d.hutch, "image", "pull", "-q", ref); err != nil {
		return "", err
	}
	return ref, nil
}

func create(ctx context.Context, c *client.Client, image string) (time.Duration, error) {
	start := time.Now()
	sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: image}}, nil, nil)
	took := time.Since(start)
	if err == nil {
		_, err = c.Remove(ctx, sb.ID)
	}
	return took, err
}

// launch takes of a create what its phase of this name does.
func launch(ctx context.Context, c *client.Client, image string) (time.Duration, error) {
	sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: image}}, nil, nil)
	if err != nil {
		return 0, err
	}
	_, err = c.Remove(ctx, sb.ID)
	return time.Duration(sb.PhasesMS["launch"] * float64(time.Millisecond)), err
}

func createAndCall(ctx context.Context, c *client.Client, image string) (time.Duration, error) {
	start := time.Now()
	sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: image}}, nil, nil)
	if err != nil {
		return 0, err
	}
	_, err = call(ctx, c, sb.ID, nil)
	took := time.Since(start)
	_, end := c.Remove(ctx, sb.ID)
	return took, errors.Join(err, end)
}

func remove(ctx context.Context, c *client.Client, image string) (time.Duration, error) {
	sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: image}}, nil, nil)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	_, err = c.Remove(ctx, sb.ID)
	return time.Since(start), err
}

func createBurst(ctx context.Context, c *client.Client, image string) (time.Duration, error) {
	ids, errs := make([]string, burst), make([]error, burst)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range burst {
		wg.Go(func() {
			sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: image}}, nil, nil)
			ids[i], errs[i] = sb.ID, err
		})
	}
	wg.Wait()
	took := time.Since(start)
	for i, id := range ids {
		if errs[i] == nil {
			_, errs[i] = c.Remove(ctx, id)
		}
	}
	return took, errors.Join(errs...)
}

// createSustained is what one of many sandboxes takes.
func createSustained(ctx context.Context, c *client.Client, image string) (time.Duration, error) {
	errs := make([]error, workers)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for range sustained {
				if _, err := createAndCall(ctx, c, image); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start) / (workers * sustained), errors.Join(errs...)
}
