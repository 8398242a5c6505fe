package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// landing is where a copy out of a sandbox goes, found before a byte of it is read:
// one name in an open folder. That name is not followed: the user named the folder, and
// a link in it may be the sandbox's, by an earlier copy or in a workspace. Nothing
// that the sandbox says leads to another name.
type landing struct {
	dir  *os.File // O_PATH
	name string   // "" is the folder itself
	path string   // for messages
}

// land finds what a copy of from is called at to.
func land(from, to place, folder bool) (*landing, error) {
	st, err := os.Stat(to.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, wrong(err)
	}
	exists := err == nil
	whole, err := target(from.path, to.path, folder, exists, exists && st.IsDir())
	if err != nil {
		return nil, err
	}
	at := &landing{path: whole}
	var dir string
	switch {
	case exists && st.IsDir():
		dir = to.path
		if !from.contents() {
			at.name = path.Base(from.path)
		}
	case exists: // a file, whose name is the user's own: links to it are followed
		if whole, err = filepath.EvalSymlinks(whole); err != nil {
			return nil, wrong(err)
		}
		fallthrough
	default:
		// Not cleaned: the kernel knows better where "link/.." leads.
		if dir, at.name = path.Split(whole); dir == "" {
			dir = "."
		}
		if strings.Trim(at.name, ".") == "" && len(at.name) <= 2 {
			return nil, api.Errorf(api.InvalidArgument, "%q names nothing", to.path).WithOp("cp").
				WithHint("name a file or folder of this host")
		}
	}
	if at.dir, err = os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return nil, wrong(err)
	}
	return at, nil
}

// fail names what an operation on the landing failed for.
func (at *landing) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: at.path, Err: err}
}

// folder opens the folder and makes it where it is missing.
func (at *landing) folder() (root *os.File, created bool, err error) {
	name := at.name
	if name == "" {
		name = "."
	} else {
		err = unix.Mkdirat(int(at.dir.Fd()), name, 0o700)
		if created = err == nil; !created && !errors.Is(err, unix.EEXIST) {
			return nil, false, at.fail("make folder", err)
		}
	}
	fd, err := unix.Openat(int(at.dir.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, false, api.Errorf(api.AlreadyExists, "%s is no folder, or a link to one", at.path).WithOp("cp").
			WithHint("remove it, or name the folder that is meant: hutch cp SANDBOX:SRC/. FOLDER")
	}
	if err != nil {
		return nil, false, at.fail("open", err)
	}
	return os.NewFile(uintptr(fd), at.path), created, nil
}

// create makes a file beside the landing, for replace.
func (at *landing) create() (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(at.dir.Fd()), at.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if kind := st.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return nil, api.Errorf(api.AlreadyExists, "%s exists and is no file", at.path).WithOp("cp").
			WithHint("remove it, or name another place")
	}
	name := ".hutch-cp-" + rand.Text()
	fd, err := unix.Openat(int(at.dir.Fd()), name,
		unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, at.fail("create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// replace gives the created file the landing's name.
func (at *landing) replace(f *os.File) error {
	dir := int(at.dir.Fd())
	return at.fail("replace", unix.Renameat(dir, f.Name(), dir, at.name))
}

func (at *landing) remove(f *os.File) { _ = unix.Unlinkat(int(at.dir.Fd()), f.Name(), 0) }
