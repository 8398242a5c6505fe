package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/runtime/api"
)

// syncIn makes a folder in the sandbox the same as a local one.
func (o *copying) syncIn(ctx context.Context, from, to place) error {
	dir, err := os.Open(from.path)
	if err != nil {
		return wrong(err)
	}
	defer dir.Close()
	st, err := dir.Stat()
	if err == nil && !st.IsDir() {
		err = api.Errorf(api.InvalidArgument, "%s is no folder", from.path).WithOp("cp").WithHint("without --sync a file is copied")
	}
	if err != nil {
		return wrong(err)
	}
	p := api.FileSyncParams{FileParams: o.file(to), Delete: o.prune}
	if p.Files, err = o.filesOf(ctx, from.path); err != nil {
		return wrong(err)
	}
	r, err := o.client.SyncFiles(ctx, p)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.stderr, "%d the same, %d to copy, %d removed\n", r.Same, len(r.Needed), r.Removed)
	if len(r.Needed) == 0 {
		return nil
	}
	needed := make(map[string]bool, len(r.Needed))
	for _, name := range r.Needed {
		needed[name] = true
	}
	return o.unpackIn(ctx, to, false, func(w io.Writer) error {
		_, err := archive.PackOnly(ctx, w, int(dir.Fd()), func(name string) bool { return needed[name] })
		return err
	})
}

// filesOf lists what is in a local folder and travels.
func (o *copying) filesOf(ctx context.Context, root string) (list []api.SyncFile, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f := api.SyncFile{Path: name}
		switch kind := e.Type(); {
		case kind.IsDir():
			f.Type = api.TypeFolder
		case kind&fs.ModeSymlink != 0:
			f.Type = api.TypeSymlink
			if f.Target, err = os.Readlink(path); err != nil {
				return err
			}
		case kind.IsRegular():
			info, err := e.Info()
			if err != nil {
				return err
			}
			f.Type, f.Size, f.MTime = api.TypeFile, info.Size(), info.ModTime().UTC()
		default:
			o.skipped(1, []string{name})
			return nil
		}
		list = append(list, f)
		return nil
	})
	return list, err
}
