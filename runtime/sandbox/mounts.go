package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// workspaceTarget is where the workspace is mounted.
const workspaceTarget = "/workspace"

// mounts attaches the workspace and the other host folders below the sandbox's
// own folder, from fds and not from paths, so that what libcontainer binds later
// cannot be swapped.
func (f *creation) mounts(ctx context.Context) error {
	sp := &f.req.Spec
	wanted, err := inOrder(hostFolders(sp))
	if err != nil {
		return err
	}
	if f.s.guards, err = guardsOf(sp, filepath.Join(f.s.dir, "mnt")); err != nil {
		return err
	}
	for i, m := range wanted {
		field := "workspace"
		if m.Target != workspaceTarget || sp.Workspace == nil {
			field = fmt.Sprintf("mounts %s", m.Target)
		}
		err := f.checkNested(wanted[:i], m)
		if err == nil {
			err = f.attach(i, m)
		}
		if g := f.s.guardAt(m.Target); err == nil && g != nil {
			err = g.cover(ctx)
		}
		if err != nil {
			var ae *api.Error
			if errors.As(err, &ae) {
				return ae.WithField(field)
			}
			return fmt.Errorf("%s %s: %w", field, m.From(), err)
		}
	}
	if err := f.checkShared(wanted); err != nil {
		return err
	}
	// What volumes hold counts, and is not the doing of the first command.
	if f.s.disk != nil && (len(f.s.disk.volumes) > 0 || f.req.origin != nil && !f.req.origin.built) {
		if err := f.m.allowWhatThereIs(ctx, f.s); err != nil {
			return err
		}
	}
	if sp.WritableUsr {
		return f.writableUsr(len(wanted))
	}
	return nil
}

// writableUsr puts an overlay in the place of the host's /usr, with the index i for its folders.
func (f *creation) writableUsr(i int) error {
	at := slices.IndexFunc(f.s.root.Binds, func(b spec.Bind) bool { return b.Target == "/usr" })
	if f.s.root.WritableUsr == nil || at < 0 {
		return api.Errorf(api.InvalidArgument,
			"writable_usr: the image %s has a /usr of its own, which can be written to", f.s.root.Ref).
			WithField("writable_usr").WithHint("leave it out; it is for the image %s, whose /usr is the host's",
			hostImage)
	}
	lower, err := f.s.root.WritableUsr()
	if err != nil {
		return err
	}
	merged, err := f.overlay(i, "", false, append(f.m.builtUsr(f.s), lower...)...)
	if err != nil {
		return api.Errorf(api.FailedPrecondition, "writable_usr: %w", err).WithField("writable_usr").
			WithHint("a mount below /usr keeps the kernel from it: findmnt -R /usr shows which")
	}
	// The binds are the image's; what hides parts of /usr is one of the layers.
	binds := slices.DeleteFunc(slices.Clone(f.s.root.Binds), func(b spec.Bind) bool { return within(b.Target, "/usr") })
	f.s.root.Binds = slices.Insert(binds, min(at, len(binds)), spec.Bind{Source: merged, Target: "/usr"})
	return nil
}

// inMemory are the folders that a sandbox with a root that is read-only can write all the same: hardly a program does
// without.
var inMemory = []string{"/tmp", "/var/tmp", "/run"}

// hostFolders are the workspace, the volumes, and the other folders of the host's or in memory that sp asks for.
func hostFolders(sp *api.Spec) (wanted []api.Mount) {
	if w := sp.Workspace; w != nil && w.Mode != api.ModeNone {
		wanted = append(wanted, api.Mount{
			Source: w.Path, Target: workspaceTarget, Mode: w.Mode, FD: w.FD, Guard: w.Guard, Unguarded: w.Unguarded,
			GuardNew: w.GuardNew,
		})
	}
	wanted = append(wanted, sp.Mounts...)
	for _, target := range inMemory {
		if sp.ReadOnly && !slices.ContainsFunc(wanted,
			func(m api.Mount) bool { return path.Clean(m.Target) == target }) {
			wanted = append(wanted, api.Mount{Target: target, Mode: api.ModeTmpfs})
		}
	}
	return wanted
}

