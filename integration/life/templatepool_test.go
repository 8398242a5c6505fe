package life_test

import (
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestTemplatePool: what waits in the pool of a template has all ready that the template starts; the pool comes back
// with the daemon, and what waits is made anew when the template becomes another one.
func TestTemplatePool(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	w.LogOnFailure(t)
	c := w.Connect(t)
	template(t, w, c, api.TemplateSpec{
		Name: "warm", Image: "host", PoolSize: 2, Start: &api.TemplateStart{Argv: []string{"python3", "-c", web}},
		Ready: &api.TemplateReady{Port: 8000},
		Steps: []api.TemplateStep{{Run: "echo first >/which"}},
	})
	w.Filled(t, "warm", 2)
	first := acquire(t, w, c, api.AcquireParams{Pool: "warm"})
	if got := w.OK(t, "exec", first.ID, "--", "sh", "-c", "test -e /tmp/ready && cat /which"); got != "first\n" ||
		first.Template != "warm" {
		t.Errorf("%q, %+v", got, first)
	}
	// A hutchd that is killed takes nothing along, nor leaves any that was not ready.
	world.Kill(t, w.Daemon(t).Hutchd)
	c = w.Connect(t)
	w.Filled(t, "warm", 2)
	second := acquire(t, w, c, api.AcquireParams{Pool: "warm", WaitMS: long})
	w.OK(t, "exec", second.ID, "--", "test", "-e", "/tmp/ready")
	w.OK(t, "pool", "release", first.ID, second.ID)
	// Another daemon makes it again.
	d := w.Daemon(t)
	w.Shutdown()
	world.AwaitEnd(t, d.Monitor, "the monitor")
	world.AwaitEnd(t, d.Launch, "hutch-launch")
	c = w.Connect(t)
	w.Filled(t, "warm", 2)
	third := acquire(t, w, c, api.AcquireParams{Pool: "warm", WaitMS: long})
	w.OK(t, "exec", third.ID, "--", "test", "-e", "/tmp/ready")

	_, err := c.CreateTemplate(t.Context(), api.TemplateCreateParams{Replace: true, TemplateSpec: api.TemplateSpec{
		Name: "warm", Image: "host", PoolSize: 1, Steps: []api.TemplateStep{{Run: "echo second >/which"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if p := w.Filled(t, "warm", 1); p.Size != 1 {
		t.Errorf("%+v", p)
	}
	fourth := acquire(t, w, c, api.AcquireParams{Pool: "warm", WaitMS: long})
	if got := w.OK(t, "exec", fourth.ID, "--", "cat", "/which"); got != "second\n" {
		t.Errorf("%q", got)
	}
	// A pool of somebody else's making.
	if _, err := c.CreatePool(t.Context(),
		api.PoolSpec{Name: "own", Size: 1, Sandbox: api.Spec{Template: "warm", Env: map[string]string{"A": "b"}}},
		nil); err != nil {
		t.Fatal(err)
	}
	if got := w.OK(t, "run", "--pool", "own", "--", "sh", "-c", "cat /which; echo $A"); got != "second\nb\n" {
		t.Errorf("%q", got)
	}
	if _, err := c.RemoveTemplate(t.Context(), "warm"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("removed from under a pool: %v", err)
	}
	w.OK(t, "pool", "rm", "own")
	if r, err := c.RemoveTemplate(t.Context(), "warm"); err != nil || r.Sandboxes != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if pools, err := c.Pools(t.Context()); err != nil || len(pools) != 0 {
		t.Errorf("%+v, %v", pools, err)
	}
	w.OK(t, "exec", third.ID, "--", "cat", "/which")
	w.OK(t, "rm", "-f", third.ID, fourth.ID)
	w.AwaitNoSandbox(t)
	if left := leftOfTemplates(t, w); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// One that cannot be made says why.
	template(t, w, c, api.TemplateSpec{Name: "broken", Image: "host", PoolSize: 1,
		Steps: []api.TemplateStep{{Run: "exit 3"}}})
	c.Close()
	raw := w.Dial(t)
	defer raw.Close()
	raw.Call(nil, "events.subscribe", world.Params{"kinds": []string{"sandbox.state"}})
	for {
		var p api.Pool
		if raw.Call(&p, "pool.status", world.Params{"pool": "broken"}); p.Error != "" {
			break
		}
		raw.Note()
	}
	w.OK(t, "template", "rm", "broken")
}

// TestTemplateShipped: templates come with hutch and from the configuration file, and nothing is fetched for one before
// it is used.
func TestTemplateShipped(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	reg := imagetest.StartRegistry(t)
	image := world.Push(t, reg, "agent", world.TinyImage(t))
	w.Configure(t, "templates:\n  claude: {image: "+image+", cmd: [/bin/sh, -c, echo agent]}\n  mine: {image: "+image+
		", steps: ['echo mine >/mine']}\n")
	c := w.Connect(t)
	list, err := c.Templates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tmpl := range list {
		names = append(names, tmpl.Name)
		if !tmpl.Shipped || tmpl.Built != nil {
			t.Errorf("%+v", tmpl)
		}
	}
	if want := []string{"aider", "base", "claude", "code_interpreter", "codex", "copilot", "gemini",
		"mine", "mini-swe-agent", "node", "opencode", "qwen"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if got := w.OK(t, "image", "ls", "-q"); got != "" {
		t.Errorf("fetched before somebody asks: %q", got)
	}
	if got := w.OK(t, "run", "--template", "claude"); got != "agent\n" {
		t.Errorf("%q", got)
	}
	if got := w.OK(t, "run", "--template", "mine", "--", "/bin/sh", "-c", "cat /mine"); got != "mine\n" {
		t.Errorf("%q", got)
	}
	w.OK(t, "run", "--template", "base", "--", "true")
	if tmpl, err := c.Template(t.Context(), "claude"); err != nil || len(tmpl.Steps) != 0 ||
		!slices.Contains(tmpl.Network.Allow, "api.anthropic.com") {
		t.Errorf("%+v, %v", tmpl, err)
	}
	w.Run(t, "template", "rm", "claude").Want(t, 125).Says(t, "not one that somebody has made", "configuration file")

	// What the steps of a template have made is not removed behind its back.
	tmpl, err := c.Template(t.Context(), "mine")
	if err != nil || tmpl.Built == nil {
		t.Fatalf("%+v, %v", tmpl, err)
	}
	w.Run(t, "image", "rm", tmpl.Built.Image).Want(t, 125).Says(t, "template mine", "hutch template rm")
	w.OK(t, "image", "prune", "-a")
	if r := built(t, w, c, "mine"); r.Ran != 0 {
		t.Errorf("%+v", r)
	}
	// One that somebody makes takes the place of a shipped one, until it is removed.
	template(t, w, c, api.TemplateSpec{Name: "base", Image: image})
	if got := of(t, w, c, "base"); got.Image != image {
		t.Errorf("%+v", got)
	}
	w.OK(t, "template", "rm", "base")
	if got := of(t, w, c, "base"); got.Image != "host" {
		t.Errorf("%+v", got)
	}
}
