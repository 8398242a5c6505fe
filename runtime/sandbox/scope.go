package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// Scopes have at most one sandbox each, which whoever names the scope gets: the first call makes it. What they have is
// in the registry, under its lock.
type Scopes struct{ m *Manager }

// scopeKey names a scope. Those of kind shared are everybody's.
type scopeKey struct {
	user uint32
	api.Scope
}

func keyOf(user uint32, scope api.Scope) scopeKey {
	if scope.Kind == api.ScopeShared {
		user = 0
	}
	scope.Undo = false
	return scopeKey{user, scope}
}

// scope is one that has a sandbox, or in which one is being made.
type scope struct {
	turn admission.Turn // held by whoever makes, finds or removes its sandbox

	// registry.mu guards what follows.
	s       *Sandbox        // nil while there is none
	users   map[uint64]bool // the connections that have asked for it and still are
	waiting int             // for turn, or having it
}

// deserted reports whether it is a session that every connection has left; registry.mu is held.
func (sc *scope) deserted() bool {
	return len(sc.users) == 0 && sc.s != nil && !sc.s.stopped && sc.s.spec.Scope.Kind == api.ScopeSession
}

// create returns the sandbox of the scope that req names, made if there is none.
func (c Scopes) create(ctx context.Context, req CreateRequest) (r api.Sandbox, err error) {
	m := c.m
	sc, leave, err := m.takeScope(ctx, keyOf(req.User, *req.Spec.Scope))
	if err != nil {
		return api.Sandbox{}, err
	}
	defer leave()
	m.mu.Lock()
	s := sc.s
	m.creating[req.Conn]++
	m.mu.Unlock()
	if s == nil {
		if r, err = m.createNew(ctx, req); err == nil {
			s = m.of(r.ID) // nil when it has been removed again
		}
	} else if err = usable(s, &req.Spec); err == nil {
		if r = s.Record(); s.stopped { // it goes on, with the folders that came along now
			if r, err = m.Keep.Start(ctx, keep.Caller{Conn: req.Conn, FDs: req.FDs}, api.StartParams{Sandbox: s.id,
				Folders: workspace.HandedOver(&req.Spec)}); err == nil {
				s = m.of(r.ID)
			}
		}
		r.Existing = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := m.doneCreating(req.Conn)
	if err != nil || s == nil || m.byID[s.id] != s {
		return r, err
	}
	sc.s, s.orphaned = s, false
	if sc.users[req.Conn] = true; gone {
		c.leave(sc, req.Conn)
	}
	return r, nil
}

// leave notes that a connection is gone. A session ends with the last one; registry.mu is held.
func (c Scopes) leave(sc *scope, conn uint64) {
	if delete(sc.users, conn); sc.deserted() {
		c.m.removeLocked(sc.s, sessionEnded)
	}
}

// sessionEnded is why a session's sandbox is removed.
const sessionEnded = "the last connection of its session ended"

// usable refuses a scope's sandbox that has ended by itself, or is another than sp asks for. What sp does not mention
// is as it is.
func usable(s *Sandbox, sp *api.Spec) error {
	scope := *s.spec.Scope
	if st := s.state(); st != api.Running && st != api.Paused && !s.stopped {
		return api.Errorf(api.FailedPrecondition, "the sandbox %s of scope %s is %s", s.id, scope, st).
			WithField("scope").
			WithHint("hutch start %s goes on with its files; hutch scope reset %s makes a new one", s.id, scope)
	}
	has := s.specNow()
	if sp.Template != "" {
		has = s.asked()
	}
	if name := differs(sp, &has); name != "" {
		return api.Errorf(api.FailedPrecondition, "the sandbox %s of scope %s has another %s", s.id, scope, name).
			WithField(name).
			WithHint("leave it out, choose another key, or begin anew: hutch scope end %s", scope)
	}
	return nil
}

// differs is the first field in which a sandbox is another than want asks for, "" for none. Not compared are what tells
// how a sandbox is found, made and ended: scope, labels, pull, keep and the times of its life with their actions.
func differs(want, has *api.Spec) (name string) {
	differ(&name, "image", want.Image, has.Image)
	differ(&name, "template", want.Template, has.Template)
	differ(&name, "name", want.Name, has.Name)
	differ(&name, "env", want.Env, has.Env)
	differ(&name, "workdir", want.Workdir, has.Workdir)
	differ(&name, "user", want.User, has.User)
	differ(&name, "hostname", want.Hostname, has.Hostname)
	differ(&name, "stop_signal", want.StopSignal, has.StopSignal)
	if want.Workspace != nil {
		asked, is := folderOf(want.Workspace), folderOf(has.Workspace)
		if asked.GuardNew == "" || asked.GuardNew == api.GuardAuto {
			asked.GuardNew = is.GuardNew // as it was settled
		}
		differ(&name, "workspace", asked, is)
	}
	differ(&name, "mounts", foldersOf(want.Mounts), foldersOf(has.Mounts))
	differ(&name, "limits", want.Limits, has.Limits)
	if !reflect.ValueOf(want.Network).IsZero() {
		differ(&name, "network", want.Network.Settled(), has.Network.Settled())
	}
	differ(&name, "writable_usr", want.WritableUsr, has.WritableUsr)
	differ(&name, "read_only", want.ReadOnly, has.ReadOnly)
	differ(&name, "hosts", want.Hosts, has.Hosts)
	differ(&name, "cap_drop", want.CapDrop, has.CapDrop)
	differ(&name, "seccomp", want.Seccomp, has.Seccomp)
	differ(&name, "seccomp_profile", want.SeccompProfile, has.SeccompProfile)
	differ(&name, "landlock", want.Landlock, has.Landlock)
	differ(&name, "ids", want.IDs, has.IDs)
	differ(&name, "apparmor", want.AppArmor, has.AppArmor)
	differ(&name, "undo", want.Undo, has.Undo)
	differ(&name, "uploads", want.Uploads, has.Uploads)
	differ(&name, "platform", want.Platform, has.Platform)
	differ(&name, "owner", want.Owner, has.Owner)
	return name
}

// differ sets name to that of a field which want mentions and has differs in, unless another is there.
func differ[T any](name *string, field string, want, has T) {
	if *name == "" && !reflect.ValueOf(&want).Elem().IsZero() && !reflect.DeepEqual(want, has) {
		*name = field
	}
}

// folderOf is a workspace without how it came here.
func folderOf(w *api.Workspace) api.Workspace {
	if w == nil {
		return api.Workspace{Mode: api.ModeNone}
	}
	c := *w
	c.FD = nil
	return c
}

func foldersOf(list []api.Mount) []api.Mount {
	list = slices.Clone(list)
	for i := range list {
		list[i].FD = nil
	}
	return list
}

// List lists the scopes that have a sandbox.
func (c Scopes) List(context.Context, api.Empty) (api.Scopes, error) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []api.ScopeInfo
	for k, sc := range m.scopes {
		if sc.s == nil {
			continue
		}
		r, scope := sc.s.Record(), k.Scope
		scope.Undo = sc.s.spec.Undo
		list = append(list, api.ScopeInfo{Scope: scope, Sandbox: r.ID, Name: r.Name, Image: r.Image, State: r.State,
			Created: r.Created, Connections: len(sc.users)})
	}
	slices.SortFunc(list, func(a, b api.ScopeInfo) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Sandbox, b.Sandbox))
	})
	return api.Scopes{Scopes: list}, nil
}

