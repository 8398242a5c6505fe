// Package template keeps what sandboxes can be made by that name it: an image, or another template, with steps that are
// run once in a sandbox, and what is set, started and waited for in each sandbox of it. DESIGN.md says how it is kept
// and built.
package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// Config is what a Set needs.
type Config struct {
	Dir    string // where templates are kept; shared by the daemons of a state folder
	Boxes  *sandbox.Manager
	Images Images
	Logger *slog.Logger
	// Shipped are templates that nobody has made: those of hutch, and of the configuration file.
	Shipped func() []api.TemplateSpec
	// Private says that nobody's sandboxes wait: the daemon lives as long as its owner.
	Private bool
}

// Images is what builds need of the image store; cmd/hutchd joins it with package images.
type Images interface {
	// Base has an image in the store, and says what it is: its full reference, and the digest of its manifest, "" of
	// the host's.
	Base(ctx context.Context, ref, platform string, pull api.PullPolicy, progress func(api.Progress)) (name,
		digest string, err error)
	// Commit makes an image of what a sandbox has written over its own.
	Commit(ctx context.Context, box, ref string, progress func(api.Progress)) error
	Has(ref string) bool
	// Means says that a word that could be the name of a template means an image.
	Means(word string) bool
	List() ([]string, error)
	Remove(ref string) error
}

// Set are the templates of one daemon.
type Set struct {
	cfg   Config
	store store

	mu       sync.Mutex
	building map[string]*site // by template
}

// New makes a Set, and removes what killed daemons have left half done.
func New(cfg Config) (*Set, error) {
	s := &Set{cfg: cfg, store: store{cfg.Dir}, building: map[string]*site{}}
	return s, s.store.open()
}

// maxDepth bounds templates of templates.
const maxDepth = 16

// definition is a template with where it comes from.
type definition struct {
	kept
	shipped bool
}

