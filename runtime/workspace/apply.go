package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Apply brings what a sandbox has changed into the user's folder.
func (ws *Workspaces) Apply(ctx context.Context, p api.WorkspaceApplyParams,
	fds packet.Taker) (out api.WorkspaceApplied, err error) {
	out = api.WorkspaceApplied{Applied: []string{}, Failed: []api.WorkspaceFailure{}}
	err = ws.transact(ctx, "workspace.apply", p.Sandbox, func(t *transaction) error {
		all, chosen, err := t.find(ctx, p.WorkspaceParams)
		if err != nil {
			return err
		}
		if p.Digest != "" && p.Digest != changes.Digest(all) {
			return api.Errorf(api.FailedPrecondition, "the sandbox has changed something since that diff").
				WithField("digest").
				WithHint("look at it again: hutch workspace diff %s", t.s.ID())
		}
		var wanted []changes.Change
		for _, c := range chosen {
			name := t.guardedChange(&c)
			named := p.Exact && slices.Contains(p.Paths, c.Path) ||
				slices.ContainsFunc(p.Paths, func(at string) bool { return belongs(at, name) })
			if name != "" && !named {
				out.Failed = append(out.Failed, api.WorkspaceFailure{
					Path: c.Path, Guarded: true,
					Why: "your own programs take instructions from it; name it to apply it",
				})
				continue
			}
			wanted = append(wanted, c)
		}
		if wanted, err = chooseHunks(wanted, &p); err != nil {
			return err
		}
		into, err := t.into(p.FD, fds)
		if err != nil {
			return err
		}
		defer into.Close()
		done, failed, err := changes.Apply(ctx, t.upper, into, wanted, &t.s.Folders().applied, p.Force)
		out.Applied = append(out.Applied, done...)
		for _, f := range failed {
			out.Failed = append(out.Failed, api.WorkspaceFailure{Path: f.Path, Why: f.Why, Conflict: f.Conflict})
		}
		defer func() { out.Applied, out.Failed, out.More = listed(out.Applied, out.Failed) }()
		t.s.Audit(ctx, api.AuditApplied, api.AuditWorkspace{Paths: bounded(done), Failed: len(failed), Force: p.Force})
		return err
	})
	return out, err
}

// maxHunks bounds the numbers of hunks in a call.
const maxHunks = 100_000

// chooseHunks notes at the changes which parts of them are meant.
func chooseHunks(wanted []changes.Change, p *api.WorkspaceApplyParams) ([]changes.Change, error) {
	context, n := 3, 0
	if p.Context != nil {
		context = *p.Context
	}
	if context < 0 || context > 1000 {
		return nil, api.Errorf(api.InvalidArgument, "context: %d lines", context).WithField("context").
			WithHint("use 0 to 1000")
	}
	chosen, at := slices.Clone(wanted), map[string]int{}
	for i, c := range chosen {
		at[c.Path] = i
	}
	for name, hunks := range p.Hunks {
		i, ok := at[path.Clean(name)]
		if n += len(hunks); n > maxHunks {
			return nil, api.Errorf(api.InvalidArgument, "hunks: more than %d", maxHunks).WithField("hunks").
				WithHint("apply whole files")
		}
		if !ok || chosen[i].Kind != changes.Modified || chosen[i].Type != "-" || len(hunks) == 0 {
			return nil, api.Errorf(api.InvalidArgument,
				"hunks: %q is no modified file that is applied, or none of its hunks is named", name).
				WithField("hunks").
				WithHint("apply it as a whole: name it in paths alone")
		}
		chosen[i].Hunks, chosen[i].Context = hunks, context
	}
	return chosen, nil
}

// into opens the folder for writing: as the sandbox's creator gave it or, by root, as the caller does now.
func (t *transaction) into(fd *int, fds packet.Taker) (*os.File, error) {
	if fd == nil {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(t.lower.Fd()), &fs); err != nil {
			return nil, fmt.Errorf("look at the workspace's mount: %w", err)
		}
		if fs.Flags&unix.ST_RDONLY != 0 {
			return nil, api.Errorf(api.FailedPrecondition,
				"%s is read-only for the daemon, which lives as another user than root", t.s.Spec().Workspace.Path).
				WithField("fd").WithHint("hand it over for this call: hutch workspace apply --folder PATH %s", t.s.ID())
		}
		own, err := unix.FcntlInt(t.lower.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("duplicate the workspace's fd: %w", err)
		}
		return os.NewFile(uintptr(own), t.lower.Name()), nil
	}
	given, err := fds.Take(*fd)
	if err != nil {
		return nil, err
	}
	var a, b unix.Stat_t
	err = errors.Join(unix.Fstat(int(given.Fd()), &a), unix.Fstat(int(t.lower.Fd()), &b))
	if err != nil || a.Dev != b.Dev || a.Ino != b.Ino {
		return nil, errors.Join(api.Errorf(api.InvalidArgument,
			"fd: it is not the folder that sandbox %s works on, which is %s", t.s.ID(), t.s.Spec().Workspace.Path).
			WithField("fd").WithHint("name the folder that was given to --workspace"), given.Close())
	}
	return given, nil
}