// Reset puts a new sandbox, made as the old one was, in its place.
func (c Scopes) Reset(ctx context.Context, by Caller, p api.ScopeParams) (api.Sandbox, error) {
	sc, s, leave, err := c.take(ctx, by, p.Scope)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer leave()
	folders, err := workspace.Again(&s.spec, s.dir)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer folders.Close()
	m := c.m
	if _, err := m.Remove(ctx, s.id); err != nil {
		return api.Sandbox{}, err
	}
	r, err := m.createNew(ctx, CreateRequest{Spec: s.asked(), FDs: folders, User: s.user, Conn: by.Conn,
		Progress: func(api.Progress) {}})
	if err != nil {
		return api.Sandbox{}, fmt.Errorf("the sandbox of scope %s was removed, and a new one could not be made: %w",
			p.Scope, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if sc.s = m.byID[r.ID]; sc.deserted() { // all went meanwhile
		m.removeLocked(sc.s, sessionEnded)
	}
	return r, nil
}

// End removes a scope's sandbox.
func (c Scopes) End(ctx context.Context, by Caller, p api.ScopeParams) (api.KillResult, error) {
	_, s, leave, err := c.take(ctx, by, p.Scope)
	if err != nil {
		return api.KillResult{}, err
	}
	defer leave()
	return c.m.Remove(ctx, s.id)
}

// take waits for the turn in a scope that has a sandbox, which leave ends.
func (c Scopes) take(ctx context.Context, by Caller, name api.Scope) (sc *scope, s *Sandbox, leave func(), err error) {
	if err := name.Validate(); err != nil {
		return nil, nil, nil, err
	}
	sc, leave, err = c.m.takeScope(ctx, keyOf(by.User, name))
	if err != nil {
		return nil, nil, nil, err
	}
	c.m.mu.Lock()
	s = sc.s
	c.m.mu.Unlock()
	if s == nil {
		leave()
		return nil, nil, nil, api.Errorf(api.NotFound, "scope %s has no sandbox", name).WithField("scope").
			WithHint("hutch scope ls lists the scopes")
	}
	return sc, s, leave, nil
}
