package e2b

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// Labels of ours: what was asked for that the record of a sandbox does not say.
const (
	labelTemplate = "e2b.template"
	labelTimeout  = "e2b.timeout" // pause, where it is not kill
	labelResume   = "e2b.resume"  // requests wake it
	labelPublic   = "e2b.public"  // whoever knows their names reaches its servers
)

// defaultTimeout is how long a sandbox lives whose creator does not say, in seconds.
const defaultTimeout = 300

// control is what E2B serves for an account: sandboxes, snapshots, templates.
type control struct{ *Server }

func (s control) routes() map[string]handler {
	const one = "/sandboxes/{sandbox}"
	return map[string]handler{
		"POST /sandboxes":               s.create,
		"POST /v2/sandboxes":            s.create,
		"GET /sandboxes":                s.listRunning,
		"GET /v2/sandboxes":             s.listPage,
		"GET " + one:                    s.get,
		"DELETE " + one:                 s.kill,
		"POST " + one + "/timeout":      s.setTimeout,
		"POST " + one + "/refreshes":    s.refresh,
		"POST " + one + "/connect":      s.attach,
		"POST /v2" + one + "/connect":   s.attach,
		"POST " + one + "/resume":       s.resume,
		"POST " + one + "/pause":        s.pause,
		"POST " + one + "/fork":         s.fork,
		"POST " + one + "/snapshots":    s.snapshot,
		"PUT " + one + "/network":       s.setNetwork,
		"GET " + one + "/metrics":       s.metrics,
		"GET /snapshots":                s.snapshots,
		"DELETE /templates/{template}":  s.removeSnapshot,
		"GET /templates/aliases/{name}": s.alias,
	}
}

