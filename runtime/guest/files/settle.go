package files

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// settle ends what another worker has left half done: it takes a patch back, or tidies up behind one that is applied.
func (c *call) settle() (*filesapi.Reply, error) {
	var args filesapi.SettleArgs
	if err := c.args(&args); err != nil {
		return nil, err
	}
	plan, err := parsePlan(args.Plan)
	if err != nil {
		return nil, err
	}
	p, err := newPatcher(c)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if args.Done {
		return &filesapi.Reply{}, p.tidy(plan)
	}
	return &filesapi.Reply{}, p.rollBack(plan)
}

// parsePlan checks a plan, which hutchd has kept but not looked into.
func parsePlan(data []byte) (*filesapi.PatchPlan, error) {
	plan := &filesapi.PatchPlan{}
	if err := json.Unmarshal(data, plan); err != nil {
		return nil, &problem{unix.EINVAL, "plan: " + err.Error()}
	}
	for _, st := range plan.Steps {
		token, _, ok := strings.Cut(strings.TrimPrefix(st.Temp, ".hutch-"), "-")
		switch st.Kind {
		case filesapi.StepPut:
			ok = ok && st.New != nil
		case filesapi.StepSwap:
			ok = ok && st.New != nil && st.Old != nil
		case filesapi.StepAway:
			ok = ok && st.Old != nil
		default:
			ok = false
		}
		if !ok || token == "" || !strings.HasPrefix(st.Temp, ".hutch-") || !strings.HasSuffix(st.Temp, ".tmp") ||
			strings.Contains(st.Temp, "/") ||
			!plain(st.Path) {
			return nil, &problem{unix.EINVAL, fmt.Sprintf("plan: step %.32q to %.64q by %.64q", st.Kind, st.Path,
				st.Temp)}
		}
	}
	for _, dir := range plan.Folders {
		if !plain(dir) {
			return nil, &problem{unix.EINVAL, fmt.Sprintf("plan: folder %.64q", dir)}
		}
	}
	return plan, nil
}

// plain says that a path leads down, if no link is on it.
func plain(name []byte) bool {
	s := string(name)
	return filepath.IsLocal(s) && path.Clean(s) == s && s != "."
}

// token makes the names of a patch's files its own.
func token() string { return strings.ToLower(rand.Text()[:16]) }

// tokenOf and timeOf are those that a plan was made with.
func tokenOf(plan *filesapi.PatchPlan) string {
	for i := range plan.Steps {
		token, _, _ := strings.Cut(strings.TrimPrefix(plan.Steps[i].Temp, ".hutch-"), "-")
		return token
	}
	return ""
}

func timeOf(plan *filesapi.PatchPlan) (first time.Time) {
	for i := range plan.Steps { // one that was moved to tell files apart is later
		if st := plan.Steps[i].New; st != nil && (first.IsZero() || st.MTime.Before(first)) {
			first = st.MTime
		}
	}
	return first
}

func markOf(st *unix.Stat_t) *filesapi.FileMark {
	return &filesapi.FileMark{Size: st.Size, MTime: mtime(st), Mode: st.Mode}
}

// isMarked says whether a name is the file that a mark was made of. An overlay may give a file another number when it
// is copied up, so that cannot tell.
func isMarked(dir int, name string, mark *filesapi.FileMark, mode bool) bool {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return false
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == mark.Size && mtime(&st).Equal(mark.MTime) &&
		(!mode || st.Mode == mark.Mode)
}

func exists(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// rollBack makes everything as it was before a patch, however far that came: the last step first. What somebody else
// has changed behind the patch stays, and is an error.
func (p *patcher) rollBack(plan *filesapi.PatchPlan) error {
	var errs []error
	for i := len(plan.Steps) - 1; i >= 0; i-- {
		st := &plan.Steps[i]
		dir, err := p.folder(path.Dir(string(st.Path)))
		switch {
		case errors.Is(err, unix.ENOENT): // it was not made, or is gone
			continue
		case err == nil:
			err = at(string(st.Path), stepBack(dir, path.Base(string(st.Path)), st))
		}
		errs = append(errs, err)
	}
	for i := len(plan.Folders) - 1; i >= 0; i-- {
		dir := string(plan.Folders[i])
		up, err := p.folder(path.Dir(dir))
		if err == nil {
			err = unix.Unlinkat(up, path.Base(dir), unix.AT_REMOVEDIR)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) { // somebody else uses it
			errs = append(errs, at(dir, err))
		}
	}
	return joined(errs)
}

// stepBack takes one step back, if it was taken, and removes its file.
func stepBack(dir int, base string, st *filesapi.PatchStep) error {
	others := &problem{unix.ESTALE, "was changed by somebody else meanwhile, and stays so"}
	switch there := exists(dir, st.Temp); {
	case st.Kind == filesapi.StepPut && there: // it is not put yet
	case st.Kind == filesapi.StepPut && isMarked(dir, base, st.New, false):
		return unix.Unlinkat(dir, base, 0)
	case !there: // nothing was done
		return nil
	case st.Kind == filesapi.StepAway:
		err := unix.Renameat2(dir, st.Temp, dir, base, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			return &problem{unix.EEXIST, "was made anew by somebody else meanwhile; what it was before is " + st.Temp}
		}
		return err
	case st.Kind == filesapi.StepSwap && isMarked(dir, st.Temp, st.Old, true) && !isMarked(dir, base, st.Old, true):
		if !isMarked(dir, base, st.New, false) {
			others.detail += "; what it was before is " + st.Temp
			return others
		}
		if err := unix.Renameat2(dir, st.Temp, dir, base, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
	return unix.Unlinkat(dir, st.Temp, 0)
}

// tidy removes the old files of a patch that is applied.
func (p *patcher) tidy(plan *filesapi.PatchPlan) error {
	var errs []error
	for i := range plan.Steps {
		st := &plan.Steps[i]
		if st.Kind == filesapi.StepPut {
			continue
		}
		dir, err := p.folder(path.Dir(string(st.Path)))
		if err == nil {
			err = unix.Unlinkat(dir, st.Temp, 0)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, at(string(st.Path), err))
		}
	}
	return joined(errs)
}

// joined is all errors as one that says which files.
func joined(errs []error) error {
	if err := errors.Join(errs...); err != nil {
		return &problem{unix.EIO, strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return nil
}
