package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// Request says of a sandbox that is being made what its folders need.
type Request struct {
	ID  string
	Dir string // its folder, with an empty folder mnt, and fs
	// User is whose volumes it uses.
	User uint32
	Spec *api.Spec
	FDs  packet.Taker // of what the spec names by numbers
	// RunAs is who its commands run as, as the image names him; "" is root. Layers are the image's, top-most first.
	RunAs  string
	Layers []string
	// MemoryBytes is the size of a folder in memory for which none is asked.
	MemoryBytes int64
	// Before are the folders that it had, by target; nil when nobody has noted them, and of a new one.
	Before map[string]ID
	// Over has what was written to overlays, by their number, of which each gets a copy; "" is none. Again says that
	// what was written is there: it was stopped.
	Over  string
	Again bool
	// Folders are the sandbox's own, of which Attach makes the guards.
	Folders *Set
}

// Attaching attaches the folders of a sandbox that is being made. It is for one goroutine.
type Attaching struct {
	Request
	ws    *Workspaces
	c     Creation
	binds []spec.Bind
}

// Attaching begins. All that Attach and Overlay do is taken back by what they tell c to undo.
func (ws *Workspaces) Attaching(c Creation, r Request) *Attaching {
	return &Attaching{Request: r, ws: ws, c: c}
}

// Attach attaches the workspace and the other host folders below the sandbox's own folder, from fds and not from paths,
// so that what libcontainer binds later cannot be swapped, and covers what is guarded in them. It returns what is to be
// bound inside, in order.
func (a *Attaching) Attach(ctx context.Context) ([]spec.Bind, error) {
	sorted, err := Sorted(a.Spec)
	if err != nil {
		return nil, err
	}
	a.Folders.Guards = guard.For(sorted, filepath.Join(a.Dir, mounts))
	for i, m := range sorted {
		field := "workspace"
		if m.Target != Target || a.Spec.Workspace == nil {
			field = fmt.Sprintf("mounts %s", m.Target)
		}
		err := checkNested(a.Dir, sorted[:i], m)
		if err == nil {
			err = a.attach(ctx, i, m)
		}
		if err == nil {
			err = a.Folders.Guards.Cover(ctx, m.Target)
		}
		if err != nil {
			var ae *api.Error
			if errors.As(err, &ae) {
				return nil, ae.WithField(field)
			}
			return nil, fmt.Errorf("%s %s: %w", field, m.From(), err)
		}
	}
	return a.binds, a.checkShared(sorted)
}

// attachTmpfs mounts a folder in memory at mnt/<i> and adds its bind.
func (a *Attaching) attachTmpfs(i int, m api.Mount) error {
	at := At(a.Dir, i)
	if err := a.mountPoint(at, true); err != nil {
		return err
	}
	attr := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if m.NoExec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	size := m.SizeBytes
	if size == 0 {
		size = a.MemoryBytes
	}
	mnt, err := a.ws.kernel.Tmpfs([]sys.FSOption{
		{Key: "source", Value: "tmpfs"}, {Key: "size", Value: strconv.FormatInt(size, 10)},
		{Key: "nr_inodes", Value: strconv.FormatInt(inodesOf(size), 10)},
		{Key: "mode", Value: cmp.Or(m.Permissions, "1777")},
	}, attr)
	if err != nil {
		return fmt.Errorf("make a folder of %d bytes in memory: %w", size, err)
	}
	defer mnt.Close()
	if err := a.ws.kernel.Attach(mnt, at); err != nil {
		return err
	}
	a.c.Undo(func() error { return a.ws.unmount(at) })
	a.binds = append(a.binds, spec.Bind{Source: at, Target: filepath.Clean(m.Target)})
	return nil
}

// inodesOf bounds the files of a folder in memory, of which each takes about a kilobyte of the kernel's.
func inodesOf(size int64) int64 { return min(max(size>>12, 1024), 1<<20) }

