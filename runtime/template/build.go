package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

const (
	// imagePrefix begins the references of committed images, which end with the first digits of their keys.
	imagePrefix = "localhost/hutch-template:"
	keepPrefix  = "tp_"
	keyDigits   = 32
	hostImage   = "host"
)

// build is one call that needs what came of steps.
type build struct {
	user     uint32
	progress func(api.Progress)
	// check looks whether it is still what it would be now; otherwise what is there will do.
	check   bool
	noCache bool
	pull    api.PullPolicy

	ran    int  // steps
	cached bool // nothing was to be done
}

// ground is what sandboxes of a template, or the steps of another one, begin with.
type ground struct {
	image     string
	committed bool   // by steps
	keep      string // what is kept in the place of an image
	digest    string // of its manifest, or the key of the steps
}

func (s *Set) has(b *builtRecord) bool {
	if b.Keep != "" {
		return s.cfg.Boxes.Keep.HasBuild(b.Keep)
	}
	return s.cfg.Images.Has(b.Image)
}

func groundOf(b *builtRecord) *ground {
	if b.Keep != "" {
		return &ground{image: hostImage, keep: b.Keep, digest: b.Key}
	}
	return &ground{image: b.Image, committed: true, digest: b.Key}
}

// ensure has the steps of a chain run where they have to be, and returns what sandboxes of its first template begin
// with.
func (s *Set) ensure(ctx context.Context, chain []*definition, o *build) (*ground, error) {
	d := chain[0]
	if len(d.Spec.Steps) == 0 {
		return s.below(ctx, chain, o)
	}
	if b := s.store.built(d.Spec.Name); !o.check && b != nil && b.Spec == digestOf(&d.Spec) && s.has(b) {
		return groundOf(b), nil
	}
	seen, leave, err := s.turn(ctx, d.Spec.Name, o.progress)
	if err != nil {
		return nil, err
	}
	defer leave()
	defer func() {
		if o.cached { // by who had the turn before
			o.ran += seen
		}
	}()
	// who had the turn has built it
	if b := s.store.built(d.Spec.Name); !o.check && b != nil && b.Spec == digestOf(&d.Spec) && s.has(b) {
		return groundOf(b), nil
	}
	return s.build(ctx, chain, o)
}

// below is what a template begins with.
func (s *Set) below(ctx context.Context, chain []*definition, o *build) (*ground, error) {
	if len(chain) > 1 {
		return s.ensure(ctx, chain[1:], o)
	}
	return &ground{image: chain[0].Spec.Image}, nil
}

// build runs the steps unless what they would make is there. The caller has the turn.
func (s *Set) build(ctx context.Context, chain []*definition, o *build) (*ground, error) {
	d, t := chain[0], whole(chain)
	shared, err := s.store.lock(".building", unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	own := o.progress
	o.progress = s.toAll(d.Spec.Name, own)
	defer func() { o.progress = own }()
	on, err := s.below(ctx, chain, o)
	if err != nil {
		return nil, err
	}
	if on.digest == "" {
		name, digest, err := s.cfg.Images.Base(ctx, on.image, t.Platform, o.pull, o.progress)
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", d.Spec.Name, err)
		}
		on.image, on.digest = name, digest
	}
	b := &builtRecord{Spec: digestOf(&d.Spec)}
	b.Key, b.Base, b.Time = keyOf(on, &t, d.Spec.Steps), on.image, time.Now().UTC().Truncate(time.Second)
	if on.image == hostImage {
		b.Keep = keepPrefix + b.Key[:keyDigits]
	} else {
		b.Image = imagePrefix + b.Key[:keyDigits]
	}
	was := s.store.built(d.Spec.Name)
	o.cached = !o.noCache && s.has(b)
	switch {
	case o.cached && was != nil && was.Key == b.Key:
		b.Time = was.Time
	case o.cached: // of another template, or of what this one was before
	default:
		if err := s.run(ctx, &job{d: d, t: &t, on: on, to: b, build: o}); err != nil {
			return nil, err
		}
	}
	if err := s.store.setBuilt(d.Spec.Name, b); err != nil {
		return nil, err
	}
	if was != nil && was.Key != b.Key {
		if _, err := s.drop(was); err != nil {
			s.cfg.Logger.Warn("remove what was built before", "template", d.Spec.Name, "err", err)
		}
	}
	return groundOf(b), nil
}

// keyOf is the digest of all that makes a difference to what steps make.
func keyOf(on *ground, t *api.TemplateSpec, steps []api.TemplateStep) string {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Line, steps[i].TimeoutS = 0, 0
		if c := steps[i].Copy; c != nil {
			steps[i].Copy = &api.TemplateCopy{Target: c.Target, Digest: c.Digest}
		}
	}
	data, _ := json.Marshal(map[string]any{ // it came as JSON
		"version": 1, "on": on.digest, "image": on.image == hostImage, "platform": t.Platform, "env": t.Env,
		"workdir": t.Workdir,
		"usr":     t.WritableUsr, "seccomp": t.Seccomp, "steps": steps,
	})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// drop removes what was built unless a template still has it.
func (s *Set) drop(b *builtRecord) (gone bool, err error) {
	all, err := s.store.allBuilt()
	if err != nil || slices.ContainsFunc(all, func(o *builtRecord) bool { return o.Key == b.Key }) {
		return false, err
	}
	if b.Keep != "" {
		return true, s.cfg.Boxes.Keep.DropBuild(b.Keep)
	}
	if err := s.cfg.Images.Remove(b.Image); err != nil && api.ErrorCode(err) != api.NotFound {
		return false, err
	}
	return true, nil
}

