package life_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// template keeps one.
func template(t testing.TB, w *world.World, c *hutch.Client, spec api.TemplateSpec) {
	t.Helper()
	if _, err := c.CreateTemplate(t.Context(), api.TemplateCreateParams{TemplateSpec: spec}); err != nil {
		t.Fatalf("template %s: %v", spec.Name, err)
	}
}

// built runs its steps.
func built(t testing.TB, w *world.World, c *hutch.Client, name string) api.TemplateBuildResult {
	t.Helper()
	r, err := c.BuildTemplate(t.Context(), api.TemplateBuildParams{Template: name}, nil)
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return r
}

// of makes a sandbox of a template.
func of(t testing.TB, w *world.World, c *hutch.Client, name string, change ...func(*api.Spec)) api.Sandbox {
	t.Helper()
	sp := api.Spec{Template: name}
	for _, f := range change {
		f(&sp)
	}
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: sp}, nil, nil)
	if err != nil {
		t.Fatalf("a sandbox of %s: %v", name, err)
	}
	return sb
}

// steps of a template that count how often they ran: each writes another word.
func randomStep(file string) api.TemplateStep {
	return api.TemplateStep{Run: "read -r id </proc/sys/kernel/random/uuid; echo $id $WORD >" + file}
}

// TestTemplate: what steps have written is in each sandbox of the template, which has its env, limits and network under
// those of its creator; nothing is run twice, and nothing is left when it is removed.
func TestTemplate(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	c := w.Connect(t)
	for name, image := range map[string]string{"ofhost": "host", "ofimage": "base:1"} {
		t.Run(image, func(t *testing.T) {
			spec := api.TemplateSpec{
				Name: name, Image: image, Env: map[string]string{"WORD": "w", "OWN": "template"},
				Labels: map[string]string{"l": "t"}, Workdir: "/made/here", User: "0",
				Limits: api.Limits{CPUTimeS: 77, TimeoutS: 9}, Steps: []api.TemplateStep{
					randomStep("/stamp"), {Folder: "/a/b"},
					{Argv: []string{"/bin/sh", "-c", "echo $0 $X >>/a/b/c", "argv"},
						Env: map[string]string{"X": "x"}, Cwd: "/a"},
				},
			}
			template(t, w, c, spec)
			if _, err := c.CreateTemplate(t.Context(),
				api.TemplateCreateParams{TemplateSpec: spec}); api.ErrorCode(err) != api.AlreadyExists {
				t.Errorf("twice: %v", err)
			}
			first := of(t, w, c, name) // which builds
			if r := built(t, w, c, name); !r.Cached || r.Ran != 0 || r.Template.Built == nil {
				t.Errorf("built again: %+v", r)
			}
			second := of(t, w, c, name, func(sp *api.Spec) {
				sp.Env, sp.Limits.CPUTimeS, sp.Workdir = map[string]string{"OWN": "mine"}, 99, "/a"
			})
			show := []string{"/bin/sh", "-c", "cat /stamp; cat /a/b/c; pwd; echo $OWN $WORD"}
			one, two := w.OK(t, append([]string{"exec", first.ID}, show...)...),
				w.OK(t, append([]string{"exec", second.ID}, show...)...)
			stamp, rest, _ := strings.Cut(one, "\n")
			if rest != "argv x\n/made/here\ntemplate w\n" || !strings.HasSuffix(stamp, " w") || two != stamp+
				"\nargv x\n/a\nmine w\n" {
				t.Errorf("%q and %q", one, two)
			}
			if first.Template != name || first.Limits.CPUTimeS != 77 || second.Limits.CPUTimeS != 99 ||
				second.Limits.TimeoutS != 9 || first.Labels["l"] != "t" {
				t.Errorf("%+v\n%+v", first, second)
			}
			// Another one with the same steps runs nothing, and keeps what they made.
			same := spec
			same.Name = name + "2"
			template(t, w, c, same)
			if r := built(t, w, c, same.Name); !r.Cached {
				t.Errorf("the same steps: %+v", r)
			}
			if _, err := c.RemoveTemplate(t.Context(), name); err != nil {
				t.Error(err)
			}
			third := of(t, w, c, same.Name)
			if got := w.OK(t, "exec", third.ID, "/bin/sh", "-c", "cat /stamp"); got != stamp+"\n" {
				t.Errorf("%q, want %q", got, stamp)
			}
			if r, err := c.RemoveTemplate(t.Context(), same.Name); err != nil || r.Sandboxes != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			w.OK(t, "exec", third.ID, "/bin/sh", "-c", "cat /stamp") // goes on
			w.OK(t, "rm", "-f", first.ID, second.ID, third.ID)
		})
	}
	if got := w.OK(t, "image", "ls", "-q"); strings.Contains(got, "hutch-template") {
		t.Errorf("left: %s", got)
	}
}

