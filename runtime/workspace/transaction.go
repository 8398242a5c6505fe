package workspace

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/runtime/api"
)

// A workspace in mode overlay is a transaction: what the sandbox has changed lies in an upper folder of its own, is
// looked at, and is brought into the user's folder or thrown away. The sandbox stands still meanwhile. Its files, and
// those of a hostile PID 1, which is not stopped, are walked by fds that nothing leads out of.

// transaction is the workspace of a sandbox, open.
type transaction struct {
	s                    Sandbox
	upper, lower, merged *os.File
}

func (t *transaction) close() {
	for _, f := range []*os.File{t.upper, t.lower, t.merged} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// transact calls use with the workspace of a sandbox, which stands still.
func (ws *Workspaces) transact(ctx context.Context, op, ref string, use func(t *transaction) error) error {
	s, err := ws.sandboxes.Find(ref)
	if err != nil {
		return err
	}
	w := s.Spec().Workspace
	if w == nil || w.Mode != api.ModeOverlay {
		mode := api.ModeNone
		if w != nil {
			mode = w.Mode
		}
		return api.Errorf(api.FailedPrecondition, "the workspace of sandbox %s is in mode %s", s.ID(), mode).
			WithHint("only what is written in mode overlay can be applied or discarded: --workspace PATH:overlay")
	}
	sorted, err := Sorted(s.Spec())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(sorted, func(m api.Mount) bool { return m.Target == Target })
	return s.Still(ctx, op, func() error {
		if err := s.Mounted(); err != nil {
			return err
		}
		t := &transaction{s: s}
		defer t.close()
		for to, at := range map[**os.File]string{
			&t.upper: filepath.Join(s.Dir(), written, strconv.Itoa(i), "upper"), &t.lower: At(s.Dir(), i),
			&t.merged: At(s.Dir(), i) + mergedSuffix,
		} {
			if *to, err = os.Open(at); err != nil {
				return api.Errorf(api.Internal, "open the workspace of sandbox %s: %w", s.ID(), err).
					WithHint("this is a bug in hutch")
			}
		}
		return use(t)
	})
}

// find returns what was changed, and of that what paths choose.
func (t *transaction) find(ctx context.Context, which api.WorkspaceParams) (all, chosen []changes.Change, err error) {
	paths := which.Paths
	for i, p := range paths {
		if p = path.Clean(p); path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
			return nil, nil, api.Errorf(api.InvalidArgument, "paths: %q is no path in the workspace", paths[i]).
				WithField("paths").
				WithHint("give it relative to the workspace, as src/main.go")
		}
		paths[i] = p
	}
	if all, err = changes.Find(ctx, t.upper, t.lower, &t.s.Folders().applied); errors.Is(err, changes.ErrTooMany) {
		err = api.Errorf(api.ResourceExhausted, "%w", err).WithHint("give the sandbox a smaller folder to work on")
	}
	if err != nil || len(paths) == 0 {
		return all, all, err
	}
	at := map[string]int{}
	for i, p := range paths {
		at[p] = i
	}
	// named is which path a change is at, or below.
	named := func(p string) (int, bool) {
		for ; p != "."; p = path.Dir(p) {
			if i, ok := at[p]; ok || which.Exact {
				return i, ok
			}
		}
		i, ok := at["."]
		return i, ok
	}
	found := make([]bool, len(paths))
	for _, c := range all {
		i, ok := named(c.Path)
		if !ok && c.From != "" && !which.Exact {
			i, ok = named(c.From)
		}
		if ok {
			found[i] = true
			chosen = append(chosen, c)
		}
	}
	if i := slices.Index(found, false); i >= 0 {
		return nil, nil, api.Errorf(api.NotFound, "nothing was changed at %s", paths[i]).WithField("paths").
			WithHint("hutch workspace diff %s lists what was", t.s.ID())
	}
	return all, chosen, nil
}

// belongs says that p is dir or below it.
func belongs(p, dir string) bool { return dir == "." || p == dir || strings.HasPrefix(p, dir+"/") }