// newSandbox asks for a sandbox.
type newSandbox struct {
	TemplateID      string   `json:"templateID"`
	Timeout         *float64 `json:"timeout"`
	AutoPause       bool     `json:"autoPause"`
	AutoPauseMemory *bool    `json:"autoPauseMemory"`
	AutoResume      *struct{ Enabled bool }
	AllowInternet   *bool             `json:"allow_internet_access"`
	Network         *network          `json:"network"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	MCP             map[string]any    `json:"mcp"`
	IAM             map[string]any    `json:"iam"`
	VolumeMounts    []any             `json:"volumeMounts"`
}

// sandbox is what SDKs need of one.
type sandbox struct {
	TemplateID         string `json:"templateID"`
	SandboxID          string `json:"sandboxID"`
	ClientID           string `json:"clientID"`
	EnvdVersion        string `json:"envdVersion"`
	EnvdAccessToken    string `json:"envdAccessToken,omitempty"`
	TrafficAccessToken string `json:"trafficAccessToken,omitempty"`
	Domain             string `json:"domain,omitempty"`
}

// detail is the record of a sandbox.
type detail struct {
	sandbox
	Alias       string            `json:"alias,omitempty"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	State       string            `json:"state"`
	Metadata    map[string]string `json:"metadata"`
	AllowOnline *bool             `json:"allowInternetAccess,omitempty"`
	Network     *network          `json:"network,omitempty"`
	Lifecycle   *lifecycle        `json:"lifecycle,omitempty"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (s control) sandboxOf(r *http.Request, id, template string) sandbox {
	c := s.client(r)
	return sandbox{TemplateID: template, SandboxID: id, ClientID: "hutch", EnvdVersion: envdVersion,
		EnvdAccessToken: tokenOf(c, id, forAccess), TrafficAccessToken: tokenOf(c, id, forTraffic),
		Domain: net.JoinHostPort(s.cfg.Domain, strconv.Itoa(s.cfg.Port))}
}

func templateOf(sb *api.Sandbox) string {
	return cmp.Or(rest.Own(sb, labelTemplate), sb.Template, sb.Image)
}

// stateOf is running or paused, and "" of a sandbox that E2B would not have any more.
func stateOf(sb *api.Sandbox) string {
	switch {
	case sb.State == api.Running || sb.State == api.Creating:
		return "running"
	case sb.State == api.Paused || sb.State == api.Stopped && sb.Kept:
		return "paused"
	}
	return ""
}

// listed is a sandbox in a list, without its tokens.
func (s control) listed(sb *api.Sandbox) detail {
	const mib = 1 << 20
	name := templateOf(sb)
	d := detail{sandbox: sandbox{TemplateID: name, SandboxID: sb.ID, ClientID: "hutch", EnvdVersion: envdVersion},
		Alias: name, StartedAt: sb.Created.UTC(), EndAt: sb.Created.UTC().AddDate(100, 0, 0),
		CPUCount: runtime.NumCPU(), MemoryMB: max(sb.Limits.MemoryBytes, 0) / mib,
		DiskSizeMB: max(sb.Limits.DiskBytes, 0) / mib, State: stateOf(sb), Metadata: rest.Metadata(sb)}
	if sb.Expires != nil {
		d.EndAt = sb.Expires.UTC()
	}
	if n := int(sb.Limits.CPUs + 0.99); n > 0 {
		d.CPUCount = n
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	return d
}

// found is the sandbox that the path of a request names.
func (s control) found(r *http.Request) (*api.Sandbox, error) {
	id := r.PathValue("sandbox")
	sb, err := s.rest.Sandbox(r.Context(), id)
	if err == nil && stateOf(&sb) == "" {
		err = api.Errorf(api.NotFound, "sandbox %q has ended", id)
	}
	return &sb, err
}

func (s control) get(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	sb, err := s.found(r)
	if err != nil {
		return 0, nil, err
	}
	d := s.listed(sb)
	d.sandbox = s.sandboxOf(r, sb.ID, d.TemplateID)
	d.Network = networkOf(&sb.Network.NetPolicy)
	online := len(d.Network.AllowOut) > 0 || sb.Network.Effective() == api.NetOpen
	d.AllowOnline = &online
	d.Lifecycle = &lifecycle{AutoResume: rest.Own(sb, labelResume) != "",
		OnTimeout: cmp.Or(rest.Own(sb, labelTimeout), "kill")}
	return http.StatusOK, d, nil
}

func (s control) kill(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	sb, err := s.found(r)
	if err == nil {
		s.watchers.forget(sb.ID)
		_, err = rest.Do(r.Context(), s.rest, api.CallSandboxRemove, api.SandboxParams{Sandbox: sb.ID})
	}
	return http.StatusNoContent, nil, err
}

// listRunning is the list of older SDKs, which has no pages.
func (s control) listRunning(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	all, err := s.selected(r, []string{"running"})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.details(all), nil
}

func (s control) details(all []api.Sandbox) []detail {
	list := make([]detail, 0, len(all))
	for i := range all {
		list = append(list, s.listed(&all[i]))
	}
	return list
}

// selected are the sandboxes that the query of a request asks for, oldest first.
func (s control) selected(r *http.Request, states []string) ([]api.Sandbox, error) {
	q := r.URL.Query()
	labels, err := labelsOf(q.Get("metadata"))
	if err != nil {
		return nil, err
	}
	after := time.Time{}
	if text := q.Get("startedAfter"); text != "" {
		if after, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, api.Errorf(api.InvalidArgument, "startedAfter: %w", err)
		}
	}
	template := q.Get("template")
	all, err := s.rest.Sandboxes(r.Context(), labels)
	return slices.DeleteFunc(all, func(sb api.Sandbox) bool {
		return !slices.Contains(states, stateOf(&sb)) || sb.Created.Before(after) ||
			template != "" && template != templateOf(&sb)
	}), err
}

// labelsOf reads metadata of a query, which SDKs escape twice.
func labelsOf(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "metadata: %w", err)
	}
	labels := map[string]string{}
	for k := range values {
		name, err := url.PathUnescape(k)
		value, verr := url.PathUnescape(values.Get(k))
		if err != nil || verr != nil || name == "" {
			return nil, api.Errorf(api.InvalidArgument, "metadata: %.100q is not escaped as SDKs do it", text)
		}
		labels[name] = value
	}
	return labels, nil
}

// listPage lists sandboxes, newest first, a page at a time. The token of a page names the last sandbox of the one
// before: what has come and gone meanwhile shifts nothing.
func (s control) listPage(w http.ResponseWriter, r *http.Request) (int, any, error) {
	states := []string{"running", "paused"}
	q := r.URL.Query()
	if q.Has("state") {
		states = strings.Split(strings.Join(q["state"], ","), ",")
	}
	all, err := s.selected(r, states)
	if err != nil {
		return 0, nil, err
	}
	page, err := rest.Paged(w, r, all, q.Get("order") == "asc", func(sb *api.Sandbox) (time.Time, string) {
		return sb.Created, sb.ID
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.details(page), nil
}
