package integration_test

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// template keeps one.
func (w *world) template(t testing.TB, c *hutch.Client, spec api.TemplateSpec) {
	t.Helper()
	if _, err := c.CreateTemplate(t.Context(), api.TemplateCreateParams{TemplateSpec: spec}); err != nil {
		t.Fatalf("template %s: %v", spec.Name, err)
	}
}

// built runs its steps.
func (w *world) built(t testing.TB, c *hutch.Client, name string) api.TemplateBuildResult {
	t.Helper()
	r, err := c.BuildTemplate(t.Context(), api.TemplateBuildParams{Template: name}, nil)
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return r
}

// of makes a sandbox of a template.
func (w *world) of(t testing.TB, c *hutch.Client, name string, change ...func(*api.Spec)) api.Sandbox {
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

// TestTemplate: what steps have written is in each sandbox of the template, which has its env, limits and network under those of its
// creator; nothing is run twice, and nothing is left when it is removed.
func TestTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.importTiny(t, "base:1")
	c := w.connect(t)
	for name, image := range map[string]string{"ofhost": "host", "ofimage": "base:1"} {
		t.Run(image, func(t *testing.T) {
			spec := api.TemplateSpec{
				Name: name, Image: image, Env: map[string]string{"WORD": "w", "OWN": "template"}, Labels: map[string]string{"l": "t"}, Workdir: "/made/here", User: "0",
				Limits: api.Limits{CPUTimeS: 77, TimeoutS: 9}, Steps: []api.TemplateStep{
					randomStep("/stamp"), {Folder: "/a/b"}, {Argv: []string{"/bin/sh", "-c", "echo $0 $X >>/a/b/c", "argv"}, Env: map[string]string{"X": "x"}, Cwd: "/a"},
				},
			}
			w.template(t, c, spec)
			if _, err := c.CreateTemplate(t.Context(), api.TemplateCreateParams{TemplateSpec: spec}); api.ErrorCode(err) != api.AlreadyExists {
				t.Errorf("twice: %v", err)
			}
			first := w.of(t, c, name) // which builds
			if r := w.built(t, c, name); !r.Cached || r.Ran != 0 || r.Template.Built == nil {
				t.Errorf("built again: %+v", r)
			}
			second := w.of(t, c, name, func(sp *api.Spec) {
				sp.Env, sp.Limits.CPUTimeS, sp.Workdir = map[string]string{"OWN": "mine"}, 99, "/a"
			})
			show := []string{"/bin/sh", "-c", "cat /stamp; cat /a/b/c; pwd; echo $OWN $WORD"}
			one, two := w.ok(t, append([]string{"exec", first.ID}, show...)...), w.ok(t, append([]string{"exec", second.ID}, show...)...)
			stamp, rest, _ := strings.Cut(one, "\n")
			if rest != "argv x\n/made/here\ntemplate w\n" || !strings.HasSuffix(stamp, " w") || two != stamp+"\nargv x\n/a\nmine w\n" {
				t.Errorf("%q and %q", one, two)
			}
			if first.Template != name || first.Limits.CPUTimeS != 77 || second.Limits.CPUTimeS != 99 || second.Limits.TimeoutS != 9 || first.Labels["l"] != "t" {
				t.Errorf("%+v\n%+v", first, second)
			}
			// Another one with the same steps runs nothing, and keeps what they made.
			same := spec
			same.Name = name + "2"
			w.template(t, c, same)
			if r := w.built(t, c, same.Name); !r.Cached {
				t.Errorf("the same steps: %+v", r)
			}
			if _, err := c.RemoveTemplate(t.Context(), name); err != nil {
				t.Error(err)
			}
			third := w.of(t, c, same.Name)
			if got := w.ok(t, "exec", third.ID, "/bin/sh", "-c", "cat /stamp"); got != stamp+"\n" {
				t.Errorf("%q, want %q", got, stamp)
			}
			if r, err := c.RemoveTemplate(t.Context(), same.Name); err != nil || r.Sandboxes != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			w.ok(t, "exec", third.ID, "/bin/sh", "-c", "cat /stamp") // goes on
			w.ok(t, "rm", "-f", first.ID, second.ID, third.ID)
		})
	}
	if got := w.ok(t, "image", "ls", "-q"); strings.Contains(got, "hutch-template") {
		t.Errorf("left: %s", got)
	}
}