// attach puts one host folder or file at mnt/<i> and adds its bind.
func (a *Attaching) attach(ctx context.Context, i int, m api.Mount) error {
	if m.Mode == api.ModeTmpfs {
		return a.attachTmpfs(i, m)
	}
	src, dir, err := a.open(m)
	if err != nil {
		return err
	}
	defer src.Close()
	mapped := m.FD != nil && isDetachedMount(src) // by root's client; once it is attached nothing tells it from others
	if err := a.checkOwner(m, src, mapped); err != nil {
		return err
	}
	if err := a.sameFolder(m, src); err != nil {
		return err
	}
	at := At(a.Dir, i)
	if err := a.mountPoint(at, dir); err != nil {
		return err
	}
	tree, err := detached(src)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if m.Mode == api.ModeRO {
		// Here and not only inside: what is read-only when the sandbox's mount namespace is
		// made stays so for whoever is root in it (mount_namespaces(7), locked flags).
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
			return fmt.Errorf("make %s read-only: %w", m.From(), err)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return attachError(m.From(), err)
	}
	a.c.Undo(func() error { return a.ws.unmount(at) })
	bind := at
	if m.Mode == api.ModeOverlay {
		if bind, err = a.overlay(i, at, mapped, at); err != nil {
			return err
		}
	}
	a.tellForeign(ctx, m, at, mapped)
	a.binds = append(a.binds, spec.Bind{Source: bind, Target: filepath.Clean(m.Target), ReadOnly: m.Mode == api.ModeRO})
	return nil
}

// open opens what is to be mounted, which may be a folder (dir) or, unless it goes below an overlay, a file. The caller
// owns src.
func (a *Attaching) open(m api.Mount) (src *os.File, dir bool, err error) {
	if m.Volume != "" {
		src, err = a.volume(m)
	} else if err = a.ws.host.checkSource(m.Source); err == nil {
		src, err = a.source(m)
	}
	if err != nil {
		return nil, false, err
	}
	if m.Volume == "" {
		err = a.ws.host.checkSame(m.Source, src)
	}
	var st os.FileInfo
	if err == nil {
		if st, err = src.Stat(); err != nil {
			err = fmt.Errorf("stat: %w", err)
		}
	}
	if err == nil && !st.IsDir() && (!st.Mode().IsRegular() || m.Mode == api.ModeOverlay) {
		err = api.Errorf(api.InvalidArgument, "%s is neither a folder nor a regular file that can be mounted %s",
			m.From(), m.Mode).
			WithHint("mount a folder")
	}
	if err != nil {
		src.Close()
		return nil, false, err
	}
	return src, st.IsDir(), nil
}

func (a *Attaching) mountPoint(at string, dir bool) error {
	if dir {
		return a.c.DiskError("make a mount point", os.Mkdir(at, 0o700))
	}
	return a.c.DiskError("make a mount point", os.WriteFile(at, nil, 0o600))
}

// sameFolder refuses another folder than the one that was mounted before.
func (a *Attaching) sameFolder(mt api.Mount, src *os.File) error {
	if a.Before == nil || mt.Volume != "" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", mt.From(), err)
	}
	was, now := a.Before[mt.Target], ID{st.Dev, st.Ino, st.Uid}
	if was == now {
		return nil
	}
	if was.Dev == now.Dev && was.Ino == now.Ino {
		return api.Errorf(api.FailedPrecondition, "the daemon cannot open %s as the sandbox had it", mt.From()).
			WithField("folders").
			WithHint("hand it over, as when the sandbox was made: hutch start --workspace PATH, -v PATH:%s", mt.Target)
	}
	return api.Errorf(api.FailedPrecondition, "%s is another folder than the one that sandbox %s had mounted",
		mt.From(), a.ID).WithField("folders").
		WithHint("put the old one back, or take what you need out of the sandbox: hutch commit %s IMAGE", a.ID)
}
