package rest

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/registry"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// defaultTimeout is how long a sandbox lives whose creator does not say, in seconds.
const defaultTimeout = 300

// states are those that a list is filtered by.
const states = "(creating|running|paused|waiting|stopped|failed)"

func systemRoutes() []route {
	return []route{
		{method: "GET", path: "/health", name: "getHealth", tag: "system", public: true, answer: of[Health](),
			summary: "Says that the server answers.",
			serve: plain(func(*Server, *http.Request) (any, error) {
				return Health{Status: "ok", Version: version.Version}, nil
			})},
		{method: "GET", path: "/openapi.json", name: "getOpenAPI", tag: "system", public: true,
			answer:  of[map[string]any](),
			summary: "Describes all paths, as OpenAPI 3.1.", serve: plain(openAPI)},
	}
}

func sandboxRoutes() []route {
	return []route{
		{method: "POST", path: "/sandboxes", name: "createSandbox", tag: "sandboxes", code: http.StatusCreated,
			summary: "Makes a sandbox.", headers: []parameter{idempotency}, body: of[NewSandbox](),
			answer: of[Sandbox](),
			notes:  "The answer comes when it runs. An image that is not there is pulled first.",
			serve:  asked((*Server).create)},
		{method: "GET", path: "/sandboxes", name: "listSandboxes", tag: "sandboxes", answer: of[Sandboxes](),
			summary: "Lists the sandboxes, oldest first.",
			query: []parameter{{name: "metadata", kind: "string",
				doc: "only those with this metadata: KEY=VALUE, more of them joined by &, escaped as a query"},
				{name: "state", kind: "string", doc: "only those in one of these states, joined by commas",
					pattern: "^(" + states + ")(," + states + ")*$"}},
			paged: true, serve: (*Server).list},
		{method: "GET", path: oneSandbox, name: "getSandbox", tag: "sandboxes", answer: of[Sandbox](),
			summary: "Returns the record of a sandbox, by id or name.",
			serve:   plain(func(s *Server, r *http.Request) (any, error) { return shown(s.find(r)) })},
		{method: "PATCH", path: oneSandbox, name: "updateSandbox", tag: "sandboxes", body: of[SandboxUpdate](),
			answer: of[Sandbox](), summary: "Changes the timeout, limits or network of a sandbox.",
			serve: asked((*Server).update)},
		{method: "DELETE", path: oneSandbox, name: "removeSandbox", tag: "sandboxes",
			summary: "Kills all processes of a sandbox and removes it with its files.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				_, err := do(r.Context(), s, api.CallSandboxRemove, api.SandboxParams{Sandbox: ref(r)})
				return nil, err
			})},
		{method: "POST", path: oneSandbox + "/pause", name: "pauseSandbox", tag: "sandboxes", answer: of[Sandbox](),
			summary: "Stops the processes of a sandbox in their tracks; the next call that needs them resumes it.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				return shown(do(r.Context(), s, api.CallSandboxPause, api.SandboxParams{Sandbox: ref(r)}))
			})},
		{method: "POST", path: oneSandbox + "/resume", name: "resumeSandbox", tag: "sandboxes", answer: of[Sandbox](),
			summary: "Lets a sandbox go on that was paused, or starts one that was stopped.",
			serve:   plain((*Server).resume)},
		{method: "POST", path: oneSandbox + "/stop", name: "stopSandbox", tag: "sandboxes", answer: of[Sandbox](),
			summary: "Ends the processes of a sandbox and keeps its files until it is resumed or removed.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				res, err := do(r.Context(), s, api.CallSandboxStop, api.StopParams{Sandbox: ref(r)})
				return shown(res.Sandbox, err)
			})},
		{method: "POST", path: oneSandbox + "/fork", name: "forkSandbox", tag: "sandboxes", code: http.StatusCreated,
			body: of[Fork](), answer: of[Sandboxes](), summary: "Makes sandboxes that go on from the files of another.",
			headers: []parameter{idempotency},
			notes:   "Processes and memory are not in them.", serve: asked((*Server).fork)},
		{method: "GET", path: oneSandbox + "/metrics", name: "getMetrics", tag: "sandboxes", answer: of[api.Stats](),
			summary: "Says what a sandbox uses, and has used, of CPU time, memory, processes and disk.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				return answered(do(r.Context(), s, api.CallSandboxStats, api.SandboxParams{Sandbox: ref(r)}))
			})},
		{method: "GET", path: oneSandbox + "/network", name: "getNetwork", tag: "sandboxes", answer: of[api.Network](),
			summary: "Says what the network policy of a sandbox is, and what it has refused, with the reason.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				return answered(do(r.Context(), s, api.CallNetworkGet, api.SandboxParams{Sandbox: ref(r)}))
			})},
	}
}

