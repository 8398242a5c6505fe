package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// project is a folder of the user's.
var project = map[string]string{"keep": "k", "change": "old\n", "remove": "r", "dir/file": "f", ".git/HEAD": "",
	".git/config": "[core]\n"}

// changed makes a sandbox over it, which has changed something.
func changed(t *testing.T) (r *rig, b *box, host string) {
	t.Helper()
	r, host = newRig(t), files(t, newDir(t), project)
	b = r.attached(api.Spec{Workspace: &api.Workspace{Path: host, Mode: api.ModeOverlay}})
	at := b.binds[0].Source
	files(t, at, map[string]string{"change": "new\n", "add": "a\n", ".git/config": "[alias]\n", "bare/HEAD": "",
		"bare/config": ""})
	must(t, os.Remove(filepath.Join(at, "remove")))
	return r, b, host
}

// TestDiff: what was changed is listed in order, with what is guarded, in pages, and as a text of bounded size.
func TestDiff(t *testing.T) {
	r, b, host := changed(t)
	diff := func(change func(*api.WorkspaceDiffParams)) (api.WorkspaceDiff, error) {
		p := api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: b.id}}
		change(&p)
		return r.ws.Diff(t.Context(), p)
	}
	d, err := diff(func(p *api.WorkspaceDiffParams) { p.Unified = true })
	must(t, err)
	got := map[string]string{}
	for _, c := range d.Changes {
		got[c.Path] = c.Kind + " " + c.Guarded
	}
	for name, want := range map[string]string{"change": "modified ", "add": "added ", "remove": "deleted ",
		".git/config": "modified .git/config", "bare/HEAD": "added bare/HEAD"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q; all %v", name, got[name], want, got)
		}
	}
	if d.Path != host || d.Digest == "" || !strings.Contains(d.Diff, "+new") || d.Truncated || b.still == 0 {
		t.Errorf("%+v, still %d times", d, b.still)
	}
	d, err = diff(func(p *api.WorkspaceDiffParams) { p.Unified, p.MaxBytes = true, 10 })
	if err != nil || !d.Truncated {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := diff(func(p *api.WorkspaceDiffParams) { p.After = "change" }); err != nil ||
		!slices.ContainsFunc(d.Changes, func(c api.WorkspaceChange) bool { return c.Path == "remove" }) ||
		slices.ContainsFunc(d.Changes, func(c api.WorkspaceChange) bool { return c.Path == "change" }) {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := diff(func(p *api.WorkspaceDiffParams) { p.Paths = []string{"./bare/"} }); err != nil ||
		len(d.Changes) != 3 {
		t.Errorf("%+v, %v", d, err)
	}
	long := 1001
	for want, change := range map[string]func(*api.WorkspaceDiffParams){
		"context": func(p *api.WorkspaceDiffParams) { p.Context = &long },
		"max":     func(p *api.WorkspaceDiffParams) { p.MaxBytes = -1 },
		"paths":   func(p *api.WorkspaceDiffParams) { p.Paths = []string{"../x"} },
	} {
		if _, err := diff(change); api.ErrorCode(err) != api.InvalidArgument || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	_, err = diff(func(p *api.WorkspaceDiffParams) { p.Paths = []string{"keep"} })
	refused(t, api.NotFound, err)
	_, err = diff(func(p *api.WorkspaceDiffParams) { p.Sandbox = "none" })
	refused(t, api.NotFound, err)
	b.stopped = true
	_, err = diff(func(*api.WorkspaceDiffParams) {})
	refused(t, api.FailedPrecondition, err)
	plain := r.attached(api.Spec{})
	_, err = diff(func(p *api.WorkspaceDiffParams) { p.Sandbox = plain.id })
	refused(t, api.FailedPrecondition, err)
}

// TestApply: what was changed comes into the user's folder, but for what is guarded, which has to be named; what was
// applied is no change any more.
func TestApply(t *testing.T) {
	r, b, host := changed(t)
	p := api.WorkspaceApplyParams{WorkspaceParams: api.WorkspaceParams{Sandbox: b.id}, Digest: "another"}
	_, err := r.ws.Apply(t.Context(), p, nil)
	refused(t, api.FailedPrecondition, err)
	p.Digest = ""
	p.Hunks = map[string][]int{"add": {1}}
	_, err = r.ws.Apply(t.Context(), p, nil)
	refused(t, api.InvalidArgument, err)
	p.Hunks = nil
	out, err := r.ws.Apply(t.Context(), p, nil)
	must(t, err)
	for name, want := range map[string]string{"change": "new\n", "add": "a\n", "remove": "", ".git/config": "[core]\n",
		"bare/config": ""} {
		reads(t, filepath.Join(host, name), want)
	}
	var guarded []string
	for _, f := range out.Failed {
		if f.Guarded {
			guarded = append(guarded, f.Path)
		}
	}
	if !slices.Contains(out.Applied, "change") || !slices.Contains(guarded, ".git/config") || len(b.audits) != 1 ||
		!slices.Equal(b.audits[0].Paths, out.Applied) {
		t.Errorf("%+v, audited %+v", out, b.audits)
	}
	p.Paths = []string{".git/config"}
	p.Force = true
	_, err = r.ws.Apply(t.Context(), p, nil)
	must(t, err)
	reads(t, filepath.Join(host, ".git/config"), "[alias]\n")

	one, elsewhere := 1, t.TempDir()
	p = api.WorkspaceApplyParams{WorkspaceParams: api.WorkspaceParams{Sandbox: b.id, Paths: []string{"bare"}}, FD: &one}
	_, err = r.ws.Apply(t.Context(), p, taker{1: elsewhere})
	refused(t, api.InvalidArgument, err)
	_, err = r.ws.Apply(t.Context(), p, opener{host})
	must(t, err)
}

// opener opens a folder to be read, as the command line does for root.
type opener struct{ name string }

func (o opener) Take(int) (*os.File, error) { return os.Open(o.name) }

// TestApplyHunks: of a modified file, the parts that are named.
func TestApplyHunks(t *testing.T) {
	lines := func(first, last string) string { return first + strings.Repeat("\nx", 20) + "\n" + last + "\n" }
	r, host := newRig(t), files(t, newDir(t), map[string]string{"f": lines("a", "b")})
	b := r.attached(api.Spec{Workspace: &api.Workspace{Path: host, Mode: api.ModeOverlay}})
	files(t, b.binds[0].Source, map[string]string{"f": lines("A", "B")})
	p := api.WorkspaceApplyParams{WorkspaceParams: api.WorkspaceParams{Sandbox: b.id, Paths: []string{"f"}},
		Hunks: map[string][]int{"f": {2}}}
	_, err := r.ws.Apply(t.Context(), p, nil)
	must(t, err)
	reads(t, filepath.Join(host, "f"), lines("a", "B"))
	long := -1
	p.Context = &long
	_, err = r.ws.Apply(t.Context(), p, nil)
	refused(t, api.InvalidArgument, err)
}

// TestDiscard: what is chosen is as in the user's folder, and the rest stays changed.
func TestDiscard(t *testing.T) {
	r, b, host := changed(t)
	at := b.binds[0].Source
	out, err := r.ws.Discard(t.Context(), api.WorkspaceParams{Sandbox: b.id, Paths: []string{"change", "remove"}})
	must(t, err)
	if !slices.Equal(out.Discarded, []string{"change", "remove"}) || len(out.Failed) > 0 || len(b.audits) != 1 {
		t.Errorf("%+v, audited %+v", out, b.audits)
	}
	reads(t, filepath.Join(at, "change"), "old\n")
	reads(t, filepath.Join(at, "remove"), "r")
	reads(t, filepath.Join(at, "add"), "a\n")
	reads(t, filepath.Join(host, "change"), "old\n")
}

// TestListed: an answer has as many names and failures as fit.
func TestListed(t *testing.T) {
	long := strings.Repeat("x", maxPage/4)
	failure := api.WorkspaceFailure{Path: long, Why: long}
	names, failed, more := listed([]string{long, long, long, long}, []api.WorkspaceFailure{failure, failure, failure})
	if len(names) != 3 || len(failed) != 2 || more != 2 {
		t.Errorf("%d names, %d failures, %d more", len(names), len(failed), more)
	}
}