// TestTemplateFiles: what people write templates in makes the same templates, with the files that steps copy.
func TestTemplateFiles(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	dir := w.Sub(t, "context")
	w.Sub(t, "context/app")
	world.Write(t, dir+"/app/main", "program\n")
	world.Write(t, dir+"/app/secret", "secret\n")
	world.Write(t, dir+"/.dockerignore", "app/secret\n")
	world.Write(t, dir+"/Dockerfile",
		"ARG WORD\nFROM base:1\nARG WORD\nENV GREETING=hello-$WORD PATH=/own:$PATH\nWORKDIR /srv\nCOPY app ./app/\nRUN echo $GREETING $WORD >>greeting\nUSER 0\nCMD [\"/bin/sh\", \"-c\", \"cat greeting app/main; id -u\"]\n")
	r := w.Run(t, "template", "create", "--dockerfile", dir+"/Dockerfile", "--build-arg", "WORD=you", "docked").
		Want(t, 0)
	r.Says(t, "docked [1/3] folder /srv", "docked [3/3] echo $GREETING $WORD", "docked [done] commit")
	if r.Stdout != "docked\n" {
		t.Errorf("%q", r.Stdout)
	}
	if got := w.OK(t, "run", "--template", "docked"); got != "hello-you you\nprogram\n0\n" {
		t.Errorf("%q", got)
	}
	if got := w.OK(t, "run", "--template", "docked", "--", "/bin/sh", "-c",
		"ls app; echo $PATH"); !strings.HasPrefix(got, "main\n/own:/") {
		t.Errorf("what .dockerignore names was copied, or PATH is not the image's with more: %s", got)
	}
	w.Run(t, "template", "build", "docked").Want(t, 0).Says(t, "nothing has changed")
	// The same, as YAML over the Dockerfile, whose files come along.
	world.Write(t, dir+"/t.yaml",
		"name: both\ndockerfile: Dockerfile\nargs: {WORD: me}\nmemory_mb: 200\nlimits: {best_effort: true}\nsteps:\n- copy: [app/main, /srv/copied]\n- {run: cat /srv/copied >>/srv/greeting, user: \"0\"}\n")
	w.Run(t, "template", "create", "-q", "-f", dir+"/t.yaml").Want(t, 0)
	if got := w.OK(t, "run", "--template", "both"); got != "hello-me me\nprogram\nprogram\n0\n" {
		t.Errorf("%q", got)
	}
	// A changed file is copied anew.
	world.Write(t, dir+"/app/main", "another\n")
	w.Run(t, "template", "create", "-f", dir+"/t.yaml").Want(t, 125).Says(t, "there is a template")
	w.Run(t, "template", "create", "--replace", "-f", dir+"/t.yaml").Want(t, 0).Says(t, "both [5/5]")
	if got := w.OK(t, "run", "--template", "both"); got != "hello-me me\nanother\nanother\n0\n" {
		t.Errorf("%q", got)
	}
	// A name of a template goes where that of an image does.
	if got := w.OK(t, "run", "both", "/bin/sh", "-c", "cat app/main"); got != "another\n" {
		t.Errorf("%q", got)
	}
	world.Write(t, dir+"/bad", "FROM base:1\n\nADD x /\n")
	w.Run(t, "template", "create", "--dockerfile", dir+"/bad", "bad").Want(t, 125).
		Says(t, "line 3: ADD is not supported", "COPY")
	world.Write(t, dir+"/out", "FROM base:1\nCOPY ../../etc/passwd /\n")
	w.Run(t, "template", "create", "--dockerfile", dir+"/out", "bad").Want(t, 125).Says(t, "no such file below")
	w.Run(t, "template", "inspect", "bad").Want(t, 125).Says(t, "no template")
	if got := w.OK(t, "template", "ls", "-q"); !strings.HasPrefix(got, "both\ndocked\n") &&
		!strings.Contains(got, "\nboth\n") {
		t.Errorf("%q", got)
	}
	w.OK(t, "template", "rm", "both", "docked")
	if got := w.OK(t, "image", "ls", "-q"); strings.Contains(got, "hutch-template") {
		t.Errorf("left: %s", got)
	}
}

