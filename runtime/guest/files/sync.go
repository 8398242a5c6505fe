package files

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// sync compares a folder with a page of what the caller's holds, and removes what the page's range has too much. Both
// are walked in the same order, names of a folder by their bytes, so that what is held in memory does not grow with the
// folder.
func (c *call) sync() (*filesapi.Reply, error) {
	s := &syncer{c: c}
	if err := c.args(&s.args); err != nil {
		return nil, err
	}
	fd, err := openat(unix.AT_FDCWD, c.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r := within{}
	if len(s.args.After) > 0 {
		after := string(s.args.After)
		r.after = &after
	}
	if n := len(s.args.Files); s.args.More && n > 0 {
		through := string(s.args.Files[n-1].Path)
		r.through = &through
	}
	if err := s.folder(fd, "", r, 0); err != nil {
		return nil, err
	}
	reply, err := c.result(filesapi.Synced{Needed: s.needed, Same: s.same, Removed: s.removed})
	if err == nil {
		reply.Count = int64(s.removed)
	}
	return reply, err
}

type syncer struct {
	c    *call
	args filesapi.SyncArgs
	next int // of Files; what is before is dealt with

	needed        []int
	same, removed int
}

// within is the part of the page's range that lies in a folder: what comes behind after, up to through. nil is no
// border.
type within struct{ after, through *string }

// of says how a name lies to the range, and what of the range lies in it, if it is a folder.
func (r within) of(name string) (in, down bool, inner within) {
	in, down = true, true
	if r.after != nil {
		switch head, rest, more := strings.Cut(*r.after, "/"); {
		case name < head:
			return false, false, inner
		case name == head:
			if in = false; more {
				inner.after = &rest
			}
		}
	}
	if r.through != nil {
		switch head, rest, more := strings.Cut(*r.through, "/"); {
		case name > head:
			return false, false, inner
		case name == head:
			if down = more; more {
				inner.through = &rest
			}
		}
	}
	return in, down, inner
}

// folder compares what lies in a folder, whose fd it closes.
func (s *syncer) folder(fd int, prefix string, r within, depth int) error {
	dir := os.NewFile(uintptr(fd), prefix)
	defer dir.Close()
	if depth == maxDepth {
		return at(prefix, unix.ENAMETOOLONG)
	}
	for last := ""; ; {
		names, more, err := firstNames(dir, syncBatch, func(name string) bool {
			in, down, _ := r.of(name)
			return (in || down) && name > last
		})
		if err != nil {
			return at(prefix, err)
		}
		for _, name := range names {
			if s.c.ctx.Err() != nil {
				return unix.ECANCELED
			}
			s.missing(prefix, name)
			if err := s.entry(fd, name, prefix+name, r, depth); err != nil {
				return err
			}
			last = name
		}
		if !more {
			s.missing(prefix, "")
			return nil
		}
	}
}

// syncBatch is how many names of a folder are held at once: twice as many.
const syncBatch = 32 << 10

// firstNames returns the first names of a folder that keep wants, in order, and whether there are more.
func firstNames(dir *os.File, most int, keep func(string) bool) (names []string, more bool, err error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, false, bare(err)
	}
	cut := func() {
		slices.Sort(names)
		if len(names) > most {
			clear(names[most:])
			names, more = names[:most], true
		}
	}
	for {
		batch, err := dir.Readdirnames(removeBatch)
		for _, name := range batch {
			if keep(name) && (!more || name < names[most-1]) {
				names = append(names, name)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			cut()
			return names, more, nil
		case err != nil:
			return nil, false, bare(err)
		case len(names) >= 2*most:
			cut()
		}
	}
}

// missing passes over the caller's files of a folder, and below it, that come before name; all with "".
func (s *syncer) missing(prefix, name string) {
	for s.next < len(s.args.Files) {
		rest, ok := strings.CutPrefix(string(s.args.Files[s.next].Path), prefix)
		head, _, _ := strings.Cut(rest, "/")
		if !ok || name != "" && head >= name {
			return
		}
		s.need()
	}
}

// need says that the next file of the caller's is to be brought.
func (s *syncer) need() {
	s.needed = append(s.needed, s.next)
	s.next++
}

// entry compares one name that there is in the sandbox.
func (s *syncer) entry(dir int, name, path string, r within, depth int) error {
	in, down, inner := r.of(name)
	if in {
		goes, err := s.compare(dir, name, path)
		if err != nil || goes {
			return err
		}
	}
	// Without Delete only the caller's files matter.
	if !down || !s.args.Delete &&
		(s.next == len(s.args.Files) || !strings.HasPrefix(string(s.args.Files[s.next].Path), path+"/")) {
		return nil
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // no folder, or not any more: nothing of the caller's is in it
	case err != nil:
		return at(path, err)
	}
	return s.folder(fd, path+"/", inner, depth+1)
}

// compare compares a name in the range. What goes has nothing in it that is to be looked at.
func (s *syncer) compare(dir int, name, path string) (goes bool, err error) {
	if s.next == len(s.args.Files) || string(s.args.Files[s.next].Path) != path {
		if !s.args.Delete {
			return true, nil // files of the caller's come with their folders, so none is below
		}
		return true, s.remove(dir, name, path)
	}
	f := &s.args.Files[s.next]
	e, err := describe(dir, name, false)
	switch kind := f.Mode & unix.S_IFMT; {
	case errors.Is(err, unix.ENOENT): // removed meanwhile
	case err != nil:
		return true, at(path, err)
	case e.Mode&unix.S_IFMT != kind: // what is unpacked takes the place of a file, not of a folder
		if err := s.remove(dir, name, path); err != nil {
			return true, err
		}
	case kind == unix.S_IFREG && (e.Size != f.Size || !e.MTime.Equal(f.MTime)), kind == unix.S_IFLNK &&
		string(e.Target) != string(f.Target):
	default:
		s.next++
		s.same++
		return kind != unix.S_IFDIR, nil
	}
	s.need()
	return true, nil
}

// remove removes what a page has not.
func (s *syncer) remove(dir int, name, path string) error {
	err := (&remover{ctx: s.c.ctx, recursive: true}).remove(dir, name, path, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	s.removed++
	return err
}
