package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/patch"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// patch applies a patch to the files below a folder: all of it or nothing. What the files become is made in memory
// first, then in files beside them, and then these take their places; when one can not, the others go back.
func (c *call) patch() (*filesapi.Reply, error) {
	var args filesapi.PatchArgs
	if err := c.args(&args); err != nil {
		return nil, err
	}
	files, err := patch.Parse(args.Patch, args.Strip, args.MaxFiles)
	if err != nil {
		return nil, &problem{unix.EINVAL, err.Error()}
	}
	top, err := openat(unix.AT_FDCWD, c.Path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(top)
	p := &patcher{c: c, top: top, left: args.MaxSize}
	defer p.close()
	result := []filesapi.Patched{}
	for i := range files {
		f := &files[i]
		fit, err := p.prepare(f)
		if err != nil {
			return nil, err
		}
		result = append(result, filesapi.Patched{
			Path: []byte(f.Path), From: []byte(f.From), Kind: string(f.Kind), Hunks: len(f.Hunks), Fuzz: fit.Fuzz, Offset: fit.Offset,
		})
	}
	if !args.DryRun {
		if err := p.commit(); err != nil {
			if failed := p.undo(); failed != nil {
				err = &problem{unix.EIO, err.Error() + "; " + failed.Error()}
			}
			return nil, err
		}
		p.done()
	}
	return c.result(result)
}

// patcher changes files in steps that can be taken back.
type patcher struct {
	c    *call
	top  int
	left int64 // bytes that may still be read and made

	changes []*change
	back    []func() error // what takes the steps back, the last first
	after   []func()       // what is left to do when all steps are done
	fds     []int
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
		err = &problem{unix.EOPNOTSUPP, "has several names (hard links): it can not be replaced atomically"}
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

// commit makes the new files, and puts them in their places.
func (p *patcher) commit() error {
	var steps []func() error
	for _, ch := range p.changes {
		step, err := p.stage(ch)
		if err != nil {
			return err
		}
		steps = append(steps, step)
	}
	for _, step := range steps {
		if p.c.ctx.Err() != nil {
			return unix.ECANCELED
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// stage makes the new file of a change beside its place, and returns the step that puts it there.
func (p *patcher) stage(ch *change) (step func() error, err error) {
	f := ch.file
	from := f.Path
	if f.Kind == patch.Renamed {
		from = f.From
	}
	var old, dir int
	if ch.old != nil {
		if old, err = p.folder(path.Dir(from), false); err != nil {
			return nil, err
		}
		if err := unix.Faccessat(old, path.Base(from), unix.W_OK, 0); err != nil {
			return nil, at(from, err)
		}
	}
	if f.Kind == patch.Deleted {
		return func() error { return p.takeAway(old, from, ch.old) }, nil
	}
	if dir, err = p.folder(path.Dir(f.Path), true); err != nil {
		return nil, err
	}
	tmp, err := newTemp(dir)
	if err != nil {
		return nil, at(f.Path, err)
	}
	defer unix.Close(tmp.fd)
	p.back = append(p.back, func() error { return gone(unix.Unlinkat(dir, tmp.name, 0)) })
	_, err = io.Copy(file(tmp.fd), struct{ io.Reader }{strings.NewReader(ch.text)})
	mode := uint32(defaultFile)
	if ch.old != nil {
		mode = ch.old.Mode & 0o7777
		if st := (&unix.Statx_t{Uid: ch.old.Uid, Gid: ch.old.Gid}); err == nil && !tmp.owned(st) {
			err = &problem{unix.EPERM, "belongs to another user: it can not be replaced"}
		}
	}
	if f.Mode != 0 {
		mode = f.Mode
	}
	if err == nil {
		err = unix.Fchmod(tmp.fd, mode)
	}
	if err != nil {
		return nil, at(f.Path, err)
	}
	if f.Kind == patch.Modified {
		return func() error { return p.swap(dir, tmp.name, from, ch.old) }, nil
	}
	return func() error {
		name := path.Base(f.Path)
		if err := unix.Renameat2(dir, tmp.name, dir, name, unix.RENAME_NOREPLACE); err != nil {
			return at(f.Path, err)
		}
		p.back = append(p.back, func() error { return unix.Unlinkat(dir, name, 0) })
		if f.Kind == patch.Renamed {
			return p.takeAway(old, from, ch.old)
		}
		return nil
	}, nil
}

// swap exchanges a file and what takes its place.
func (p *patcher) swap(dir int, tmp, name string, was *unix.Stat_t) error {
	swap := func() error { return unix.Renameat2(dir, tmp, dir, path.Base(name), unix.RENAME_EXCHANGE) }
	if err := swap(); err != nil {
		return at(name, err)
	}
	p.back = append(p.back, swap)
	p.after = append(p.after, func() { _ = unix.Unlinkat(dir, tmp, 0) })
	return at(name, sameFile(dir, tmp, was))
}

// takeAway moves a file aside, to be removed when all is done.
func (p *patcher) takeAway(dir int, name string, was *unix.Stat_t) error {
	tmp := tempName()
	if err := unix.Renameat2(dir, path.Base(name), dir, tmp, unix.RENAME_NOREPLACE); err != nil {
		return at(name, err)
	}
	p.back = append(p.back, func() error { return unix.Renameat2(dir, tmp, dir, path.Base(name), unix.RENAME_NOREPLACE) })
	p.after = append(p.after, func() { _ = unix.Unlinkat(dir, tmp, 0) })
	return at(name, sameFile(dir, tmp, was))
}

// sameFile makes sure that nobody has changed a file since it was read.
func sameFile(dir int, name string, was *unix.Stat_t) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	// An overlay may give a file another number when it is copied up.
	if st.Size != was.Size || st.Mtim != was.Mtim || st.Mode != was.Mode {
		return &problem{unix.ESTALE, "was changed by somebody else meanwhile"}
	}
	return nil
}

// folder opens a folder of the patch, and makes it and those above it if it is missing.
func (p *patcher) folder(name string, create bool) (int, error) {
	fd, err := p.beneath(name, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) && create && name != "." {
		var up int
		if up, err = p.folder(path.Dir(name), true); err != nil {
			return -1, err
		}
		base := path.Base(name)
		if err = unix.Mkdirat(up, base, defaultFolder); err != nil {
			return -1, at(name, err)
		}
		p.back = append(p.back, func() error { return unix.Unlinkat(up, base, unix.AT_REMOVEDIR) })
		fd, err = p.beneath(name, unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		return -1, err
	}
	p.fds = append(p.fds, fd)
	return fd, nil
}

// undo takes the steps back that were done.
func (p *patcher) undo() error {
	var errs []error
	for i := len(p.back) - 1; i >= 0; i-- {
		errs = append(errs, p.back[i]())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("and what was changed before could not be taken back: %w", err)
	}
	return nil
}

func (p *patcher) done() {
	for _, f := range p.after {
		f()
	}
}

// gone is for what may have been renamed.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