// find is the template of that name; one that was made goes before a shipped one.
func (s *Set) find(name string) (*definition, error) {
	k, err := s.store.read(name)
	if err == nil {
		return &definition{kept: *k}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, t := range s.cfg.Shipped() {
		if t.Name == name {
			return &definition{kept: kept{Spec: t}, shipped: true}, nil
		}
	}
	return nil, api.Errorf(api.NotFound, "no template %q", name).WithField("template").
		WithHint("hutch template ls lists the templates")
}

// chain is a template, that which it begins with, and so on to one that begins with an image.
func (s *Set) chain(first *definition) ([]*definition, error) {
	list := []*definition{first}
	for d := first; d.Spec.Template != ""; {
		names := make([]string, 0, len(list))
		for _, l := range list {
			names = append(names, l.Spec.Name)
		}
		if slices.Contains(names, d.Spec.Template) {
			return nil, api.Errorf(api.InvalidArgument, "templates go in circles: %s",
				strings.Join(append(names, d.Spec.Template), " begins with ")).
				WithField("template").WithHint("let one of them begin with an image")
		}
		if len(list) == maxDepth {
			return nil, api.Errorf(api.InvalidArgument, "template %s is more than %d templates deep", first.Spec.Name,
				maxDepth).WithField("template").
				WithHint("let one of them begin with an image")
		}
		next, err := s.find(d.Spec.Template)
		if api.ErrorCode(err) == api.NotFound {
			err = api.Errorf(api.NotFound, "template %s begins with %q, which is no template", d.Spec.Name,
				d.Spec.Template).WithField("template").
				WithHint("hutch template ls lists the templates")
		}
		if err != nil {
			return nil, err
		}
		d, list = next, append(list, next)
	}
	return list, nil
}

// whole is what the first of a chain says, with what it does not say from those that it begins with.
func whole(chain []*definition) api.TemplateSpec {
	t := chain[len(chain)-1].Spec
	for _, d := range slices.Backward(chain[:len(chain)-1]) {
		t = d.Spec.On(&t)
	}
	return t
}

// Create keeps a template. It builds nothing.
func (s *Set) Create(ctx context.Context, by sandbox.Caller, p api.TemplateCreateParams) (api.Template, error) {
	if err := p.Validate(); err != nil {
		return api.Template{}, err
	}
	d := &definition{kept: kept{Spec: p.TemplateSpec, User: by.User}}
	list, err := s.chain(d)
	if err != nil {
		return api.Template{}, err
	}
	if err := s.checkPool(&p.TemplateSpec); err != nil {
		return api.Template{}, err
	}
	sp := whole(list)
	if err := sp.Validate(); err != nil { // limits that do not go together
		return api.Template{}, err
	}
	n, err := s.store.begin()
	if err != nil {
		return api.Template{}, err
	}
	defer n.discard()
	if p.Context != nil {
		if err := n.takeContext(ctx, d.Spec.Steps, *p.Context, by.FDs); err != nil {
			return api.Template{}, err
		}
	}
	if err := s.store.put(n, &d.kept, p.Replace); err != nil {
		return api.Template{}, err
	}
	s.cfg.Boxes.Pools.RenewTemplate(p.Name)
	s.keepPool(d)
	return s.Get(ctx, api.TemplateParams{Template: p.Name})
}

// checkPool refuses a pool of a name that is another pool's.
func (s *Set) checkPool(t *api.TemplateSpec) error {
	if t.PoolSize == 0 {
		return nil
	}
	p, err := s.cfg.Boxes.Pools.Status(api.PoolParams{Pool: t.Name})
	if err == nil && p.Sandbox.Template != t.Name {
		return api.Errorf(api.AlreadyExists, "there is a pool %q, which is none of this template", t.Name).
			WithField("pool_size").
			WithHint("choose another name, or remove the pool: hutch pool rm %s", t.Name)
	}
	return nil
}

// keepPool makes the pool of a template what it says.
func (s *Set) keepPool(d *definition) {
	if s.cfg.Private {
		return
	}
	err := s.cfg.Boxes.Pools.KeepTemplate(api.PoolSpec{Name: d.Spec.Name, Size: d.Spec.PoolSize,
		Sandbox: api.Spec{Template: d.Spec.Name}}, d.User)
	if err != nil {
		s.cfg.Logger.Warn("make the pool of a template", "template", d.Spec.Name, "err", err)
	}
}

// Start fills the pools of all templates, once the daemon has taken over what there is.
func (s *Set) Start() {
	all, err := s.definitions()
	if err != nil {
		s.cfg.Logger.Warn("look for templates", "err", err)
	}
	for _, d := range all {
		if d.Spec.PoolSize > 0 {
			s.keepPool(d)
		}
	}
}

// definitions are all templates, by name.
func (s *Set) definitions() ([]*definition, error) {
	byName := map[string]*definition{}
	for _, t := range s.cfg.Shipped() {
		byName[t.Name] = &definition{kept: kept{Spec: t}, shipped: true}
	}
	names, err := s.store.names()
	for _, name := range names {
		if k, err := s.store.read(name); err == nil {
			byName[name] = &definition{kept: *k}
		}
	}
	list := make([]*definition, 0, len(byName))
	for _, d := range byName {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *definition) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return list, err
}

// List lists all templates by name.
func (s *Set) List(context.Context, api.Empty) (out api.Templates, err error) {
	all, err := s.definitions()
	for _, d := range all {
		out.Templates = append(out.Templates, s.describe(d))
	}
	return out, err
}

// Get describes one.
func (s *Set) Get(_ context.Context, p api.TemplateParams) (api.Template, error) {
	d, err := s.find(p.Template)
	if err != nil {
		return api.Template{}, err
	}
	return s.describe(d), nil
}

func (s *Set) describe(d *definition) api.Template {
	t := api.Template{TemplateSpec: d.Spec, Created: d.Created, Shipped: d.shipped}
	if b := s.store.built(d.Spec.Name); b != nil && s.has(b) && b.Spec == digestOf(&d.Spec) {
		t.Built = &b.TemplateBuilt
	}
	return t
}

// Remove removes a template, with what its steps have made unless another one has the same.
func (s *Set) Remove(_ context.Context, p api.TemplateParams) (out api.TemplateRemoved, err error) {
	name := p.Template
	d, err := s.find(name)
	if err != nil {
		return out, err
	}
	if d.shipped {
		return out, api.Errorf(api.FailedPrecondition, "template %s is not one that somebody has made", name).
			WithField("template").
			WithHint("one of that name takes its place: hutch template create; those of the section templates of the configuration file are removed there")
	}
	if err := s.unused(name); err != nil {
		return out, err
	}
	pool := api.PoolParams{Pool: name}
	if p, err := s.cfg.Boxes.Pools.Status(pool); err == nil && p.Sandbox.Template == name {
		if _, err := s.cfg.Boxes.Pools.Remove(pool); err != nil && api.ErrorCode(err) != api.NotFound {
			return out, err
		}
		out.Pooled = p.Available
	}
	out.Sandboxes, _ = s.cfg.Boxes.OfTemplate(name)
	b := s.store.built(name)
	if err := s.store.remove(name); err != nil {
		return out, fmt.Errorf("remove template %s: %w", name, err)
	}
	if b == nil {
		return out, nil
	}
	if gone, err := s.drop(b); err != nil {
		return out, err
	} else if gone {
		out.Image = b.Image
	}
	return out, nil
}

// unused refuses the removal of a template that others begin with, or pools that somebody else has made are of.
func (s *Set) unused(name string) error {
	all, err := s.definitions()
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.Spec.Template == name {
			return api.Errorf(api.FailedPrecondition, "template %s begins with %s", d.Spec.Name, name).
				WithField("template").
				WithHint("remove that one first: hutch template rm %s", d.Spec.Name)
		}
	}
	for _, p := range s.cfg.Boxes.Pools.All() {
		if p.Sandbox.Template == name && p.Name != name {
			return api.Errorf(api.FailedPrecondition, "pool %s is of template %s", p.Name, name).WithField("template").
				WithHint("remove it first: hutch pool rm %s", p.Name)
		}
	}
	return nil
}

