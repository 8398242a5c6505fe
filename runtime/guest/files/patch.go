package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/patch"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// patch says how a patch to the files below a folder changes them or, given that plan, applies it: all of it or
// nothing. What the files become is made in memory first, then in files beside them, and then these take their places,
// each by one system call. When one cannot, the others go back. The plan is all that it takes to do so (settle.go), so
// that another worker can when this one was killed.
func (c *call) patch() (*filesapi.Reply, error) {
	var args filesapi.PatchArgs
	if err := c.args(&args); err != nil {
		return nil, err
	}
	files, err := patch.Parse(args.Patch, args.Strip, args.MaxFiles)
	if err != nil {
		return nil, &problem{unix.EINVAL, err.Error()}
	}
	p, err := newPatcher(c)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.left = args.MaxSize
	result := filesapi.PatchReply{Files: []filesapi.Patched{}}
	for i := range files {
		f := &files[i]
		fit, err := p.prepare(f)
		if err != nil {
			return nil, err
		}
		result.Files = append(result.Files, filesapi.Patched{
			Path: []byte(f.Path), From: []byte(f.From), Kind: string(f.Kind), Hunks: len(f.Hunks), Fuzz: fit.Fuzz,
			Offset: fit.Offset,
		})
	}
	if args.Plan != nil {
		if err := p.apply(args.Plan); err != nil {
			return nil, err
		}
		return c.result(result)
	}
	plan, err := p.makePlan(token(), time.Now().Truncate(time.Microsecond)) // as file systems keep it
	if err != nil {
		return nil, err
	}
	if result.Plan, err = json.Marshal(plan); err == nil && len(result.Plan) > filesapi.MaxPatchPlan {
		err = &problem{unix.EFBIG, "the paths of the patch are too long together"}
	}
	if err != nil {
		return nil, err
	}
	return c.result(result)
}

// patcher changes files below a folder.
type patcher struct {
	c       *call
	top     int
	left    int64 // bytes that may still be read and made
	changes []*change
	fds     []int
}

func newPatcher(c *call) (*patcher, error) {
	top, err := openat(unix.AT_FDCWD, c.Path, unix.O_PATH|unix.O_DIRECTORY, 0)
	return &patcher{c: c, top: top, fds: []int{top}}, err
}

// change is one file that is changed, made or removed.
type change struct {
	file *patch.File
	old  *unix.Stat_t // of the file that there is
	text string
}

func (p *patcher) close() {
	for _, fd := range p.fds {
		_ = unix.Close(fd)
	}
}

// beneath opens what a path of the patch names: never outside of the folder, also not through links.
func (p *patcher) beneath(name string, flags uint64) (fd int, err error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	err = retry(func() error {
		fd, err = unix.Openat2(p.top, name, how)
		return err
	})
	if errors.Is(err, unix.EXDEV) {
		err = &problem{unix.EXDEV, "leads out of the folder"}
	}
	return fd, at(name, err)
}

// prepare makes the new content of a file in memory.
func (p *patcher) prepare(f *patch.File) (patch.Fit, error) {
	if p.c.ctx.Err() != nil {
		return patch.Fit{}, unix.ECANCELED
	}
	ch := &change{file: f}
	content := ""
	from := f.Path
	if f.Kind == patch.Renamed {
		from = f.From
	}
	if f.Kind == patch.Added || f.Kind == patch.Renamed {
		if err := p.free(f.Path); err != nil {
			return patch.Fit{}, err
		}
	}
	if f.Kind != patch.Added {
		var err error
		if content, ch.old, err = p.read(from); err != nil {
			return patch.Fit{}, err
		}
	}
	if f.Kind == patch.Deleted && len(f.Hunks) == 0 {
		p.changes = append(p.changes, ch)
		return patch.Fit{}, nil
	}
	text, fit, err := f.Apply(content)
	if err == nil && f.Kind == patch.Deleted && text != "" {
		err = fmt.Errorf("%s: the patch deletes it, but does not know all of its lines", from)
	}
	if err != nil {
		return fit, &problem{unix.EINVAL, err.Error()} // says which file
	}
	if p.left -= int64(len(text)); p.left < 0 {
		return fit, at(f.Path, &problem{unix.EFBIG, "the files of the patch are too large together"})
	}
	ch.text = text
	p.changes = append(p.changes, ch)
	return fit, nil
}

