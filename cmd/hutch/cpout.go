package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// cutOff reports whether err only says that the data ended too early: why is for
// the other end to say.
func cutOff(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) }

// out copies out of a sandbox: whatever comes is hostile.
func (o *copying) out(ctx context.Context, from, to place, stdout io.Writer) error {
	if to.stream() {
		return o.streamOut(ctx, from, stdout)
	}
	there, err := o.stat(ctx, from, o.follow || from.contents())
	if err != nil {
		return err
	}
	if there == nil {
		return api.Errorf(api.NotFound, "%s: there is no such file in sandbox %s", from.path, from.sandbox).WithOp("cp").
			WithHint("hutch rpc fs.list '{\"sandbox\":%q,\"path\":\"/\"}' shows what is there", from.sandbox)
	}
	st, err := os.Stat(to.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return wrong(err)
	}
	exists := err == nil
	to.path, err = target(from.path, to.path, there.Type == api.TypeFolder, exists, exists && st.IsDir())
	if err != nil {
		return err
	}
	switch there.Type {
	case api.TypeFolder:
		return o.folderOut(ctx, from, to)
	case api.TypeFile:
		return o.fileOut(ctx, from, to, there.Mode)
	case api.TypeSymlink:
		return o.linkOut(ctx, from, to)
	}
	return api.Errorf(api.InvalidArgument, "%s is a %s, neither a file nor a folder", from.path, there.Type).WithOp("cp").
		WithHint("fs.read with special true reads from it")
}

// streamOut writes an archive to standard output.
func (o *copying) streamOut(ctx context.Context, from place, stdout io.Writer) error {
	if f, ok := stdout.(*os.File); ok && cli.IsTerminal(f) {
		return api.Errorf(api.InvalidArgument, "standard output is a terminal").WithOp("cp").WithHint("send the archive to a file or a command: | tar t")
	}
	as := ""
	if !from.contents() {
		as = path.Base(from.path)
	}
	return o.packOut(ctx, from, as, func(r io.Reader) error {
		_, err := copyAll(stdout, r)
		return err
	})
}

func (o *copying) packOut(ctx context.Context, from place, as string, drain func(io.Reader) error) error {
	p := api.FilePackParams{FileParams: o.file(from), As: as, Follow: o.follow || from.contents()}
	return wrong(pullThrough(ctx, func(ctx context.Context, w *os.File) error {
		res, err := o.client.PackFiles(ctx, p, w)
		o.skipped(res.Skipped, nil)
		return err
	}, drain))
}

// folderOut copies a folder to to itself.
func (o *copying) folderOut(ctx context.Context, from, to place) error {
	err := os.Mkdir(to.path, 0o700)
	created := err == nil
	if err != nil && !errors.Is(err, os.ErrExist) {
		return wrong(err)
	}
	return o.unpackOut(ctx, from, to.path, "", created)
}

// linkOut copies a symbolic link as one, if it leads nowhere that it should not.
func (o *copying) linkOut(ctx context.Context, from, to place) error {
	return o.unpackOut(ctx, from, filepath.Dir(to.path), filepath.Base(to.path), false)
}

func (o *copying) unpackOut(ctx context.Context, from place, dir, as string, root bool) error {
	d, err := os.Open(dir)
	if err != nil {
		return wrong(err)
	}
	defer d.Close()
	return o.packOut(ctx, from, as, func(r io.Reader) error {
		stats, err := archive.Unpack(ctx, r, int(d.Fd()), archive.Options{
			Hostile: true, Root: root, MaxEntries: maxCopyEntries, MaxBytes: o.maxSize,
		})
		o.skipped(stats.Skipped, stats.Names)
		return err
	})
}

// fileOut copies one file: into a new one, which then takes the place of the old.
func (o *copying) fileOut(ctx context.Context, from, to place, mode string) error {
	if st, err := os.Stat(to.path); err == nil && !st.Mode().IsRegular() { // a device, say
		f, err := os.OpenFile(to.path, os.O_WRONLY, 0)
		if err != nil {
			return wrong(err)
		}
		defer f.Close()
		return o.readOut(ctx, from, f)
	}
	if real, err := filepath.EvalSymlinks(to.path); err == nil {
		to.path = real
	}
	f, err := os.CreateTemp(filepath.Dir(to.path), ".hutch-cp-*")
	if err != nil {
		return wrong(err)
	}
	defer os.Remove(f.Name()) // fails when all went well
	defer f.Close()
	if err := o.readOut(ctx, from, f); err != nil {
		return err
	}
	perm, err := strconv.ParseUint(mode, 8, 16)
	if err == nil {
		err = f.Chmod(os.FileMode(perm)&0o777 | 0o600)
	}
	if err == nil {
		err = os.Rename(f.Name(), to.path)
	}
	return wrong(err)
}

// readOut copies the bytes of a file.
func (o *copying) readOut(ctx context.Context, from place, f *os.File) error {
	var chunk api.FileChunk
	var got int64
	err := pullThrough(ctx, func(ctx context.Context, w *os.File) (err error) {
		chunk, err = o.client.ReadFile(ctx, api.FileReadParams{FileParams: o.file(from)}, w)
		return err
	}, func(r io.Reader) (err error) {
		got, err = copyAll(f, io.LimitReader(r, o.maxSize+1))
		if err == nil && got > o.maxSize {
			err = fmt.Errorf("%s: over %d bytes: %w", from.path, o.maxSize, archive.ErrRefused)
		}
		return err
	})
	if err == nil && got != chunk.Next-chunk.Offset {
		err = fmt.Errorf("%s: %d bytes arrived of %d", from.path, got, chunk.Next-chunk.Offset)
	}
	return wrong(err)
}
