package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Files of others in a host folder: below its top they may belong to owners and groups that have no id in the sandbox.
// The kernel's overlay cannot change such a file (EOVERFLOW), whatever its mode lets the user do, and no group of the
// user's but the own one counts inside. See runtime/DESIGN.md, "Whose a host folder is".

// What a look for such a file takes at most: before each sandbox, and behind a command that has failed.
const (
	earlyNames, earlyTime = 128, 2 * time.Millisecond
	lateNames, lateTime   = 50_000, 200 * time.Millisecond
)

// overflowID is what the kernel shows for ids without a mapping (the default of kernel.overflowuid).
const overflowID = 65534

// foreigners is what is known of them in the folders of a sandbox.
type foreigners struct {
	mu     sync.Mutex
	looked bool   // behind a command
	told   bool   // to who made the sandbox, or behind a command
	text   string // about the first one that was found; "" is none
}

// tellForeign tells who makes a sandbox of a file in the folder at, which is m's, that commands cannot change.
func (a *Attaching) tellForeign(ctx context.Context, m api.Mount, at string, mapped bool) {
	of := foreignIn(m, mapped, a.ws.host.Single)
	if of == nil {
		return
	}
	if text := of.look(ctx, at, earlyNames, time.Now().Add(earlyTime)); text != "" {
		a.c.Tell(text)
		f := &a.Folders.foreign
		f.mu.Lock()
		f.text, f.told = text, true
		f.mu.Unlock()
	}
}

// ForeignHint is what to do about a command that failed, if that was because of a file of somebody's who has no id in
// the sandbox: the command says so itself, as said has the start and the end of its output, or nobody has seen what it
// says, and then once. It may look through the folders, once, for at most lateTime.
func (ws *Workspaces) ForeignHint(ctx context.Context, s Sandbox, said []byte, seen bool) string {
	overflows := bytes.Contains(said, []byte("alue too large for d")) || bytes.Contains(said, []byte("EOVERFLOW"))
	if seen && !overflows && !bytes.Contains(said, []byte("ermission denied")) &&
		!bytes.Contains(said, []byte("EACCES")) {
		return ""
	}
	f, sp, dir := &s.Folders().foreign, s.Spec(), s.Dir()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told && !seen {
		return ""
	}
	if f.text == "" && !f.looked {
		f.looked = true
		f.text = ws.host.lookForeign(ctx, sp, dir)
	}
	f.told = f.told || f.text != ""
	return f.text
}

// lookForeign looks through the folders of a sandbox.
func (h *Host) lookForeign(ctx context.Context, sp *api.Spec, dir string) string {
	sorted, err := Sorted(sp)
	if err != nil {
		return ""
	}
	end := time.Now().Add(lateTime)
	for i, mt := range sorted {
		if of := foreignIn(mt, h.Mapped, h.Single); of != nil {
			if text := of.look(ctx, At(dir, i), lateNames, end); text != "" {
				return text
			}
		}
	}
	return ""
}

// foreign is what makes a file of a folder such a one.
type foreign struct {
	source string
	is     func(dir int, name string, st *unix.Stat_t) bool
	why    func(st *unix.Stat_t) string
}

// foreignIn is what is looked for in a folder; nil where there can be none. mapped says that root has mapped its ids,
// and single that the sandbox has one id only and with it the user's groups.
func foreignIn(m api.Mount, mapped, single bool) *foreign {
	switch {
	case !m.OfHost():
		return nil
	case m.Mode == api.ModeOverlay && mapped:
		return &foreign{m.Source, isDenied, whyOverlay}
	case m.Mode == api.ModeOverlay:
		return &foreign{m.Source, isUnmapped, whyOverlay}
	case m.Mode == api.ModeRW && mapped:
		return &foreign{m.Source, isDenied, func(*unix.Stat_t) string {
			return "it has another owner or group than the folder, of whose files alone mode rw can change something: " +
				"use mode overlay, or give it to these (chown, chgrp)"
		}}
	case m.Mode == api.ModeRW && !single:
		return &foreign{m.Source, isGroups, func(*unix.Stat_t) string {
			return "it belongs to another user, and its group may write; no group of yours but your own counts in the " +
				"sandbox: make the folder yours (a copy: cp -r), or let others write"
		}}
	}
	return nil
}

// whyOverlay is why nobody changes a file below an overlay.
func whyOverlay(st *unix.Stat_t) string {
	whose := "its owner has"
	switch {
	case st.Uid != overflowID:
		whose = "its group has"
	case st.Gid == overflowID:
		whose = "its owner and its group have"
	}
	return whose + " no id in the sandbox, and the kernel's overlay cannot change a file of theirs (\"Value too large " +
		"for defined data type\", \"Permission denied\"): use mode rw, or a copy of the folder"
}

// isUnmapped reports whether a file belongs to somebody who has no id here. Who is called nobody may have one: then the
// rights of root are those over any file, unless its mode gives them to everybody.
func isUnmapped(dir int, name string, st *unix.Stat_t) bool {
	return st.Gid == overflowID && st.Uid != overflowID ||
		st.Uid == overflowID && (st.Mode&0o002 != 0 || isDenied(dir, name, st))
}

// isDenied is isUnmapped for a folder that root has mapped, where whose ids are not mapped may never be written.
func isDenied(dir int, name string, st *unix.Stat_t) bool {
	return (st.Uid == overflowID || st.Gid == overflowID) &&
		errors.Is(unix.Faccessat(dir, name, unix.W_OK, unix.AT_EACCESS), unix.EACCES)
}

// isGroups reports whether a file can be written by another group than the user's own, and not by everybody.
func isGroups(dir int, name string, st *unix.Stat_t) bool {
	return st.Gid == overflowID && st.Uid == overflowID && st.Mode&0o022 == 0o020 && isDenied(dir, name, st)
}

// look looks below the folder at, level by level, and returns what there is to say of the first such file; "" for none
// among so many names, until then. It follows nothing, and enters no other file system.
func (of *foreign) look(ctx context.Context, at string, names int, until time.Time) string {
	root, err := OpenPath(at)
	if err != nil {
		return ""
	}
	defer root.Close()
	for dirs := []string{"."}; len(dirs) > 0 && names > 0; dirs = dirs[1:] {
		if ctx.Err() != nil || time.Now().After(until) {
			return ""
		}
		found, st, below := of.inFolder(int(root.Fd()), dirs[0], &names, until)
		if found != "" {
			name := filepath.Join(of.source, found)
			return fmt.Sprintf("%s cannot be changed: %s (ls -ld shows whose it is)", name, of.why(st))
		}
		dirs = append(dirs, below...)
	}
	return ""
}

// inFolder looks at the names of a folder; below are those that are folders themselves.
func (of *foreign) inFolder(root int, dir string, names *int, until time.Time) (found string, st *unix.Stat_t,
	below []string) {
	fd, err := unix.Openat2(root, dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return "", nil, nil
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	for *names > 0 && time.Now().Before(until) {
		entries, err := f.Readdirnames(min(64, *names))
		for _, name := range entries {
			*names--
			st := &unix.Stat_t{}
			if unix.Fstatat(fd, name, st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			kind := st.Mode & unix.S_IFMT
			if (kind == unix.S_IFDIR || kind == unix.S_IFREG) && of.is(fd, name, st) {
				return path.Join(dir, name), st, nil
			}
			if kind == unix.S_IFDIR {
				below = append(below, path.Join(dir, name))
			}
		}
		if err != nil && !errors.Is(err, io.EOF) || len(entries) == 0 {
			break
		}
	}
	return "", nil, below
}