// free makes sure that nothing is there where a file is to be made.
func (p *patcher) free(name string) error {
	fd, err := p.beneath(name, unix.O_PATH|unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	}
	_ = unix.Close(fd)
	return at(name, &problem{unix.EEXIST, "is there already: patch it, or delete it first"})
}

// read reads a text file that is to be changed.
func (p *patcher) read(name string) (string, *unix.Stat_t, error) {
	fd, err := p.beneath(name, unix.O_PATH|unix.O_NOFOLLOW) // a fifo would hang
	if err != nil {
		return "", nil, err
	}
	st := &unix.Stat_t{}
	err = unix.Fstat(fd, st)
	_ = unix.Close(fd)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = &problem{unix.EOPNOTSUPP, "is a symbolic link: patch what it leads to"}
	}
	if err == nil {
		err = readable(st, false)
	}
	if err == nil && st.Nlink > 1 {
		err = &problem{unix.EOPNOTSUPP, "has several names (hard links): it cannot be replaced atomically"}
	}
	if err != nil {
		return "", nil, at(name, err)
	}
	if fd, err = p.beneath(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW); err != nil {
		return "", nil, err
	}
	defer unix.Close(fd)
	data, err := io.ReadAll(io.LimitReader(file(fd), p.left+1))
	if err == nil {
		err = unix.Fstat(fd, st)
	}
	switch p.left -= int64(len(data)); {
	case err != nil:
	case p.left < 0:
		err = &problem{unix.EFBIG, "the files of the patch are too large together"}
	case bytes.IndexByte(data, 0) >= 0:
		err = &problem{unix.EINVAL, "is binary: it holds a NUL byte"}
	default:
		err = readable(st, false) // it was another one a moment ago
	}
	return string(data), st, at(name, err)
}

// makePlan plans the steps. It needs no more than their names and what the files are: made again, it is the same.
func (p *patcher) makePlan(token string, now time.Time) (*filesapi.PatchPlan, error) {
	plan := &filesapi.PatchPlan{Steps: []filesapi.PatchStep{}}
	made := map[string]bool{}
	step := func(kind, path string, ch *change) {
		st := filesapi.PatchStep{Kind: kind, Path: []byte(path),
			Temp: fmt.Sprintf(".hutch-%s-%d.tmp", token, len(plan.Steps))}
		if kind != filesapi.StepPut {
			st.Old = markOf(ch.old)
		}
		if kind != filesapi.StepAway {
			st.New = &filesapi.FileMark{Size: int64(len(ch.text)), MTime: now.UTC()}
			if st.Old != nil && st.Old.MTime.Equal(st.New.MTime) { // they are to be told apart
				st.New.MTime = st.New.MTime.Add(time.Microsecond)
			}
		}
		plan.Steps = append(plan.Steps, st)
	}
	for _, ch := range p.changes {
		switch f := ch.file; f.Kind {
		case patch.Modified:
			step(filesapi.StepSwap, f.Path, ch)
			continue
		case patch.Deleted:
			step(filesapi.StepAway, f.Path, ch)
			continue
		case patch.Renamed:
			step(filesapi.StepPut, f.Path, ch)
			step(filesapi.StepAway, f.From, ch)
		default:
			step(filesapi.StepPut, f.Path, ch)
		}
		missing, err := p.missing(path.Dir(ch.file.Path), made)
		if err != nil {
			return nil, err
		}
		plan.Folders = append(plan.Folders, missing...)
	}
	return plan, nil
}

// missing lists a folder and those above it that are not there, outer ones first, and notes them.
func (p *patcher) missing(dir string, noted map[string]bool) (list [][]byte, err error) {
	for ; dir != "." && !noted[dir]; dir = path.Dir(dir) {
		fd, err := p.beneath(dir, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			_ = unix.Close(fd)
			break
		}
		if !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		noted[dir] = true
		list = append(list, []byte(dir))
	}
	slices.Reverse(list)
	return list, nil
}

