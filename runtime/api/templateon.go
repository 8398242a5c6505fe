package api

import (
	"maps"
	"reflect"
)

// What a template and a sandbox take from the template below.

// Under is what a sandbox is made by that names the template: what sp says goes before what t says. The result has t's
// Image or Template.
func (t *TemplateSpec) Under(sp Spec) Spec {
	sp.Image, sp.Template = t.Image, t.Template
	sp.Env, sp.Labels = over(t.Env, sp.Env), over(t.Labels, sp.Labels)
	sp.Limits = sp.Limits.Over(t.Limits)
	if sp.Network.IsZero() {
		sp.Network = t.Network
	}
	for to, value := range map[*string]string{&sp.Workdir: t.Workdir, &sp.User: t.User, &sp.Platform: t.Platform} {
		if *to == "" {
			*to = value
		}
	}
	if sp.Seccomp == "" {
		sp.Seccomp = t.Seccomp
	}
	sp.WritableUsr = sp.WritableUsr || t.WritableUsr
	return sp
}

// On is t with what it does not say taken from base, the template that it begins with, and that one's image.
func (t *TemplateSpec) On(base *TemplateSpec) TemplateSpec {
	sp := base.Under(t.sandbox())
	r := *t
	r.Image, r.Template, r.Env, r.Labels, r.Limits, r.Network = base.Image, base.Template, sp.Env, sp.Labels, sp.Limits,
		sp.Network
	r.Workdir, r.User, r.Platform, r.Seccomp, r.WritableUsr = sp.Workdir, sp.User, sp.Platform, sp.Seccomp,
		sp.WritableUsr
	if r.Entrypoint == nil && r.Cmd == nil {
		r.Entrypoint, r.Cmd = base.Entrypoint, base.Cmd
	}
	if r.Start == nil {
		r.Start = base.Start
		if r.Ready == nil {
			r.Ready = base.Ready
		}
	}
	if r.Ports == nil {
		r.Ports = base.Ports
	}
	if r.PassEnv == nil {
		r.PassEnv = base.PassEnv
	}
	return r
}

// Over is l with what it does not limit taken from below.
func (l Limits) Over(below Limits) Limits {
	overFields(reflect.ValueOf(&l).Elem(), reflect.ValueOf(below))
	return l
}

func overFields(above, below reflect.Value) {
	for i := range above.NumField() {
		switch f := above.Field(i); {
		case f.Kind() == reflect.Struct:
			overFields(f, below.Field(i))
		case f.IsZero():
			f.Set(below.Field(i))
		}
	}
}

// over is a map with another one over it; nil for two empty ones.
func over(below, above map[string]string) map[string]string {
	if len(below) == 0 {
		return above
	}
	m := maps.Clone(below)
	maps.Copy(m, above)
	return m
}
