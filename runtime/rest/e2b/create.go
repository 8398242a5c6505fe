package e2b

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/registry"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// bases are E2B's own templates. Where hutch has no template of that name they are the programs of this machine.
var bases = []string{"base", "code-interpreter-v1", "code-interpreter"}

// home is where those have the home folder of their user, unless a template of hutch's says where it is.
const home = "/home/user"

// origin is what a template's name stands for: a snapshot, a template of the user's, or an image.
type origin struct {
	snapshot, template, image string
	home                      bool // its processes begin in home
	network                   bool // it says what it may reach
}

// resolve finds what a template's name stands for. A name that could be an image's is one only if it is here or says
// so, by a tag or registry: E2B's errors are of unknown templates, and not of Docker Hub's.
func (s control) resolve(ctx context.Context, name string) (origin, error) {
	shots, err := s.rest.Snapshots(ctx, "")
	if err != nil {
		return origin{}, err
	}
	for i := range shots {
		if sn := &shots[i]; sn.ID == name || sn.Name == name {
			return origin{snapshot: sn.ID}, nil
		}
	}
	templates, err := rest.Do(ctx, s.rest, api.CallTemplateList, api.Empty{})
	if err != nil {
		return origin{}, err
	}
	for i := range templates.Templates {
		if t := &templates.Templates[i]; t.Name == name {
			return origin{template: name, home: slices.Contains(bases, name) && t.Workdir == "",
				network: !t.Network.IsZero()}, nil
		}
	}
	switch {
	case slices.Contains(bases, name):
		return origin{image: "host", home: true}, nil
	case name == "host" || strings.ContainsAny(name, ":/@") || registry.IsRuntime(name):
		return origin{image: name}, nil
	}
	if _, err := rest.Do(ctx, s.rest, api.CallImageInspect, api.RefParams{Ref: name}); err == nil {
		return origin{image: name}, nil
	}
	return origin{}, noTemplate(name)
}

func noTemplate(name string) error {
	return api.Errorf(api.NotFound, "template %q not found", name).
		WithHint("it is base, a template of hutch's (hutch template ls), a snapshot, or an image such as python:3.12")
}

// refused are things that are asked for and that are not here: going on without them would be something else.
func (n *newSandbox) refused() error {
	for what, asked := range map[string]bool{
		"volumeMounts": len(n.VolumeMounts) > 0, "mcp": len(n.MCP) > 0, "iam": len(n.IAM) > 0,
	} {
		if asked {
			return api.Errorf(api.InvalidArgument, "%s: hutch has none of E2B's", what).WithField(what).
				WithHint("docs/e2b.md says what is left out")
		}
	}
	if n.Timeout != nil && (*n.Timeout <= 0 || *n.Timeout > api.MaxSeconds) {
		return api.Errorf(api.InvalidArgument, "timeout: %g is not possible", *n.Timeout).WithField("timeout").
			WithHint("give seconds: 1 to %d", int64(api.MaxSeconds))
	}
	return nil
}

