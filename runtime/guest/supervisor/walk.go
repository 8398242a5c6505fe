package supervisor

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// place is where a path leads: a name in a folder, and what is there.
type place struct {
	parent int // O_PATH; -1 of what a path without a name is, or a link of /proc leads to
	name   string
	fd     int           // O_PATH; -1 when nothing is there
	st     *unix.Statx_t // of fd
}

func (p *place) close() {
	for _, fd := range []int{p.parent, p.fd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// start is the folder where a path begins.
func (t *target) start(step *fileStep, n *sys.SeccompNotification, name string) (int, error) {
	proc := "/proc/" + strconv.Itoa(t.tid)
	switch {
	case strings.HasPrefix(name, "/"):
		return -1, nil // walk begins at the root, the kernel at PID 1's
	case step.dir == noArg, int32(n.Args[step.dir]) == unix.AT_FDCWD:
		return t.open(proc+"/cwd", unix.O_PATH)
	}
	return t.open(proc+"/fd/"+strconv.Itoa(int(int32(n.Args[step.dir]))), unix.O_PATH)
}

func (t *target) rootDir() (int, error) {
	if t.root < 0 {
		fd, err := t.open("/proc/"+strconv.Itoa(t.tid)+"/root", unix.O_PATH)
		if err != nil {
			return -1, err
		}
		t.root = fd
	}
	return t.root, nil
}

const (
	maxLinks = 40  // that a path follows, as in the kernel
	maxSteps = 512 // of a walk; who wants to be told keeps to it
)

// walk resolves a path as the kernel does for the process: from its root, with its /proc/self. With the error that a
// folder may not be searched comes a place whose parent is that folder.
func (t *target) walk(start int, name string, follow bool) (*place, error) {
	root, err := t.rootDir()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(name, "/") {
		start = root
	}
	cur, err := unix.FcntlInt(uintptr(start), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cur >= 0 {
			_ = unix.Close(cur)
		}
	}()
	links := 0
	rest := strings.Split(name, "/")
	for steps := 0; len(rest) > 0; steps++ {
		if steps > maxSteps {
			return nil, unix.ELOOP
		}
		comp, more := rest[0], false
		rest = rest[1:]
		for _, r := range rest {
			more = more || r != "" && r != "."
		}
		slash := len(rest) > 0 && !more // a folder is meant, also behind a link
		switch {
		case comp == "" || comp == "." || comp == ".." && sameFile(cur, root):
			continue
		}
		fd, err := openatOwn(cur, comp, unix.O_PATH|unix.O_NOFOLLOW)
		switch {
		case errors.Is(err, unix.ENOENT) && !more:
			p := &place{parent: cur, name: comp, fd: -1, st: &unix.Statx_t{}}
			cur = -1
			return p, nil
		case refusal(err):
			p := &place{parent: cur, name: path.Join(append([]string{comp}, rest...)...), fd: -1, st: &unix.Statx_t{}}
			cur = -1
			return p, err
		case err != nil:
			return nil, err
		}
		st := &unix.Statx_t{}
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, st); err != nil {
			_ = unix.Close(fd)
			return nil, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK && (more || slash || follow) {
			if links++; links > maxLinks {
				_ = unix.Close(fd)
				return nil, unix.ELOOP
			}
			to, magic, err := t.link(fd, comp)
			_ = unix.Close(fd)
			if err != nil {
				return nil, err
			}
			if magic {
				if fd, err = openatOwn(cur, comp, unix.O_PATH); err != nil {
					return nil, err
				}
				if !more {
					st = &unix.Statx_t{}
					if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, st); err != nil {
						_ = unix.Close(fd)
						return nil, err
					}
					return &place{parent: -1, fd: fd, st: st}, nil
				}
				_ = unix.Close(cur)
				cur = fd
				continue
			}
			if strings.HasPrefix(to, "/") {
				_ = unix.Close(cur)
				if cur, err = unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0); err != nil {
					cur = -1
					return nil, err
				}
			}
			rest = append(strings.Split(to, "/"), rest...)
			continue
		}
		if !more {
			p := &place{parent: cur, name: comp, fd: fd, st: st}
			if comp == ".." {
				_ = unix.Close(cur)
				p.parent = -1
			}
			cur = -1
			return p, nil
		}
		_ = unix.Close(cur)
		cur = fd
	}
	st := &unix.Statx_t{}
	if err := unix.Statx(cur, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, st); err != nil {
		return nil, err
	}
	p := &place{parent: -1, fd: cur, st: st}
	cur = -1
	return p, nil
}

// link is where the symlink fd of a name leads. Those of /proc lead wherever the kernel says (magic), but for the two
// that are about who asks.
func (t *target) link(fd int, name string) (to string, magic bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", false, err
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		to, err = readlink(fd, "")
		return to, false, err
	}
	switch name {
	case "self":
		return strconv.Itoa(t.group()), false, nil
	case "thread-self":
		return strconv.Itoa(t.group()) + "/task/" + strconv.Itoa(t.tid), false, nil
	case "mounts", "net": // of the root of /proc: links as any other
		to, err = readlink(fd, "")
		return to, false, err
	}
	return "", true, nil
}

func sameFile(a, b int) bool {
	var x, y unix.Statx_t
	const mask = unix.STATX_INO | unix.STATX_MNT_ID
	return unix.Statx(a, "", unix.AT_EMPTY_PATH, mask, &x) == nil &&
		unix.Statx(b, "", unix.AT_EMPTY_PATH, mask, &y) == nil &&
		x.Ino == y.Ino && x.Dev_major == y.Dev_major && x.Dev_minor == y.Dev_minor && x.Mnt_id == y.Mnt_id
}

func readOnly(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
}

// name is the path of p as the process has it; "" when there is none any more.
func (t *target) name(p *place) string {
	if p.parent < 0 {
		return t.nameOf(p.fd)
	}
	if dir := t.nameOf(p.parent); dir != "" {
		return path.Join(dir, p.name)
	}
	return ""
}

func (t *target) nameOf(fd int) string {
	name, err := readlink(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil || !strings.HasPrefix(name, "/") {
		return ""
	}
	if below, ok := strings.CutPrefix(name, t.rootName+"/"); ok && t.moved {
		return "/" + below
	}
	return name
}
