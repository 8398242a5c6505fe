// Package hostfs opens the host's folders and files that a caller wants to give
// to a sandbox: once, by the caller's own rights, so that what is checked is what
// is mounted.
package hostfs

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Source is a folder or file of the host.
type Source struct {
	// Path is absolute and has no symlinks.
	Path string
	// FD is an O_PATH fd of Path. The holder of the Source owns it.
	FD *os.File
	// Dir says that it is a folder.
	Dir bool
}

// Open opens path, relative to the working directory, and checks that the caller
// may read it. The caller owns the result.
func Open(path string) (*Source, error) {
	s, err := open(path)
	if err == nil {
		return s, nil
	}
	e := api.Errorf(api.InvalidArgument, "%w", err)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		e.Code = api.NotFound
		return nil, e.WithHint("mkdir -p %s", Quote(path))
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Code = api.PermissionDenied
		return nil, e.WithHint("a sandbox gets only what you can read yourself: ls -ld %s", Quote(path))
	}
	return nil, e.WithHint("choose a folder, or with -v a regular file: ls -ld %s", Quote(path))
}

func open(path string) (_ *Source, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	access := uint32(unix.R_OK)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		access |= unix.X_OK
	case unix.S_IFREG:
	default:
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("neither a folder nor a regular file")}
	}
	// O_PATH asks for no permission on the file itself (open(2)).
	if err := unix.Faccessat(fd, "", access, unix.AT_EMPTY_PATH|unix.AT_EACCESS); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, err
	}
	// proc(5): the kernel adds this to the path of a file that was removed. A
	// path that does not start with a slash lies outside of the caller's root.
	if st.Nlink == 0 || strings.HasSuffix(real, " (deleted)") || !strings.HasPrefix(real, "/") {
		return nil, &os.PathError{Op: "open", Path: path,
			Err: errors.New("it has no name in the file system any more (" + real + ")")}
	}
	return &Source{Path: real, FD: f, Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// Quote makes path one word of a shell.
func Quote(path string) string {
	if path != "" && strings.Trim(path,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
