package files

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// split cuts the last name off a path. One that names a folder for certain ("a/",
// "a/..") is that folder's own ".".
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	dir, name = path[:i+1], path[i+1:]
	if name == "" || name == "." || name == ".." {
		return path, "."
	}
	return dir, name
}

// enter opens the folder of a path, and returns it with the last name, which may
// be a symbolic link.
func enter(path string) (dir int, name string, err error) {
	folder, name := split(path)
	dir, err = openat(unix.AT_FDCWD, folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	return dir, name, err
}

// spot is where a path leads to once its last symbolic links are followed: a name
// in an open folder, which is not a link, whatever becomes of the path meanwhile.
type spot struct {
	dir  int // O_PATH
	name string
	st   *unix.Statx_t // nil when nothing is there
}

func (s *spot) close() { _ = unix.Close(s.dir) }

// kind is the file type, of one that exists.
func (s *spot) kind() uint16 { return s.st.Mode & unix.S_IFMT }

// maxLinks is how many symbolic links are followed (MAXSYMLINKS, linux/namei.h).
const maxLinks = 40

// resolve follows path to its end. Without follow a last link is the end.
func resolve(path string, follow bool) (*spot, error) {
	s := &spot{dir: unix.AT_FDCWD}
	next := path
	for links := 0; ; links++ {
		folder, name := split("./" + next)
		if strings.HasPrefix(next, "/") {
			folder, name = split(next)
		}
		dir, err := openat(s.dir, folder, unix.O_PATH|unix.O_DIRECTORY, 0)
		if s.dir != unix.AT_FDCWD {
			s.close()
		}
		if err != nil {
			return nil, err
		}
		s.dir, s.name, s.st = dir, name, &unix.Statx_t{}
		err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, s.st)
		if errors.Is(err, unix.ENOENT) {
			s.st, err = nil, nil
		}
		if err == nil && links == maxLinks {
			err = unix.ELOOP
		}
		if err == nil && (s.st == nil || !follow || s.kind() != unix.S_IFLNK) {
			if links > 0 {
				err = s.confirm(path)
			}
			if err == nil {
				return s, nil
			}
		}
		if err == nil {
			next, err = readlink(dir, name)
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
}

// confirm makes sure that the kernel, too, follows the links of path to s. It
// knows of links that are none (in /proc) and of some not to be followed: those of
// others in folders like /tmp (fs.protected_symlinks, proc_sys_fs(5)).
func (s *spot) confirm(path string) error {
	fd, err := openat(unix.AT_FDCWD, path, unix.O_PATH, 0)
	if errors.Is(err, unix.ENOENT) && s.st == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return err
	}
	if s.st == nil || st.Ino != s.st.Ino || st.Dev_major != s.st.Dev_major || st.Dev_minor != s.st.Dev_minor {
		return &problem{unix.ESTALE, "is a symbolic link that leads somewhere else meanwhile"}
	}
	return nil
}

func readlink(dir int, name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, target)
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}

// makeFolders makes a folder and those above it that are missing.
func makeFolders(path string, mode uint32) (created bool, err error) {
	err = unix.Mkdir(path, mode)
	if errors.Is(err, unix.ENOENT) {
		parent := strings.TrimRight(path, "/")
		if i := strings.LastIndexByte(parent, '/'); i > 0 {
			if _, err := makeFolders(parent[:i], defaultFolder); err != nil {
				return false, err
			}
			err = unix.Mkdir(path, mode)
		}
	}
	if err == nil {
		return true, nil
	}
	var st unix.Stat_t
	if serr := unix.Stat(path, &st); serr != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, at(path, err)
	}
	return false, nil
}

// What a shell's umask of 022 leaves of the modes of new files and folders.
const (
	defaultFile   = 0o644
	defaultFolder = 0o755
)
