package rest

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// A client sees what it has made over REST, and nothing else of the user's, unless GrantSandboxes says otherwise: a
// sandbox of the command line may have folders of the host. What was made here has labels, also of whom.
const (
	labelMade   = labelPrefix + "made"
	labelClient = labelPrefix + "client"
)

// maxMine bounds the ids that are remembered. Who falls out is asked about again.
const maxMine = 10_000

// mine knows of sandboxes by their ids who has made them over REST, also of such as have gone. An id is one sandbox's
// for ever.
type mine struct {
	mu  sync.Mutex
	ids map[string]map[string]string // to the labels that say it
}

func (m *mine) note(id string, labels map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil || len(m.ids) >= maxMine {
		m.ids = map[string]map[string]string{}
	}
	m.ids[id] = map[string]string{labelMade: labels[labelMade], labelClient: labels[labelClient]}
}

func (m *mine) labels(id string) (labels map[string]string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	labels, known = m.ids[id]
	return labels, known
}

// owned finds what the path of a request names, and refuses what was not made over REST as if it were not there.
func (s *Server) owned(r *http.Request) error {
	if labels, known := s.mine.labels(ref(r)); known && clientOf(r.Context()).sees(labels) {
		return nil // the call itself says whether it is there still
	}
	if ref(r) != "" {
		sb, err := s.Sandbox(r.Context(), ref(r))
		if err != nil {
			return err
		}
		r.SetPathValue("sandbox", sb.ID) // its name may be another's by the time of the next call
	}
	if name := r.PathValue("snapshot"); name != "" && !clientOf(r.Context()).may(GrantSandboxes) {
		all, err := s.Snapshots(r.Context(), "")
		if err != nil {
			return err
		}
		for i := range all {
			if sn := &all[i]; sn.ID == name || sn.Name == name {
				r.SetPathValue("snapshot", sn.ID)
				return nil
			}
		}
		return api.Errorf(api.NotFound, "no snapshot %q", name).WithHint("GET /snapshots lists them")
	}
	return nil
}

// follows reports whether the client of a request sees events of a sandbox, which may have gone.
func (s *Server) follows(ctx context.Context, id string) bool {
	c := clientOf(ctx)
	if c.may(GrantSandboxes) || id == "" {
		return c.may(GrantSandboxes)
	}
	if labels, known := s.mine.labels(id); known {
		return c.sees(labels)
	}
	sb, err := do(ctx, s, api.CallSandboxGet, api.SandboxParams{Sandbox: id})
	if err != nil && api.ErrorCode(err) != api.NotFound {
		return false // and asked about again
	}
	s.mine.note(id, sb.Labels)
	return c.sees(sb.Labels)
}

// labels are those of what is made for a client: what it gives, but for names of ours.
func labels(ctx context.Context, metadata map[string]string) (map[string]string, error) {
	all := maps.Clone(metadata)
	if all == nil {
		all = map[string]string{}
	}
	for name := range all {
		if strings.HasPrefix(name, labelPrefix) {
			return nil, api.Errorf(api.InvalidArgument, "metadata: %q is hutch web's own", name).WithField("metadata").
				WithHint("take a name that does not begin with %s", labelPrefix)
		}
	}
	all[labelMade] = "1"
	if c := clientOf(ctx); c.Name != "" {
		all[labelClient] = c.Name
	}
	return all, nil
}

// forkLabels are labels of a fork, which has those of its origin besides: but what that was made by is not its own.
func forkLabels(ctx context.Context, metadata map[string]string) (map[string]string, error) {
	all, err := labels(ctx, metadata)
	if err == nil {
		all[labelKey], all[labelBody] = "", ""
	}
	return all, err
}