// Sweep removes what builds have left whose daemon was killed, unless somebody builds.
func (s *Set) Sweep() error {
	f, err := s.store.lock(".building", unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil //nolint:nilerr // somebody builds: the next one sweeps
	}
	defer f.Close()
	all, err := s.store.allBuilt()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, b := range all {
		known[b.Image], known[b.Keep] = true, true
	}
	refs, err := s.cfg.Images.List()
	errs := []error{err}
	for _, ref := range refs {
		if len(ref) > len(imagePrefix) && ref[:len(imagePrefix)] == imagePrefix && !known[ref] {
			errs = append(errs, s.cfg.Images.Remove(ref))
		}
	}
	kept, err := s.cfg.Boxes.Keep.Builds()
	errs = append(errs, err)
	for _, id := range kept {
		if !known[id] {
			errs = append(errs, s.cfg.Boxes.Keep.DropBuild(id))
		}
	}
	return errors.Join(errs...)
}

// Uses says that an image is what the steps of a template have made.
func (s *Set) Uses(ref string) (template string, ok bool) {
	all, err := s.definitions()
	if err != nil {
		return "", false
	}
	for _, d := range all {
		if b := s.store.built(d.Spec.Name); b != nil && b.Image == ref && ref != "" {
			return d.Spec.Name, true
		}
	}
	return "", false
}

// Build runs the steps of a template, and of those that it begins with, where something has changed.
func (s *Set) Build(ctx context.Context, by sandbox.Caller, p api.TemplateBuildParams) (out api.TemplateBuildResult,
	err error) {
	d, err := s.find(p.Template)
	if err != nil {
		return out, err
	}
	chain, err := s.chain(d)
	if err != nil {
		return out, err
	}
	before := s.store.built(p.Template)
	o := &build{user: by.User, progress: by.Progress, check: true, noCache: p.NoCache, pull: p.Pull}
	if _, err := s.ensure(ctx, chain, o); err != nil {
		return out, err
	}
	if out.Template, err = s.Get(ctx, api.TemplateParams{Template: p.Template}); err != nil {
		return out, err
	}
	steps := slices.ContainsFunc(chain, func(d *definition) bool { return len(d.Spec.Steps) > 0 })
	out.Ran, out.Cached = o.ran, steps && o.ran == 0
	if after := s.store.built(p.Template); o.ran > 0 || before != nil && after != nil && before.Key != after.Key {
		s.cfg.Boxes.Pools.RenewTemplate(p.Template)
	}
	return out, nil
}

// job is one run of the steps of a template.
type job struct {
	*build
	d   *definition
	t   *api.TemplateSpec
	on  *ground
	to  *builtRecord
	box string
}

// run runs the steps in a sandbox of its own, which goes whatever comes of it, and keeps what they have written.
func (s *Set) run(ctx context.Context, j *job) (err error) {
	sp := j.t.Under(api.Spec{})
	sp.Image, sp.Template, sp.User, sp.Workdir = j.on.image, "", "", ""
	sp.Labels = map[string]string{"hutch.template": j.d.Spec.Name}
	if sp.Limits = j.d.Spec.Build.Limits.Over(sp.Limits); !j.d.Spec.Build.Network.IsZero() {
		sp.Network = j.d.Spec.Build.Network
	}
	if j.on.committed {
		sp.Pull, sp.Platform = api.PullNever, ""
	}
	r, err := s.cfg.Boxes.Create(ctx, sandbox.CreateRequest{Spec: sp, User: j.user, Progress: j.progress,
		Building: true, Over: j.on.keep})
	if err != nil {
		return fmt.Errorf("make a sandbox for the steps of template %s: %w", j.d.Spec.Name, err)
	}
	j.box = r.ID
	defer func() {
		_, rerr := s.cfg.Boxes.Remove(context.WithoutCancel(ctx), r.ID)
		if api.ErrorCode(rerr) != api.NotFound {
			err = errors.Join(err, rerr)
		}
	}()
	for i := range j.d.Spec.Steps {
		j.tell(i+1, api.StepProgress{Text: j.d.Spec.Steps[i].String()})
		if err := s.step(ctx, j, i); err != nil {
			return err
		}
		j.ran++
	}
	if j.t.Workdir != "" {
		if err := s.folder(ctx, j, j.t.Workdir); err != nil {
			return fmt.Errorf("make the working directory of template %s: %w", j.d.Spec.Name, err)
		}
	}
	j.tell(len(j.d.Spec.Steps)+1, api.StepProgress{Text: "commit"})
	if j.to.Keep != "" {
		if j.noCache { // it cannot be in the place of what is there
			if err := s.cfg.Boxes.Keep.DropBuild(j.to.Keep); err != nil {
				return err
			}
		}
		return s.cfg.Boxes.Keep.SaveBuild(ctx, r.ID, j.to.Keep)
	}
	return s.cfg.Images.Commit(ctx, r.ID, j.to.Image, j.progress)
}

func (j *job) tell(step int, p api.StepProgress) {
	p.Template, p.Step, p.Steps = j.d.Spec.Name, step, len(j.d.Spec.Steps)
	j.progress(api.Progress{Kind: "template.step", Step: &p})
}

// environment is the template's env with a step's over it.
func environment(t *api.TemplateSpec, step *api.TemplateStep) map[string]string {
	env := map[string]string{}
	maps.Copy(env, t.Env)
	maps.Copy(env, step.Env)
	return env
}
