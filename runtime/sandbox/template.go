package sandbox

import (
	"cmp"
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// Templates knows what sandboxes can be made by: package template, joined by cmd/hutchd.
type Templates interface {
	// Find gives what a spec stands for that names a template, which is built first where it has to be. It is nil for a
	// spec with an image that is no template's name.
	Find(ctx context.Context, sp api.Spec, user uint32, progress func(api.Progress)) (*Made, error)
}

// noTemplates is for a daemon that has none.
type noTemplates struct{}

func (noTemplates) Find(_ context.Context, sp api.Spec, _ uint32, _ func(api.Progress)) (*Made, error) {
	if sp.Template == "" {
		return nil, nil
	}
	return nil, api.Errorf(api.NotFound, "no template %q", sp.Template).WithField("template").
		WithHint("hutch template ls lists the templates")
}

// Made is what a sandbox of a template is made of.
type Made struct {
	Template string   // its name
	Spec     api.Spec // with an image, and without a template
	Build    string   // the id of what Keep.SaveBuild has kept; "" of most
	Entry    []string // in the place of the image's, where Entry or Cmd is not nil
	Cmd      []string
	Start    *api.TemplateStart
	Ready    *api.TemplateReady
	Ports    []api.TemplatePort
}

// templated is what a sandbox has of its template that its spec does not say.
type templated struct {
	Name  string             `json:"name"`
	Asked api.Spec           `json:"asked"` // by its creator
	Entry []string           `json:"entry,omitzero"`
	Cmd   []string           `json:"cmd,omitzero"`
	Start *api.TemplateStart `json:"start,omitempty"`
	Ready *api.TemplateReady `json:"ready,omitempty"`
	Ports []api.TemplatePort `json:"ports,omitempty"`
}

// starts says that something is to be done before somebody gets the sandbox.
func (t *templated) starts() bool {
	return t != nil && (t.Start != nil || t.Ready != nil || len(t.Ports) > 0)
}

// asked is what the creator of a sandbox has asked for, to make it anew.
func (s *Sandbox) asked() api.Spec {
	if s.templated != nil {
		return s.templated.Asked
	}
	return s.specNow()
}

// byTemplate puts what the template of a request says in the place of its name. done ends the use of what is kept of
// it.
func (m *Manager) byTemplate(ctx context.Context, req *CreateRequest) (done func(), err error) {
	done = func() {}
	if req.origin != nil {
		return done, nil
	}
	if req.Building {
		return m.overBuild(req, req.Over)
	}
	made, err := m.templates.Find(ctx, req.Spec, req.User, req.Progress)
	if err != nil || made == nil {
		return done, err
	}
	t := &templated{Name: made.Template, Asked: req.Spec, Entry: made.Entry, Cmd: made.Cmd, Start: made.Start,
		Ready: made.Ready, Ports: made.Ports}
	req.Spec, req.templated = made.Spec, t
	return m.overBuild(req, made.Build)
}

// overBuild makes a sandbox be made over what Keep.SaveBuild has kept under an id; "" is nothing.
func (m *Manager) overBuild(req *CreateRequest, id string) (done func(), err error) {
	if done = func() {}; id == "" {
		return done, nil
	}
	from, done, err := m.Keep.Build(id)
	if err != nil {
		return func() {}, err
	}
	req.origin = &origin{Origin: from}
	return done, nil
}

// described notes what the image says of how it runs, under what the spec and the template say.
func (f *creation) described(root *spec.Root) {
	sp := &f.req.Spec
	entry, cmd := root.Config.Entrypoint, root.Config.Cmd
	if t := f.s.templated; t != nil && (t.Entry != nil || t.Cmd != nil) {
		if t.Entry != nil { // as in a Dockerfile: it makes the image's CMD void
			entry, cmd = t.Entry, nil
		}
		if t.Cmd != nil {
			cmd = t.Cmd
		}
	}
	f.s.note(func(r *api.Sandbox) {
		r.Image, r.Digest, r.Note, r.Entry = root.Ref, root.Digest, root.Note, entry
		r.Command = append(append([]string{}, entry...), cmd...)
		r.Workdir = cmp.Or(sp.Workdir, workspace.Dir(sp), root.Config.WorkingDir, "/")
		r.User, r.StopSignal = orElse(sp.User, root.Config.User), orElse(sp.StopSignal, root.Config.StopSignal)
	})
}