// attachTmpfs mounts a folder in memory at mnt/<i> and adds its bind.
func (f *creation) attachTmpfs(i int, m api.Mount) error {
	at := f.mountDir(i)
	if err := mountPoint(at, true); err != nil {
		return err
	}
	attr := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if m.NoExec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	size := m.SizeBytes
	if size == 0 {
		size = f.m.memoryFolder(f.s)
	}
	mnt, err := f.m.cfg.Kernel.Tmpfs([]sys.FSOption{
		{Key: "source", Value: "tmpfs"}, {Key: "size", Value: strconv.FormatInt(size, 10)},
		{Key: "nr_inodes", Value: strconv.FormatInt(inodesOf(size), 10)},
		{Key: "mode", Value: orElse(m.Permissions, "1777")},
	}, attr)
	if err != nil {
		return fmt.Errorf("make a folder of %d bytes in memory: %w", size, err)
	}
	defer mnt.Close()
	if err := f.m.cfg.Kernel.Attach(mnt, at); err != nil {
		return err
	}
	f.undo.Add(func() error { return f.m.unmount(at) })
	f.binds = append(f.binds, spec.Bind{Source: at, Target: filepath.Clean(m.Target)})
	return nil
}

// inodesOf bounds the files of a folder in memory, of which each takes about a kilobyte of the kernel's.
func inodesOf(size int64) int64 { return min(max(size>>12, 1024), 1<<20) }

// attach puts one host folder or file at mnt/<i> and adds its bind.
func (f *creation) attach(i int, m api.Mount) error {
	if m.Mode == api.ModeTmpfs {
		return f.attachTmpfs(i, m)
	}
	open := f.source
	if m.Volume != "" {
		open = f.volume
	} else if err := f.m.cfg.Host.checkSource(m.Source); err != nil {
		return err
	}
	src, err := open(m)
	if err != nil {
		return err
	}
	defer src.Close()
	if m.Volume == "" {
		if err := f.m.cfg.Host.checkSame(m.Source, src); err != nil {
			return err
		}
	}
	st, err := src.Stat()
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	switch {
	case st.IsDir():
	case st.Mode().IsRegular() && m.Mode != api.ModeOverlay:
	default:
		return api.Errorf(api.InvalidArgument, "%s is neither a folder nor a regular file that can be mounted %s",
			m.From(), m.Mode).
			WithHint("mount a folder")
	}
	mapped := m.FD != nil && isDetachedMount(src) // by root's client; once it is attached nothing tells it from others
	if err := f.checkOwner(m, src, mapped); err != nil {
		return err
	}
	if err := f.sameFolder(m, src); err != nil {
		return err
	}
	at := f.mountDir(i)
	if err := mountPoint(at, st.IsDir()); err != nil {
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
	f.undo.Add(func() error { return f.m.unmount(at) })
	bind := at
	if m.Mode == api.ModeOverlay {
		if bind, err = f.overlay(i, at, mapped, at); err != nil {
			return err
		}
	}
	f.tellForeign(m, at, mapped)
	f.binds = append(f.binds, spec.Bind{Source: bind, Target: filepath.Clean(m.Target), ReadOnly: m.Mode == api.ModeRO})
	return nil
}

// source opens what the caller named. An O_PATH fd of the caller's proves that it
// may see the path and must be the very same file that hutchd finds there;
// a detached mount (made by a root client, id-mapped for this daemon) is taken as
// it is, since hutchd could not walk root's folders itself.
func (f *creation) source(m api.Mount) (*os.File, error) {
	if m.FD == nil {
		return f.openChecked(m.Source)
	}
	given, err := f.req.FDs.Take(*m.FD)
	if err != nil {
		return nil, err
	}
	if isDetachedMount(given) {
		return given, nil
	}
	defer given.Close()
	own, err := f.openChecked(m.Source)
	if err != nil {
		return nil, err
	}
	var a, b unix.Stat_t
	err = errors.Join(unix.Fstat(int(given.Fd()), &a), unix.Fstat(int(own.Fd()), &b))
	if err != nil || a.Dev != b.Dev || a.Ino != b.Ino {
		own.Close()
		return nil, api.Errorf(api.FailedPrecondition, "%s is not what the caller opened", m.Source).
			WithHint("the path changed meanwhile, or the caller lives in another mount namespace; give a path that both see")
	}
	return own, nil
}

// openChecked opens path and checks where it really leads, symlinks resolved.
func (f *creation) openChecked(path string) (*os.File, error) {
	src, err := openPath(path)
	if err != nil {
		return nil, err
	}
	resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(src.Fd())))
	if err == nil {
		err = f.m.cfg.Host.checkSource(resolved)
	}
	if err != nil {
		src.Close()
		return nil, err
	}
	return src, nil
}

func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		return os.NewFile(uintptr(fd), path), nil
	}
	e := &fs.PathError{Op: "open", Path: path, Err: err}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, api.Errorf(api.NotFound, "%w", e).WithHint("make the folder first, or correct the path")
	case errors.Is(err, unix.EACCES):
		return nil, api.Errorf(api.PermissionDenied, "%w", e).
			WithHint("the daemon runs as an ordinary user and must be able to walk the path; let the hutch command line mount it")
	}
	return nil, e
}

