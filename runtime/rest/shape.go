package rest

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// Another shape of the same sandboxes (package e2b) is made of what is in this file, and of Create, Attach, SendFile,
// Store, Upload, FormError and ProblemOf: it goes through the same checks, and so gives its clients no more.

// Do calls a method of the daemon's for a client, about what that client may name.
func Do[P, R any](ctx context.Context, s *Server, m api.Call[P, R], p P, opts ...client.CallOption) (R, error) {
	return do(ctx, s, m, p, opts...)
}

// Sandbox finds a sandbox that clients see, by its id or name.
func (s *Server) Sandbox(ctx context.Context, name string) (api.Sandbox, error) {
	sb, err := do(ctx, s, api.CallSandboxGet, api.SandboxParams{Sandbox: name})
	if err == nil && !clientOf(ctx).sees(sb.Labels) {
		err = api.Errorf(api.NotFound, "no sandbox %q", name).WithHint("GET /sandboxes lists them")
	}
	if err != nil {
		return api.Sandbox{}, err
	}
	s.mine.note(sb.ID, sb.Labels)
	return sb, nil
}

// Sandboxes are those that clients see with these labels, oldest first.
func (s *Server) Sandboxes(ctx context.Context, labels map[string]string) ([]api.Sandbox, error) {
	all, err := do(ctx, s, api.CallSandboxList, api.ListParams{Labels: labels})
	return slices.DeleteFunc(all.Sandboxes, func(sb api.Sandbox) bool { return !clientOf(ctx).sees(sb.Labels) }), err
}

// SetNetwork puts a policy in the place of the one that a sandbox has.
func (s *Server) SetNetwork(ctx context.Context, sandbox string, n *NetworkPolicy) error {
	p := n.policy()
	if err := mayReach(ctx, &p); err != nil {
		return err
	}
	_, err := do(ctx, s, api.CallNetworkUpdate, api.NetUpdateParams{Sandbox: sandbox, Network: &p})
	return err
}

// Fork makes forks of what p names, which the client sees, or finds those that a request with the same Idempotency-Key
// has made. own is as of Create.
func (s *Server) Fork(r *http.Request, f *Fork, p api.ForkParams, own map[string]string) (made []api.Sandbox,
	existing bool, err error) {
	all, err := forkLabels(r.Context(), f.Metadata)
	if err != nil {
		return nil, false, err
	}
	for name, value := range own {
		all[labelPrefix+name] = value
	}
	p.Count, p.Name, p.Labels = f.Count, f.Name, all
	return s.once(r, []any{f, p.Sandbox, p.Snapshot}, all, func(ctx context.Context) ([]api.Sandbox, error) {
		release, err := s.reserve(ctx, max(p.Count, 1))
		if err != nil {
			return nil, err
		}
		defer release()
		res, err := do(ctx, s, api.CallSandboxFork, p)
		for i := range res.Sandboxes {
			s.mine.note(res.Sandboxes[i].ID, res.Sandboxes[i].Labels)
		}
		return res.Sandboxes, err
	})
}

// Snapshot keeps what the files of a sandbox are now.
func (s *Server) Snapshot(ctx context.Context, sandbox string, n *NewSnapshot) (api.Snapshot, error) {
	own, err := labels(ctx, n.Metadata)
	if err == nil {
		err = s.mayKeep(ctx)
	}
	if err != nil {
		return api.Snapshot{}, err
	}
	return do(ctx, s, api.CallSnapCreate, api.SnapshotCreateParams{Sandbox: sandbox, Name: n.Name, Labels: own})
}

// Snapshots are those that clients see, of one sandbox where its id is given, oldest first.
func (s *Server) Snapshots(ctx context.Context, sandbox string) ([]api.Snapshot, error) {
	all, err := do(ctx, s, api.CallSnapList, api.SnapshotListParams{Sandbox: sandbox})
	return slices.DeleteFunc(all.Snapshots, func(sn api.Snapshot) bool { return !clientOf(ctx).sees(sn.Labels) }), err
}

// Own is a label that Create or Fork was given as the shape's own, and Metadata what clients have given.
func Own(sb *api.Sandbox, name string) string { return sb.Labels[labelPrefix+name] }

// Metadata is what clients have given a sandbox for labels.
func Metadata(sb *api.Sandbox) map[string]string { return publicLabels(sb.Labels) }

// ReadBody reads a body that is JSON: not too slowly, and not too much of it.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) { return readAll(w, r, maxJSON) }

// SlowBody has a body end when nothing of it comes for too long, whoever reads it.
func SlowBody(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	return io.NopCloser(slowReader{r.Clone(r.Context()), http.NewResponseController(w)})
}

// Guarded refuses what pages of somebody else's send, as this shape does.
func (s *Server) Guarded(h http.Handler) http.Handler { return s.guarded(h) }

// Shaped is an HTTP server for the handler of another shape, with the bounds that this one has.
func (s *Server) Shaped(h http.Handler) *http.Server {
	server := s.HTTP()
	server.Handler = patient(h)
	return server
}

// MaxUpload is how many bytes of a file may be uploaded.
func (s *Server) MaxUpload() int64 { return s.cfg.MaxUpload }