// answered makes what a call returns a handler's answer.
func answered[R any](r R, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// shown is answered of a sandbox.
func shown(sb api.Sandbox, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return sandboxOf(&sb), nil
}

// spec is what the daemon is asked for.
func (s *Server) spec(ctx context.Context, n *NewSandbox) (api.Spec, error) {
	own, err := labels(ctx, n.Metadata)
	if err != nil {
		return api.Spec{}, err
	}
	sp := api.Spec{Template: n.TemplateID, Image: n.Image, Name: n.Name, Labels: own, Env: n.Env,
		Workdir: n.Workdir, User: n.User, Limits: n.Limits.limits(), Network: n.Network.policy(), Undo: n.Undo,
		ReadOnly: n.ReadOnly, Seccomp: n.Seccomp, Scope: n.Scope.scope(), TTLAction: n.OnTimeout, TTLS: defaultTimeout}
	if n.TemplateID == "" && n.Image == "" {
		sp.Image = "host"
	}
	for field, v := range map[string]*float64{"timeout": n.Timeout, "idle": n.Idle} {
		if err := checkSeconds(field, v); err != nil {
			return sp, err
		}
	}
	if n.Timeout != nil {
		sp.TTLS = *n.Timeout
	}
	if n.Idle != nil {
		sp.IdleS = *n.Idle
	}
	if len(n.Volumes) > 0 { // they are the user's, whoever has filled them
		if err := granted(ctx, GrantSandboxes, "a volume of the user's"); err != nil {
			return sp, err
		}
	}
	for _, v := range n.Volumes {
		m := api.Mount{Volume: v.Name, Target: v.Path, Mode: api.ModeRW}
		if v.ReadOnly {
			m.Mode = api.ModeRO
		}
		sp.Mounts = append(sp.Mounts, m)
	}
	sp.Pull = s.pull(sp.Image)
	if err := clientOf(ctx).mayMake(n, &sp); err != nil {
		return sp, err
	}
	return sp, mayReach(ctx, &sp.Network)
}

// pull is whether an image may be fetched: of Docker Hub, and of registries that the user has named. A registry may be
// anything, a service of this machine or its network, too.
func (s *Server) pull(image string) api.PullPolicy {
	host := registry.Of(image)
	if image == "" || registry.IsRuntime(image) || host == registry.DockerHub ||
		slices.Contains(s.cfg.Registries, host) {
		return ""
	}
	return api.PullNever
}

// mayReach refuses a policy that lets a sandbox reach ports of the host or what lies around it, unless that is granted:
// a name leads where its owner says, to the host's loopback, too, and a range of that would let it.
func mayReach(ctx context.Context, p *api.NetPolicy) error {
	for _, entry := range p.Allow {
		pattern, err := api.ParseNetPattern(entry)
		if err != nil {
			continue // the daemon says what is wrong
		}
		if pattern.Name == api.HostName {
			if err := granted(ctx, GrantHostPorts, "the port "+entry+" of this machine"); err != nil {
				return err
			}
		}
	}
	for _, entry := range p.AllowCIDRs {
		if near(entry) {
			what := "the address " + entry + ", which may be this machine's or its network's,"
			if err := granted(ctx, GrantHostPorts, what); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserved are ranges besides those that netip knows which are no public internet (IANA's special-purpose registries),
// or in which an address is that of another range: 6to4, Teredo. The cloud's host agent of 168.63.129.16 is as near.
var reserved = func() (all []netip.Prefix) {
	for _, text := range strings.Fields(`0.0.0.0/8 100.64.0.0/10 168.63.129.16/32 192.0.0.0/24 192.0.2.0/24
		192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4
		::/3 2001::/23 2001:db8::/32 2002::/16 3fff::/20 4000::/2 8000::/1`) {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// near reports whether an entry of allowCIDRs names what is not of the public internet: the host, or what may be of its
// network. Larger ranges, in which such addresses lie, do not open them (netfilter/policy, address).
func near(entry string) bool {
	p, err := netip.ParsePrefix(entry)
	if err != nil {
		a, err := netip.ParseAddr(entry)
		if err != nil {
			return false // the daemon says what is wrong
		}
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
	}
	if p.Bits() == 0 {
		return false
	}
	a := p.Masked().Addr()
	if a.Is4In6() || !a.IsGlobalUnicast() || a.IsPrivate() {
		return true
	}
	if slices.ContainsFunc(reserved, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(a) }) {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return p.IsSingleIP() && slices.ContainsFunc(own, func(o net.Addr) bool {
		n, ok := o.(*net.IPNet)
		return ok && n.IP.Equal(a.AsSlice())
	})
}

func (s *Server) create(r *http.Request, n *NewSandbox) (any, error) {
	return answered(s.Create(r, n, nil))
}

// Create makes a sandbox, or finds the one that a request with the same Idempotency-Key has made. own are labels of the
// shape that asks, which clients do not see.
func (s *Server) Create(r *http.Request, n *NewSandbox, own map[string]string) (Sandbox, error) {
	sp, err := s.spec(r.Context(), n)
	if err != nil {
		return Sandbox{}, err
	}
	for name, value := range own {
		sp.Labels[labelPrefix+name] = value
	}
	made, _, err := s.once(r, n, sp.Labels, func(ctx context.Context) ([]api.Sandbox, error) {
		sb, err := s.createSpec(ctx, sp)
		return []api.Sandbox{sb}, err
	})
	if err != nil {
		return Sandbox{}, err
	}
	return sandboxOf(&made[0]), nil
}

func (s *Server) createSpec(ctx context.Context, sp api.Spec) (api.Sandbox, error) {
	release, err := s.reserve(ctx, 1)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer release()
	sb, err := do(ctx, s, api.CallSandboxCreate, api.CreateParams{Spec: sp})
	if sp.Pull == api.PullNever && api.ErrorCode(err) == api.NotFound {
		err = api.Errorf(api.PermissionDenied, "image %.200q is not here, and clients may not have it fetched: %w",
			sp.Image, err).WithField("image").
			WithHint("whoever runs hutch web may allow its registry: --registry %.200s", registry.Of(sp.Image))
	}
	if err == nil && !clientOf(ctx).sees(sb.Labels) { // of a scope that has one
		err = api.Errorf(api.PermissionDenied, "the sandbox of scope %s was not made over REST", sp.Scope).
			WithField("scope").WithHint("whoever runs hutch web may grant it: --grant %s", GrantSandboxes)
	}
	if err == nil {
		s.mine.note(sb.ID, sb.Labels)
	}
	return sb, err
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	labels, err := labelQuery(q.Get("metadata"))
	if err != nil {
		return nil, err
	}
	if q.Has("state") {
		if err := checkStates(q.Get("state")); err != nil {
			return nil, err
		}
	}
	all, err := s.Sandboxes(r.Context(), labels)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(sb api.Sandbox) bool { return !isIn(q.Get("state"), string(sb.State)) })
	page, err := Paged(w, r, all, true, func(sb *api.Sandbox) (time.Time, string) { return sb.Created, sb.ID })
	return Sandboxes{Sandboxes: list(page, sandboxOf)}, err
}

// checkStates refuses a filter by what is no state.
func checkStates(list string) error {
	for state := range strings.SplitSeq(list, ",") {
		switch api.State(strings.TrimSpace(state)) {
		case api.Creating, api.Running, api.Paused, api.Waiting, api.Stopped, api.Failed:
		default:
			return api.Errorf(api.InvalidArgument, "state: %q is no state", state).WithField("state").
				WithHint("use creating, running, paused, waiting, stopped or failed")
		}
	}
	return nil
}

// isIn reports whether a list with commas has a word, or is empty.
func isIn(list, word string) bool {
	if list == "" {
		return true
	}
	for part := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(part) == word {
			return true
		}
	}
	return false
}

func (s *Server) update(r *http.Request, u *SandboxUpdate) (any, error) {
	if u.Timeout == nil && u.Limits == nil && u.Network == nil {
		return nil, api.Errorf(api.InvalidArgument, "nothing to change").WithHint("give timeout, limits or network")
	}
	limits := u.Limits.limits()
	if err := clientOf(r.Context()).mayHave(&limits, false); err != nil {
		return nil, err
	}
	if u.Timeout != nil {
		if err := MayLive(r.Context(), *u.Timeout); err != nil {
			return nil, err
		}
	}
	if u.Network != nil { // first: it may be refused
		if err := s.SetNetwork(r.Context(), ref(r), u.Network); err != nil {
			return nil, err
		}
	}
	if u.Timeout == nil && u.Limits == nil {
		return shown(s.find(r))
	}
	return shown(do(r.Context(), s, api.CallSandboxUpdate, api.UpdateParams{Sandbox: ref(r), Limits: limits,
		TTLS: u.Timeout}))
}

func (s *Server) resume(r *http.Request) (any, error) {
	sb, err := s.find(r)
	if err != nil {
		return nil, err
	}
	if sb.State == api.Stopped && sb.Kept {
		return shown(do(r.Context(), s, api.CallSandboxStart, api.StartParams{Sandbox: sb.ID}))
	}
	return shown(do(r.Context(), s, api.CallSandboxResume, api.SandboxParams{Sandbox: sb.ID}))
}

func (s *Server) fork(r *http.Request, f *Fork) (any, error) {
	return s.forked(r, f, api.ForkParams{Sandbox: ref(r)})
}

// forked makes forks of what p names.
func (s *Server) forked(r *http.Request, f *Fork, p api.ForkParams) (any, error) {
	made, _, err := s.Fork(r, f, p, nil)
	if err != nil {
		return nil, err
	}
	return Sandboxes{Sandboxes: list(made, sandboxOf)}, nil
}