// Diff tells what a sandbox has changed in its workspace.
func (ws *Workspaces) Diff(ctx context.Context, p api.WorkspaceDiffParams) (out api.WorkspaceDiff, err error) {
	lines, limit := 3, api.DefaultDiffBytes
	if p.Context != nil {
		lines = *p.Context
	}
	if lines < 0 || lines > 1000 {
		return out, api.Errorf(api.InvalidArgument, "context: %d lines", lines).WithField("context").
			WithHint("use 0 to 1000")
	}
	if p.MaxBytes < 0 || p.MaxBytes > limit {
		return out, api.Errorf(api.InvalidArgument, "max_bytes: %d", p.MaxBytes).WithField("max_bytes").
			WithHint("use 1 to %d, or choose paths", limit)
	}
	if p.MaxBytes > 0 {
		limit = p.MaxBytes
	}
	err = ws.transact(ctx, "workspace.diff", p.Sandbox, func(t *transaction) error {
		all, chosen, err := t.find(ctx, p.WorkspaceParams)
		if err != nil {
			return err
		}
		out.Path, out.Digest, out.Changes = t.s.Spec().Workspace.Path, changes.Digest(all), []api.WorkspaceChange{}
		var page []changes.Change
		if page, out.Next = pageOf(chosen, p.After); p.After != "" {
			p.Unified = false
		}
		for _, c := range page {
			out.Changes = append(out.Changes, api.WorkspaceChange{
				Path: c.Path, Kind: string(c.Kind), From: c.From, Type: c.Type, Mode: c.Mode, Size: c.Size,
				Conflict: c.Conflict, Guarded: t.guardedChange(&c),
			})
		}
		if !p.Unified {
			return nil
		}
		var text strings.Builder
		err = changes.Unified(&text, t.upper, t.lower, chosen, lines, limit)
		if out.Diff = strings.ToValidUTF8(text.String(), "\uFFFD"); errors.Is(err, changes.ErrLong) {
			out.Truncated, err = true, nil
		}
		return err
	})
	return out, err
}

// maxPage bounds the names of an answer, in bytes.
const maxPage = 4 << 20

// pageOf are the changes behind those of the path after that go into one answer, and the path of the last if more
// follow.
func pageOf(all []changes.Change, after string) (page []changes.Change, next string) {
	from := 0
	if after != "" {
		from = sort.Search(len(all), func(i int) bool { return changes.Order(all[i].Path, after) > 0 })
	}
	size := 0
	for i := from; i < len(all); i++ {
		// What has one path stays together.
		if size += len(all[i].Path) + len(all[i].From) + len(all[i].Conflict); size > maxPage && i > from &&
			all[i].Path != all[i-1].Path {
			return all[from:i], all[i-1].Path
		}
	}
	return all[from:], ""
}

// listed are as many names and failures as go into one answer, and how many do not.
func listed(names []string, failed []api.WorkspaceFailure) (_ []string, _ []api.WorkspaceFailure, more int) {
	size, n, f := 0, 0, 0
	for ; n < len(names) && size <= maxPage/2; n++ {
		size += len(names[n])
	}
	for size = 0; f < len(failed) && size <= maxPage/2; f++ {
		size += len(failed[f].Path) + len(failed[f].Why)
	}
	return names[:n], failed[:f], len(names) - n + len(failed) - f
}

// Discard makes what a sandbox has changed as it is in the user's folder. It goes through the overlay itself,
// which must not be changed under its feet.
func (ws *Workspaces) Discard(ctx context.Context, p api.WorkspaceParams) (out api.WorkspaceDiscarded, err error) {
	out = api.WorkspaceDiscarded{Discarded: []string{}, Failed: []api.WorkspaceFailure{}}
	err = ws.transact(ctx, "workspace.discard", p.Sandbox, func(t *transaction) error {
		_, chosen, err := t.find(ctx, p)
		if err != nil {
			return err
		}
		back, err := changes.Inverse(ctx, t.lower, chosen)
		if err != nil {
			return err
		}
		_, failed, err := changes.Apply(ctx, t.lower, t.merged, back, nil, true)
		bad := map[string]bool{}
		for _, f := range failed {
			bad[f.Path] = true
			out.Failed = append(out.Failed, api.WorkspaceFailure{Path: f.Path, Why: f.Why})
		}
		for _, c := range chosen {
			if !bad[c.Path] {
				out.Discarded = append(out.Discarded, c.Path)
			}
		}
		defer func() { out.Discarded, out.Failed, out.More = listed(out.Discarded, out.Failed) }()
		t.s.Audit(ctx, api.AuditDiscarded, api.AuditWorkspace{Paths: bounded(out.Discarded), Failed: len(failed)})
		return err
	})
	return out, err
}

// maxAudited bounds the names of a record.
const maxAudited = 1000

func bounded(names []string) []string { return names[:min(len(names), maxAudited)] }