func (s control) create(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var n newSandbox
	if err := decode(w, r, &n); err != nil {
		return 0, nil, err
	}
	if err := n.refused(); err != nil {
		return 0, nil, err
	}
	from, err := s.resolve(r.Context(), n.TemplateID)
	if err != nil {
		return 0, nil, err
	}
	own := n.labels()
	var id string
	if from.snapshot != "" {
		id, err = s.ofSnapshot(r, &n, from.snapshot, own)
	} else {
		id, err = s.ofTemplate(r, &n, from, own)
	}
	if api.ErrorCode(err) == api.NotFound {
		p := rest.ProblemOf(err)
		err = api.Errorf(api.NotFound, "template %q not found: %s", n.TemplateID, p.Detail).WithHint("%s", p.Hint)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.sandboxOf(r, id, n.TemplateID), nil
}

// labels are ours of a new sandbox.
func (n *newSandbox) labels() map[string]string {
	own := map[string]string{labelTemplate: n.TemplateID, labelTimeout: "", labelResume: "", labelPublic: ""}
	if n.Network != nil && n.Network.AllowPublic != nil && *n.Network.AllowPublic {
		own[labelPublic] = "1"
	}
	if n.AutoPause {
		own[labelTimeout] = "pause"
	}
	if n.AutoResume != nil && n.AutoResume.Enabled {
		own[labelResume] = "1"
	}
	return own
}

// onTimeout is what happens when its time is over.
func (n *newSandbox) onTimeout() api.LifeAction {
	switch {
	case n.AutoPause && n.AutoPauseMemory != nil && !*n.AutoPauseMemory:
		return api.LifeStop
	case n.AutoPause:
		return api.LifePause
	}
	return api.LifeRemove
}

func (n *newSandbox) timeout() *float64 {
	t := float64(defaultTimeout)
	if n.Timeout != nil {
		t = *n.Timeout
	}
	return &t
}

func (s control) ofTemplate(r *http.Request, n *newSandbox, from origin, own map[string]string) (string, error) {
	policy, err := n.policy()
	if err != nil {
		return "", err
	}
	if policy == nil && !from.network {
		policy = online()
	}
	asked := rest.NewSandbox{TemplateID: from.template, Image: from.image, Timeout: n.timeout(), Metadata: n.Metadata,
		Env: n.EnvVars, OnTimeout: n.onTimeout(), Network: policy}
	if from.home {
		asked.Workdir, asked.Env = home, map[string]string{"HOME": home}
		maps.Copy(asked.Env, n.EnvVars)
	}
	sb, err := s.rest.Create(r, &asked, own)
	if err == nil && from.home && !sb.Existing {
		_, err = rest.Do(r.Context(), s.rest, api.CallFSMkdir, api.FileMkdirParams{Parents: true,
			FileParams: api.FileParams{Sandbox: sb.SandboxID, Path: home}})
	}
	return sb.SandboxID, err
}

// ofSnapshot makes a sandbox that goes on from the files of a snapshot. What it was made with stays.
func (s control) ofSnapshot(r *http.Request, n *newSandbox, snapshot string, own map[string]string) (string, error) {
	ctx := r.Context()
	if len(n.EnvVars) > 0 || n.AutoPause {
		return "", api.Errorf(api.InvalidArgument,
			"a sandbox of a snapshot has the variables and the end of what that was taken of").
			WithField("envVars").WithHint("leave out envs and lifecycle; commands.run takes envs")
	}
	policy, err := n.policy()
	if err != nil {
		return "", err
	}
	made, existing, err := s.rest.Fork(r, &rest.Fork{Metadata: n.Metadata}, api.ForkParams{Snapshot: snapshot}, own)
	if err != nil {
		return "", err
	}
	id := made[0].ID
	if policy != nil { // also of one that was made before: whoever made it may have got no further
		err = s.rest.SetNetwork(ctx, id, policy)
	}
	if err == nil && !existing {
		err = s.extend(ctx, id, *n.timeout())
	}
	if err != nil { // it would run on with what its origin may
		_, rerr := rest.Do(context.WithoutCancel(ctx), s.rest, api.CallSandboxRemove, api.SandboxParams{Sandbox: id})
		err = errors.Join(err, rerr)
	}
	return id, err
}

// extend has a sandbox live for so many seconds from now on. As with E2B 0 is its end, which is no end to the daemon.
func (s control) extend(ctx context.Context, id string, seconds float64) error {
	seconds = max(seconds, 0.001)
	if err := rest.MayLive(ctx, seconds); err != nil {
		return err
	}
	_, err := rest.Do(ctx, s.rest, api.CallSandboxUpdate, api.UpdateParams{Sandbox: id, TTLS: &seconds})
	return err
}

// endless takes the end of a sandbox away.
func (s control) endless(ctx context.Context, id string) error {
	none := 0.0
	_, err := rest.Do(ctx, s.rest, api.CallSandboxUpdate, api.UpdateParams{Sandbox: id, TTLS: &none})
	return err
}

// alias says whether there is a template of a name.
func (s control) alias(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	name := r.PathValue("name")
	if _, err := s.resolve(r.Context(), name); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"templateID": name, "public": false}, nil
}