// isDetachedMount reports whether fd is the root of a mount that is attached
// nowhere. The kernel says so only indirectly: such a mount is not listed in
// this process's mountinfo.
func isDetachedMount(f *os.File) bool {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st); err != nil {
		return false
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	id := strconv.FormatUint(st.Mnt_id, 10) + " "
	for line := range strings.Lines(string(info)) {
		if strings.HasPrefix(line, id) {
			return false
		}
	}
	return true
}

// detached clones the mount below src, or takes src itself when it is detached.
func detached(src *os.File) (int, error) {
	if isDetachedMount(src) {
		fd, err := unix.FcntlInt(src.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("duplicate mount: %w", err)
		}
		return fd, nil
	}
	fd, err := unix.OpenTree(int(src.Fd()), "",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, attachError(src.Name(), err)
	}
	return fd, nil
}

// attachError explains EINVAL, with which the kernel refuses to take a part of the
// host's mounts into a less privileged namespace (mount_namespaces(7), locked
// mounts).
func attachError(source string, err error) error {
	if errors.Is(err, unix.EINVAL) {
		return api.Errorf(api.InvalidArgument, "%s has mounts at or below it that cannot be shared: %w", source, err).
			WithHint("mount a folder below it")
	}
	return fmt.Errorf("attach %s: %w", source, err)
}

// mergedSuffix goes behind the name of a mount point that is an overlay's lower folder.
const mergedSuffix = ".merged"

// overlay mounts an overlay whose lower layers, top-most first, are the host's folders at lower: the
// sandbox may write, the host sees nothing of it. Its own top folder is like the folder like, if that is not "".
func (f *creation) overlay(i int, like string, mapped bool, lower ...string) (string, error) {
	base, merged := filepath.Join(f.s.dir, "fs", strconv.Itoa(i)), f.mountDir(i)+mergedSuffix
	if err := f.overlayFolders(i, base, like, mapped); err != nil {
		return "", diskError("make overlay folders", err)
	}
	if err := os.Mkdir(merged, 0o755); err != nil {
		return "", diskError("make overlay folders", err)
	}
	options := []sys.FSOption{{Key: "source", Value: "overlay"}}
	for _, l := range lower {
		options = append(options, sys.FSOption{Key: "lowerdir+", Value: l})
	}
	options = append(options, []sys.FSOption{{Key: "upperdir", Value: "upper"}, {Key: "workdir", Value: "work"},
		{Key: "userxattr"}}...)
	if err := sys.MountOverlay(base, merged, options, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return "", fmt.Errorf("overlay over %s: %w", lower[len(lower)-1], err)
	}
	f.undo.Add(func() error { return f.m.unmount(merged) })
	return merged, nil
}

func mountPoint(at string, dir bool) error {
	if dir {
		return diskError("make a mount point", os.Mkdir(at, 0o700))
	}
	return diskError("make a mount point", os.WriteFile(at, nil, 0o600))
}

// unmount detaches: an open file of a killed process can keep a mount busy for
// a moment, and nobody can reach it any more.
func (m *Manager) unmount(at string) error {
	if err := m.cfg.Kernel.Unmount(at); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}

// checkSource refuses host folders that hold, or lie in, what hutch itself trusts, or a link by which that is found:
// uid 0 in a sandbox has hutchd's own kernel uid and could rewrite it. Links may have changed since the daemon started.
func (h *Host) checkSource(source string) error {
	source = filepath.Clean(source)
	for _, place := range h.Forbidden {
		links, real := paths.Way(place)
		for _, own := range []string{place, real} {
			if within(source, own) || within(own, source) {
				return trusted(source, own)
			}
		}
		for _, link := range links {
			if within(link, source) {
				return trusted(source, link)
			}
		}
	}
	return nil
}

// checkSame is checkSource for a folder by whatever name it is mounted: by its device and inode.
func (h *Host) checkSame(source string, src *os.File) error {
	var of unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &of); err != nil {
		return fmt.Errorf("stat %s: %w", source, err)
	}
	for _, place := range h.Forbidden {
		links, real := paths.Way(place)
		for _, own := range append(links, place, real) {
			for at := own; ; at = filepath.Dir(at) {
				var st unix.Stat_t
				if unix.Lstat(at, &st) == nil && st.Dev == of.Dev && st.Ino == of.Ino {
					return trusted(source, own)
				}
				if at == "/" || at == "." {
					break
				}
			}
		}
	}
	return nil
}

func trusted(source, place string) error {
	return api.Errorf(api.PermissionDenied, "%s cannot be mounted: it holds, or lies in, what hutch itself trusts: %s",
		source, place).
		WithHint("mount a folder apart from it, or move the state with HUTCH_ROOT, the configuration with HUTCH_CONFIG")
}

// within reports whether path is dir or below it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
