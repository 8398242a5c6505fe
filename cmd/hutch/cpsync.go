package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/runtime/api"
)

// syncing makes a folder in the sandbox the same as a local one, page by page: each is compared, and brought, before the next one. What was
// done when it ends early is right as far as it goes.
type syncing struct {
	*copying
	to  place
	dir *os.File

	page  api.FileSyncParams // the next one
	names []string           // of page.Files
	size  int                // bytes of names and targets
	// open are the folders around the end of the last page that were brought: what comes into them later changes their times.
	open []string

	same, copied, removed int
}

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
	y := &syncing{copying: o, to: to, dir: dir, page: api.FileSyncParams{FileParams: o.file(to), Delete: o.prune}}
	if err = y.walk(ctx, from.path); err == nil {
		err = y.send(ctx, false)
	}
	if err != nil {
		return wrong(err)
	}
	fmt.Fprintf(o.stderr, "%d the same, %d copied, %d removed\n", y.same, y.copied, y.removed)
	return nil
}

// walk puts what is in a local folder and travels on pages, in the order that they have.
func (y *syncing) walk(ctx context.Context, root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case path != root && errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile
		case err != nil || path == root:
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, target := api.SyncFile{}, ""
		switch kind := e.Type(); {
		case kind.IsDir():
			f.Type = api.TypeFolder
		case kind&fs.ModeSymlink != 0:
			f.Type = api.TypeSymlink
			target, err = os.Readlink(path)
		case kind.IsRegular():
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				f.Type, f.Size, f.MTime = api.TypeFile, info.Size(), wireTime(info.ModTime())
			}
		default:
			y.skipped(1, []string{name})
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return y.add(ctx, name, target, f)
	})
}

// wireTime is a time as fs.sync compares it: a file system may hold any year, RFC 3339 only those up to 9999, and the worker inside does the same.
func wireTime(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return time.Unix(0, 0).UTC()
	}
	return t
}

// add puts a file on the page, and sends the page before if it is full.
func (y *syncing) add(ctx context.Context, name, target string, f api.SyncFile) error {
	n := len(name) + len(target)
	if len(y.names) == api.MaxSyncFiles || len(y.names) > 0 && y.size+n > api.MaxSyncBytes {
		if err := y.send(ctx, true); err != nil {
			return err
		}
	}
	f.Path, f.PathBase64 = api.SyncName(name)
	f.Target, f.TargetBase64 = api.SyncName(target)
	y.page.Files, y.names, y.size = append(y.page.Files, f), append(y.names, name), y.size+n
	return nil
}

// send has the page compared, brings what is needed of it, and begins the next one.
func (y *syncing) send(ctx context.Context, more bool) error {
	y.page.More = more
	r, err := y.client.SyncFiles(ctx, y.page)
	if err != nil {
		return err
	}
	bring := y.open
	for _, i := range r.Needed {
		if i < 0 || i >= len(y.names) {
			return api.Errorf(api.Internal, "hutchd needs file %d of %d", i, len(y.names)).WithHint("this is a bug in hutch")
		}
		bring = append(bring, y.names[i])
	}
	y.same, y.copied, y.removed = y.same+r.Same, y.copied+len(r.Needed), y.removed+r.Removed
	if len(r.Needed) > 0 || r.Removed > 0 && len(bring) > 0 {
		err = y.unpackIn(ctx, y.to, false, func(w io.Writer) error {
			_, err := archive.PackNames(ctx, w, int(y.dir.Fd()), bring)
			return err
		})
	}
	if err != nil || !more {
		return err
	}
	last, folder := y.names[len(y.names)-1], y.page.Files[len(y.names)-1].Type == api.TypeFolder
	y.open = nil
	for _, name := range bring {
		if name == last && folder || strings.HasPrefix(last, name+"/") {
			y.open = append(y.open, name)
		}
	}
	y.page.After, y.page.AfterBase64 = api.SyncName(last)
	y.page.Files, y.names, y.size = y.page.Files[:0], y.names[:0], len(last)
	return nil
}