// apply carries a plan out, if it is still the one for these files.
func (p *patcher) apply(data []byte) error {
	plan, err := parsePlan(data)
	if err != nil {
		return err
	}
	again, err := p.makePlan(tokenOf(plan), timeOf(plan))
	if err != nil {
		return err
	}
	if now, err := json.Marshal(again); err != nil || !bytes.Equal(now, data) {
		return &problem{unix.ESTALE, "a file of the patch was changed by somebody else meanwhile"}
	}
	err = p.stage(plan)
	for i := 0; i < len(plan.Steps) && err == nil; i++ {
		err = p.step(&plan.Steps[i])
	}
	if err == nil {
		return nil
	}
	if failed := p.rollBack(plan); failed != nil {
		err = &problem{unix.EIO, err.Error() + "; and what was changed before could not be taken back: " +
			failed.Error()}
	}
	return err
}

// stage makes the folders, and the new files beside their places.
func (p *patcher) stage(plan *filesapi.PatchPlan) error {
	for _, dir := range plan.Folders {
		up, err := p.folder(path.Dir(string(dir)))
		if err == nil {
			err = at(string(dir), unix.Mkdirat(up, path.Base(string(dir)), defaultFolder))
		}
		if err != nil {
			return err
		}
	}
	steps := plan.Steps
	for _, ch := range p.changes {
		st := &steps[0]
		if steps = steps[1:]; ch.file.Kind == patch.Renamed {
			if err := p.writable(string(steps[0].Path)); err != nil {
				return err
			}
			steps = steps[1:]
		}
		if st.Kind != filesapi.StepPut {
			if err := p.writable(string(st.Path)); err != nil {
				return err
			}
		}
		if st.Kind != filesapi.StepAway {
			if err := p.makeTemp(st, ch); err != nil {
				return at(string(st.Path), err)
			}
		}
	}
	return nil
}

// writable refuses to replace what this user may not write to.
func (p *patcher) writable(name string) error {
	dir, err := p.folder(path.Dir(name))
	if err != nil {
		return err
	}
	return at(name, unix.Faccessat(dir, path.Base(name), unix.W_OK, 0))
}

// makeTemp makes the new file of a step.
func (p *patcher) makeTemp(st *filesapi.PatchStep, ch *change) error {
	dir, err := p.folder(path.Dir(string(st.Path)))
	if err != nil {
		return err
	}
	fd, err := openat(dir, st.Temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	tmp := &temp{dir: dir, name: st.Temp, fd: fd}
	defer unix.Close(fd)
	if _, err = io.Copy(file(fd), struct{ io.Reader }{strings.NewReader(ch.text)}); err != nil {
		return err
	}
	mode := uint32(defaultFile)
	if ch.old != nil {
		mode = ch.old.Mode & 0o7777
		if !tmp.owned(&unix.Statx_t{Uid: ch.old.Uid, Gid: ch.old.Gid}) {
			return &problem{unix.EPERM, "belongs to another user: it cannot be replaced"}
		}
	}
	if ch.file.Mode != 0 {
		mode = ch.file.Mode
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	ts := unix.NsecToTimespec(st.New.MTime.UnixNano())
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{ts, ts}, unix.AT_EMPTY_PATH)
}

// step takes one step, after which the patch has one more name.
func (p *patcher) step(st *filesapi.PatchStep) error {
	if p.c.ctx.Err() != nil {
		return unix.ECANCELED
	}
	name := string(st.Path)
	dir, err := p.folder(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch st.Kind {
	case filesapi.StepPut:
		return at(name, unix.Renameat2(dir, st.Temp, dir, base, unix.RENAME_NOREPLACE))
	case filesapi.StepSwap:
		err = unix.Renameat2(dir, st.Temp, dir, base, unix.RENAME_EXCHANGE)
	default:
		err = unix.Renameat2(dir, base, dir, st.Temp, unix.RENAME_NOREPLACE)
	}
	if err == nil && !isMarked(dir, st.Temp, st.Old, true) {
		err = &problem{unix.ESTALE, "was changed by somebody else meanwhile"}
	}
	return at(name, err)
}

// folder opens a folder of the patch.
func (p *patcher) folder(name string) (int, error) {
	fd, err := p.beneath(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	p.fds = append(p.fds, fd)
	return fd, nil
}