// TestTemplateHost: over the host's own programs steps may install into /usr; forks, stops and templates of such a
// template have it all.
func TestTemplateHost(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	template(t, w, c, api.TemplateSpec{Name: "usr", Image: "host", WritableUsr: true, User: "0",
		Steps: []api.TemplateStep{{Run: "echo 1 >/usr/share/hutch-one; echo 1 >/one"}}})
	template(t, w, c, api.TemplateSpec{Name: "more", Template: "usr",
		Steps: []api.TemplateStep{{Run: "cat /usr/share/hutch-one /one >/usr/share/hutch-two; rm /one"}}})
	sb := of(t, w, c, "more")
	show := []string{"--", "sh", "-c",
		"cat /usr/share/hutch-two /usr/share/hutch-one /own; ls /one 2>&1 | grep -c 'No such'; ls /usr/bin/env"}
	w.OK(t, "exec", sb.ID, "--", "sh", "-c", "echo own >/own")
	const want = "1\n1\n1\nown\n1\n/usr/bin/env\n"
	if got := w.OK(t, append([]string{"exec", sb.ID}, show...)...); got != want {
		t.Errorf("%q", got)
	}
	fork := strings.TrimSpace(w.OK(t, "fork", sb.ID))
	if got := w.OK(t, append([]string{"exec", fork}, show...)...); got != want {
		t.Errorf("a fork: %q", got)
	}
	w.OK(t, "stop", sb.ID)
	w.OK(t, "template", "rm", "more", "usr") // what they have made is still needed
	w.OK(t, "start", sb.ID)
	if got := w.OK(t, append([]string{"exec", sb.ID}, show...)...); got != want {
		t.Errorf("after a stop: %q", got)
	}
	world.Kill(t, w.Daemon(t).Hutchd)
	if got := w.OK(t, append([]string{"exec", sb.ID}, show...)...); got != want {
		t.Errorf("after a crash: %q", got)
	}
	w.OK(t, "rm", "-f", sb.ID, fork)
	w.AwaitNoSandbox(t)
	if left, err := filepath.Glob(w.Root() + "/data/shelf/layers/*"); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestTemplateScope: a scope's sandbox may be of a template, is found again by the same words, and made again of it.
func TestTemplateScope(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	template(t, w, c, api.TemplateSpec{Name: "scoped", Image: "host", Env: map[string]string{"A": "t"},
		Steps: []api.TemplateStep{randomStep("/stamp")},
		Start: &api.TemplateStart{Command: "echo started >/tmp/started"},
		Ready: &api.TemplateReady{Command: "test -s /tmp/started"}})
	scope := func(sp *api.Spec) { sp.Scope = &api.Scope{Kind: api.ScopeAgent, Key: "k"} }
	one := of(t, w, c, "scoped", scope, func(sp *api.Spec) { sp.Env = map[string]string{"B": "mine"} })
	two := of(t, w, c, "scoped", scope)
	if one.ID != two.ID || !two.Existing {
		t.Errorf("%+v\n%+v", one, two)
	}
	_, err := c.CreateSandbox(t.Context(),
		api.CreateParams{Spec: api.Spec{Template: "scoped", Scope: &api.Scope{Kind: api.ScopeAgent, Key: "k"},
			Env: map[string]string{"B": "other"}}}, nil, nil)
	if api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("another env: %v", err)
	}
	stamp := w.OK(t, "exec", one.ID, "--", "cat", "/stamp")
	w.OK(t, "exec", one.ID, "--", "sh", "-c", "echo x >/own; rm /tmp/started")
	w.OK(t, "scope", "reset", "agent:k")
	three := of(t, w, c, "scoped", scope)
	if got := w.OK(t, "exec", three.ID, "--", "sh", "-c",
		"cat /stamp /tmp/started; echo $A $B; ls /own 2>/dev/null; true"); three.ID == one.ID || got != stamp+
		"started\nt mine\n" {
		t.Errorf("%q", got)
	}
	w.OK(t, "scope", "end", "agent:k")
}
