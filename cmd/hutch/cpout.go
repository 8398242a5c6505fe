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
	"strings"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/internal/sparse"
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
		return api.Errorf(api.NotFound, "%s: there is no such file in sandbox %s", from.path, from.sandbox).
			WithOp("cp").
			WithHint("hutch rpc fs.list '{\"sandbox\":%q,\"path\":\"/\"}' shows what is there", from.sandbox)
	}
	if there.Type != api.TypeFolder && from.contents() {
		return api.Errorf(api.FailedPrecondition, "%s is a %s, which has no contents to copy", from.path, there.Type).
			WithOp("cp").
			WithHint("name it without the /. at the end")
	}
	switch there.Type {
	case api.TypeFile, api.TypeFolder:
	case api.TypeSymlink:
		// It would be a way from the one name that was asked for to any other: whatever
		// writes to the copy later, the next hutch cp for one, writes to where it leads.
		return api.Errorf(api.FailedPrecondition, "%s is a symbolic link, and what it leads to stays in the sandbox",
			from.path).WithOp("cp").
			WithHint("-L copies the file or folder that it leads to; links travel only in a folder, beneath which they lead")
	default:
		return api.Errorf(api.InvalidArgument, "%s is a %s, neither a file nor a folder", from.path, there.Type).
			WithOp("cp").
			WithHint("fs.read with special true reads from it")
	}
	if there.Type == api.TypeFile {
		if st, err := os.Stat(to.path); err == nil && !st.IsDir() && !st.Mode().IsRegular() { // a device, say
			return o.deviceOut(ctx, from, to)
		}
	}
	at, err := land(from, to, there.Type == api.TypeFolder)
	if err != nil {
		return err
	}
	defer at.dir.Close()
	if there.Type == api.TypeFolder {
		return o.folderOut(ctx, from, at)
	}
	return o.fileOut(ctx, from, at, there.Mode)
}

// streamOut writes an archive to standard output.
func (o *copying) streamOut(ctx context.Context, from place, stdout io.Writer) error {
	if f, ok := stdout.(*os.File); ok && cli.IsTerminal(f) {
		return api.Errorf(api.InvalidArgument, "standard output is a terminal").WithOp("cp").
			WithHint("send the archive to a file or a command: | tar t")
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

// folderOut copies a folder: all that is made is beneath the one that at names.
func (o *copying) folderOut(ctx context.Context, from place, at *landing) error {
	root, created, err := at.folder()
	if err != nil {
		return wrong(err)
	}
	defer root.Close()
	return o.packOut(ctx, from, "", func(r io.Reader) error {
		stats, err := archive.Unpack(ctx, r, int(root.Fd()), archive.Options{
			Hostile: true, Root: created, MaxEntries: maxCopyEntries, MaxBytes: o.maxSize, Guard: o.guard(from, root),
		})
		o.skipped(stats.Skipped, stats.Names)
		o.guarded(stats.Guarded, stats.GuardedNames)
		return err
	})
}

// guard is what is left out of a folder that comes into root. Names that count in a home folder alone are left out of
// that.
func (o *copying) guard(from place, root *os.File) func(name string, folder bool, has func(string) bool) string {
	set := guard.New(nil, o.unguard).InDependencies()
	if set.Empty() {
		return nil
	}
	above := aboveIn(root)
	return func(name string, folder bool, has func(string) bool) string {
		if m, ok := set.Arrives(above(name), folder); ok {
			what := name[:max(1, len(name)-(len(above(name))-len(m.Path)))]
			if i := strings.LastIndex("/"+what, "/.git/"); i >= 0 && m.Name == ".git" {
				what = what[:i+len(".git")] + " (but its history)"
			}
			return what
		}
		for at := 0; at < len(name); {
			end := strings.IndexByte(name[at:], '/')
			if end < 0 {
				end = len(name) - at
			}
			whole := name[:at+end]
			dir, base := path.Dir(whole), path.Base(whole)
			// A repository that is SRC itself has been named.
			if (dir != "." || from.contents()) && !inGit(whole) &&
				set.Completes(base, func(other string) bool { return has(path.Join(dir, other)) }) {
				return whole
			}
			at += end + 1
		}
		return ""
	}
}

// aboveIn is where a name below root is for the rows of a home folder: relative to the user's, or below some other.
func aboveIn(root *os.File) func(name string) string {
	other := func(name string) string { return "x/" + name }
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	at, rerr := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", root.Fd()))
	if err != nil || rerr != nil {
		return other
	}
	switch home, at := strings.TrimSuffix(home, "/")+"/", strings.TrimSuffix(at, "/")+"/"; {
	case at == home:
		return func(name string) string { return name }
	case strings.HasPrefix(at, home):
		return func(name string) string { return at[len(home):] + name }
	case strings.HasPrefix(home, at):
		return func(name string) string {
			if below, ok := strings.CutPrefix(name, home[len(at):]); ok {
				return below
			}
			return "x/" + name
		}
	}
	return other
}

// inGit reports whether a path is one of a .git's own, which has rules of its own: it may have a HEAD, and nothing else
// of it comes.
func inGit(p string) bool { return path.Base(path.Dir(p)) == ".git" }

// fileOut copies one file: into a new one, which then takes the place of the old.
func (o *copying) fileOut(ctx context.Context, from place, at *landing, mode string) error {
	f, err := at.create()
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	defer at.remove(f) // fails when all went well
	out := sparse.NewWriter(int(f.Fd()))
	if err := o.readOut(ctx, from, out); err != nil {
		return err
	}
	if err := out.End(); err != nil {
		return wrong(err)
	}
	perm, err := strconv.ParseUint(mode, 8, 16)
	if err == nil {
		err = f.Chmod(os.FileMode(perm)&0o777 | 0o600)
	}
	if err == nil {
		err = at.replace(f)
	}
	return wrong(err)
}

// deviceOut writes a file's bytes to what is no file.
func (o *copying) deviceOut(ctx context.Context, from, to place) error {
	f, err := os.OpenFile(to.path, os.O_WRONLY, 0)
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	return o.readOut(ctx, from, f)
}

// readOut copies the bytes of a file.
func (o *copying) readOut(ctx context.Context, from place, to io.Writer) error {
	var chunk api.FileChunk
	var got int64
	err := pullThrough(ctx, func(ctx context.Context, w *os.File) (err error) {
		chunk, err = o.client.ReadFile(ctx, api.FileReadParams{FileParams: o.file(from)}, w)
		return err
	}, func(r io.Reader) (err error) {
		got, err = copyAll(to, io.LimitReader(r, o.maxSize+1))
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