// Find is what a sandbox of a spec is made of, for the manager.
func (s *Set) Find(ctx context.Context, sp api.Spec, user uint32, progress func(api.Progress)) (*sandbox.Made, error) {
	name := sp.Template
	if name == "" {
		if !s.named(sp.Image) {
			return nil, nil
		}
		name = sp.Image
	}
	d, err := s.find(name)
	if err != nil {
		return nil, err
	}
	list, err := s.chain(d)
	if err != nil {
		return nil, err
	}
	w := whole(list)
	on, err := s.ensure(ctx, list, &build{user: user, progress: progress})
	if err != nil {
		return nil, err
	}
	made := &sandbox.Made{Template: name, Spec: w.Under(sp), Build: on.keep, Entry: w.Entrypoint, Cmd: w.Cmd,
		Start: w.Start, Ready: w.Ready, Ports: w.Ports}
	made.Spec.Template = ""
	if made.Spec.Image = on.image; on.committed {
		made.Spec.Pull, made.Spec.Platform = api.PullNever, ""
	}
	return made, nil
}

// named says that an image's name is that of a template that somebody has made, and of no image.
func (s *Set) named(image string) bool {
	if !isWord(image) {
		return false
	}
	if _, err := os.Lstat(s.store.file(image)); err != nil {
		return false
	}
	return !s.cfg.Images.Means(image)
}

// isWord says that a name could be a template's: it has none of what only references have, and becomes part of a path.
func isWord(name string) bool {
	t := api.TemplateSpec{Name: name, Image: "host"}
	return t.Validate() == nil
}
