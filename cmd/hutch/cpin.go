package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

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
	look := os.Lstat
	if o.follow || from.contents() || from.path[len(from.path)-1] == '/' {
		look = os.Stat
	}
	st, err := look(from.path)
	if err != nil {
		return wrong(err)
	}
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
		return o.folderIn(ctx, from, to)
	case st.Mode().IsRegular():
		return o.fileIn(ctx, from, to)
	case st.Mode()&os.ModeSymlink != 0:
		return o.linkIn(ctx, from, to)
	}
	return api.Errorf(api.InvalidArgument, "%s is neither a file nor a folder", from.path).WithOp("cp").WithHint("copy its content through -, or a file")
}

func (o *copying) fileIn(ctx context.Context, from, to place) error {
	// The kind may have changed since it was looked at.
	fd, err := unix.Open(from.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return wrong(&os.PathError{Op: "open", Path: from.path, Err: err})
	}
	f := os.NewFile(uintptr(fd), from.path)
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
			err = fmt.Errorf("%s has become shorter meanwhile", from.path)
		}
		return err
	}, func(ctx context.Context, r *os.File) error {
		_, err := o.client.WriteFile(ctx, p, r)
		return err
	})
	return wrong(err)
}

// folderIn copies a folder to to itself.
func (o *copying) folderIn(ctx context.Context, from, to place) error {
	made, err := o.client.MakeFolder(ctx, api.FileMkdirParams{FileParams: o.file(to)})
	if err != nil && !errors.Is(err, &api.Error{Code: api.AlreadyExists}) {
		return err
	}
	dir, err := os.Open(from.path)
	if err != nil {
		return wrong(err)
	}
	defer dir.Close()
	return o.unpackIn(ctx, to, made.Created, o.packer(ctx, dir, ".", ""))
}

// linkIn copies a symbolic link as one.
func (o *copying) linkIn(ctx context.Context, from, to place) error {
	dir, err := os.Open(filepath.Dir(from.path))
	if err != nil {
		return wrong(err)
	}
	defer dir.Close()
	as := path.Base(to.path)
	to.path = path.Dir(to.path)
	return o.unpackIn(ctx, to, false, o.packer(ctx, dir, filepath.Base(from.path), as))
}

// packer feeds a local tree.
func (o *copying) packer(ctx context.Context, dir *os.File, name, as string) func(io.Writer) error {
	return func(w io.Writer) error {
		stats, err := archive.Pack(ctx, w, int(dir.Fd()), name, as)
		if err == nil {
			o.skipped(stats.Skipped, stats.Names)
		}
		return err
	}
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
