package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/runtime/api"
)

// syncing makes a folder in the sandbox the same as a local one, page by page: each is compared, and brought, before
// the next one. What was done when it ends early is right as far as it goes.
type syncing struct {
	*copying
	to  place
	dir *os.File

	page  api.FileSyncParams // the next one
	names []string           // of page.Files
	size  int                // bytes of names and targets
	// open are the folders around the end of the last page that were brought: what comes into them later changes their
	// times.
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
		err = api.Errorf(api.InvalidArgument, "%s is no folder", from.path).WithOp("cp").
			WithHint("without --sync a file is copied")
	}
	if err != nil {
		return wrong(err)
	}
	y := &syncing{copying: o, to: to, dir: dir, page: api.FileSyncParams{FileParams: o.file(to), Delete: o.prune}}
	if err = y.walk(ctx, dir, "", 0); err == nil {
		err = y.send(ctx, false)
	}
	if err != nil {
		return wrong(err)
	}
	fmt.Fprintf(o.stderr, "%d the same, %d copied, %d removed\n", y.same, y.copied, y.removed)
	return nil
}

// maxSyncDepth bounds how many folders deep a copy goes: one fd for each.
const maxSyncDepth = 1000

// walk puts what is in a local folder and travels on pages, in the order that they have. It goes from folder to folder
// by their fds: a sandbox that can write there may put links in the place of folders at any moment.
func (y *syncing) walk(ctx context.Context, dir *os.File, at string, depth int) error {
	if depth > maxSyncDepth {
		return &fs.PathError{Op: "copy", Path: at, Err: fmt.Errorf("over %d folders deep: %w", maxSyncDepth,
			unix.ENAMETOOLONG)}
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := y.entry(ctx, dir, base, filepath.Join(at, base), depth); err != nil {
			return err
		}
	}
	return nil
}

// gone turns an error of the one name that is looked at into none where that was removed, or became something else,
// since.
func gone(op, name string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.EINVAL) {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// entry puts one name of a folder on the page, and what is below.
func (y *syncing) entry(ctx context.Context, dir *os.File, base, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return gone("stat", name, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return gone("open", name, err)
		}
		below := os.NewFile(uintptr(fd), name)
		defer below.Close()
		if err := y.add(ctx, name, "", api.SyncFile{Type: api.TypeFolder}); err != nil {
			return err
		}
		return y.walk(ctx, below, name, depth+1)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(dir.Fd()), base, target)
		if err != nil {
			return gone("readlink", name, err)
		}
		return y.add(ctx, name, string(target[:n]), api.SyncFile{Type: api.TypeSymlink})
	case unix.S_IFREG:
		return y.add(ctx, name, "", api.SyncFile{Type: api.TypeFile, Size: st.Size,
			MTime: wireTime(time.Unix(st.Mtim.Unix()))})
	}
	y.skipped(1, []string{name})
	return nil
}

// wireTime is a time as fs.sync compares it: a file system may hold any year, RFC 3339 only those up to 9999, and the
// worker inside does the same.
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
			return api.Errorf(api.Internal, "hutchd needs file %d of %d", i, len(y.names)).
				WithHint("this is a bug in hutch")
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
