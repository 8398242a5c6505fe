package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/runtime/api"
)

// in copies into a sandbox.
func (o *copying) in(ctx context.Context, from, to place) error {
	if from.stream() {
		return o.unpackIn(ctx, to, false, func(w io.Writer) error {
			_, err := copyAll(w, os.Stdin)
			return err
		})
	}
	src, err := o.source(from)
	if err != nil {
		return wrong(err)
	}
	defer src.close()
	st := src.info
	there, err := o.stat(ctx, to, true)
	if err != nil {
		return err
	}
	to.path, err = target(from.path, to.path, st.IsDir(), there != nil, there != nil && there.Type == api.TypeFolder)
	if err != nil {
		return err
	}
	switch {
	case st.IsDir():
		return o.folderIn(ctx, src, to)
	case st.Mode().IsRegular():
		return o.fileIn(ctx, src, to)
	case st.Mode()&os.ModeSymlink != 0:
		return o.linkIn(ctx, src, to)
	}
	return api.Errorf(api.InvalidArgument, "%s is neither a file nor a folder", from.path).WithOp("cp").
		WithHint("copy its content through -, or a file")
}

// source is what is copied in, as it was when it was opened: a sandbox that can write to the folder may put a link to
// another file of the user's in its place at any moment.
type source struct {
	self *os.File // O_PATH
	info os.FileInfo
}

func (s *source) close() { _ = s.self.Close() }

// open opens it for reading.
func (s *source) open(flags int) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", s.self.Fd()),
		flags|unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: s.self.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), s.self.Name()), nil
}

// source opens what is to be copied. The link that it may be is followed only if the user says so.
func (o *copying) source(from place) (*source, error) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !o.follow && !from.contents() && from.path[len(from.path)-1] != '/' {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Open(from.path, flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: from.path, Err: err}
	}
	s := &source{self: os.NewFile(uintptr(fd), from.path)}
	if s.info, err = s.self.Stat(); err != nil {
		s.close()
	}
	return s, err
}

func (o *copying) fileIn(ctx context.Context, from *source, to place) error {
	f, err := from.open(0)
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return wrong(err)
	}
	size := st.Size()
	p := api.FileWriteParams{FileParams: o.file(to), Mode: fmt.Sprintf("%04o", st.Mode().Perm()), SizeBytes: &size}
	err = pushThrough(ctx, func(w io.Writer) error {
		n, err := copyAll(w, io.LimitReader(f, size))
		if err == nil && n < size {
			err = fmt.Errorf("%s became shorter while it was copied", f.Name())
		}
		return err
	}, func(ctx context.Context, r *os.File) error {
		_, err := o.client.WriteFile(ctx, p, r)
		return err
	})
	return wrong(err)
}

// folderIn copies a folder to to itself.
func (o *copying) folderIn(ctx context.Context, from *source, to place) error {
	made, err := o.client.MakeFolder(ctx, api.FileMkdirParams{FileParams: o.file(to)})
	if err != nil && !errors.Is(err, &api.Error{Code: api.AlreadyExists}) {
		return err
	}
	dir, err := from.open(unix.O_DIRECTORY)
	if err != nil {
		return wrong(err)
	}
	defer dir.Close()
	return o.unpackIn(ctx, to, made.Created, func(w io.Writer) error {
		stats, err := archive.Pack(ctx, w, int(dir.Fd()), ".", "")
		if err == nil {
			o.skipped(stats.Skipped, stats.Names)
		}
		return err
	})
}

// linkIn copies a symbolic link as one.
func (o *copying) linkIn(ctx context.Context, from *source, to place) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(from.self.Fd()), "", target)
	if err != nil {
		return wrong(&os.PathError{Op: "readlink", Path: from.self.Name(), Err: err})
	}
	h := &tar.Header{Typeflag: tar.TypeSymlink, Name: path.Base(to.path), Linkname: string(target[:n]), Mode: 0o777,
		ModTime: from.info.ModTime().Truncate(time.Second)}
	if st, ok := from.info.Sys().(*syscall.Stat_t); ok {
		h.Uid, h.Gid = int(st.Uid), int(st.Gid)
	}
	to.path = path.Dir(to.path)
	return o.unpackIn(ctx, to, false, func(w io.Writer) error {
		tw := tar.NewWriter(w)
		return errors.Join(tw.WriteHeader(h), tw.Close())
	})
}

// unpackIn unpacks an archive in the sandbox.
func (o *copying) unpackIn(ctx context.Context, to place, root bool, feed func(io.Writer) error) error {
	p := api.FileUnpackParams{FileParams: o.file(to), KeepOwner: o.owner, Root: root, Folders: o.sync}
	err := pushThrough(ctx, feed, func(ctx context.Context, r *os.File) error {
		res, err := o.client.UnpackFiles(ctx, p, r)
		o.skipped(res.Skipped, nil)
		return err
	})
	return wrong(err)
}
