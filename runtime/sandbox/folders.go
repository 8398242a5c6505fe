package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// folders makes the sandbox's folder:
//
//	record.json  the record, written last
//	names        addresses that its names have
//	root/        where the overlay is mounted
//	fs/          what the sandbox has written; a tmpfs of its own where its files are in memory and have a limit
//	fs/upper/    the root's
//	fs/work      overlayfs's own
//	fs/<i>/      the same of a workspace or mount in mode overlay
//	run/         libcontainer's state
//	pts/         where the devpts instance is mounted
//	base/        the root that it had before it was claimed, see generic
//	about/       what the sandbox is told about itself, a file system in memory
//	undo/        what the files were before the last calls, see runtime/history/undo
//	kept         a mark: see shelf.Mark
//	fs.copy/     what is in fs, where that is a file system of its own, until it was copied there
//	mnt/         host folders on their way into the sandbox
func (f *creation) folders(context.Context) error {
	dir := f.s.dir
	if err := f.makeFolder(); err != nil {
		return diskError("make the sandbox's folder", err)
	}
	f.undo.Add(func() error { return f.m.removeFolder(f.s) })
	subs := []folder{{"fs", 0o700}, {"root", 0o755}, {"run", 0o700}, {"pts", 0o755}, {"mnt", 0o700}}
	if f.starting() { // the shelf had fs
		subs = subs[1:]
	}
	for _, sub := range subs {
		if err := os.Mkdir(filepath.Join(dir, sub.name), sub.mode); err != nil {
			return diskError("make the sandbox's folder", err)
		}
	}
	if f.starting() {
		return f.oldFolders()
	}
	if err := f.limitDisk(); err != nil {
		return err
	}
	return f.rootFolders()
}

// claimFolders uses the folders that were made with a generic sandbox, unless a limit of disk space would not hold
// them.
func (f *creation) claimFolders(context.Context) error {
	if err := f.limitDisk(); err != nil {
		return err
	}
	d := f.s.meter.Disk()
	switch {
	case d.ByProject(): // what is made from now on counts
		if err := errors.Join(removeAll(filepath.Join(f.s.dir, "fs/upper")),
			removeAll(filepath.Join(f.s.dir, "fs/work"))); err != nil {
			return err
		}
		return f.rootFolders()
	case d.Hard(): // they are below the file system that the limit is
		return f.rootFolders()
	}
	return diskError("write the sandbox's own files", f.ownFiles(filepath.Join(f.s.dir, "fs/upper")))
}

// makeFolder makes the sandbox's folder, or takes it from the shelf.
func (f *creation) makeFolder() error {
	if f.starting() {
		return f.m.cfg.Shelf.Take(f.s.id, f.s.dir)
	}
	return os.Mkdir(f.s.dir, 0o700)
}

// rootFolders makes those of the root's overlay, with our own files.
func (f *creation) rootFolders() error {
	upper, err := makeRootFolders(f.s.dir)
	if err != nil {
		return diskError("make the sandbox's folder", err)
	}
	return diskError("write the sandbox's own files", f.ownFiles(upper))
}

// makeRootFolders makes the folders of the root's overlay, and in its upper one, the root folder that the sandbox sees,
// those for our own files and mounts.
func makeRootFolders(dir string) (upper string, err error) {
	upper = filepath.Join(dir, "fs/upper")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(filepath.Join(dir, "fs/work"), 0o700)); err != nil {
		return "", err
	}
	for _, d := range ownFolders {
		path := filepath.Join(upper, d.name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return "", err
		}
		if err := os.Chmod(path, d.mode); err != nil { // past the umask
			return "", err
		}
	}
	return upper, nil
}

// limitDisk makes the sandbox's limit of disk space.
func (f *creation) limitDisk() error {
	return f.s.meter.LimitDisk(diskPlace(f.m.Workspaces, f.s), f.undo.Add)
}

// diskPlace is where the sandbox writes.
func diskPlace(w *workspace.Workspaces, s *Sandbox) meter.DiskPlace {
	return meter.DiskPlace{Dir: s.dir, Volumes: w.VolumeFolders(s.user, &s.spec),
		Layered: len(s.kept.Layers) > 0, Base: s.kept.Base}
}

// ownFiles puts what differs from sandbox to sandbox into the upper folder, where
// it hides whatever the image has there, symlinks included: nothing is written
// through a path that the image controls.
func (f *creation) ownFiles(upper string) error {
	host := f.s.record.Hostname
	files := map[string]string{
		"etc/hostname": host + "\n",
		"etc/hosts": "127.0.0.1\tlocalhost " + host + "\n::1\tlocalhost ip6-localhost ip6-loopback " +
			host + "\n",
		"etc/resolv.conf": resolvConf(f.m.cfg.Networks.NoResolver()),
	}
	for _, h := range f.req.Spec.Hosts {
		files["etc/hosts"] += h.Address + "\t" + h.Name + "\n"
	}
	if f.s.record.Network.Mode != api.NetNone {
		files["etc/resolv.conf"] = resolvConf(f.m.cfg.Networks.Resolver())
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(upper, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// resolvConf names a resolver. Every libc takes this one line as it is: no search list, so that what is asked
// for is what the program meant. Which databases there are (nsswitch.conf) is the
// image's: without one glibc, musl and Go look here.
func resolvConf(resolver netip.Addr) string { return "nameserver " + resolver.String() + "\n" }

// folder is one of ours.
type folder struct {
	name string
	mode os.FileMode
}

// ownFolders are for our own files and mounts, whatever the image has there.
var ownFolders = []folder{{"etc", 0o755}, {"tmp", 0o777 | os.ModeSticky}, {"proc", 0o755}, {"dev", 0o755},
	{"sys", 0o755}}

// destroyInit ends PID 1 with all of its sandbox, and unmounts its root.
func destroyInit(ctx context.Context, m *Manager, s *Sandbox) error {
	err := m.cfg.Launcher.Destroy(ctx, s.id)
	if launcherGone(err) {
		return abandon(m.cfg.Kernel, s)
	}
	return err
}

// abandon does what hutch-launch, which is gone, did not: end PID 1 and unmount
// what lies in the sandbox's folder. hutchd shares its mount namespace.
func abandon(k Kernel, s *Sandbox) error {
	err := k.Kill(s.pidfd)
	k.AwaitExit(s.pidfd)
	for _, name := range []string{"root", "pts"} {
		uerr := unmount(k, filepath.Join(s.dir, name))
		if errors.Is(uerr, unix.EINVAL) {
			continue // not mounted
		}
		err = errors.Join(err, uerr)
	}
	return err
}

// unmount detaches: an open file of a killed process can keep a mount busy for
// a moment, and nobody can reach it any more.
func unmount(k Kernel, at string) error {
	if err := k.Unmount(at); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}

// removeAll removes the tree of a sandbox, whose folders may lack write permission
// for their owner: hutchd has CAP_DAC_OVERRIDE over its own ids, and overlayfs's
// work folder is mode 000.
func removeAll(dir string) error {
	if err := rmtree.Path(dir); err != nil {
		return fmt.Errorf("remove the sandbox's folder: %w", err)
	}
	return nil
}

// diskError makes ENOSPC and friends an error that users can act on.
func diskError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return api.Errorf(api.ResourceExhausted, "%s: %w", op, err).
			WithHint("free space in the state folder, or put it elsewhere with HUTCH_ROOT")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return api.Errorf(api.PermissionDenied, "%s: %w", op, err).
			WithHint("the state folder must be writable; HUTCH_ROOT chooses another")
	}
	return fmt.Errorf("%s: %w", op, err)
}

// recordFile is where the record is in a sandbox's folder; tmpSuffix ends the name of a file that is not whole yet.
const (
	recordFile = "record.json"
	tmpSuffix  = ".tmp"
	// spareSuffix ends the name of the file that the next record of a sandbox that waits is written to.
	spareSuffix = ".next"
)

// writeJSON replaces the file at path: a reader sees the old text or the new.
func writeJSON(path string, v any) error {
	data, err := encodeJSON(path, v)
	if err != nil {
		return err
	}
	tmp := path + tmpSuffix
	fd, err := unix.Open(tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return diskError("write "+filepath.Base(path), &fs.PathError{Op: "open", Path: tmp, Err: err})
	}
	if err := overwrite(fd, tmp, data); err != nil {
		return diskError("write "+filepath.Base(path), err)
	}
	return os.NewSyscallError("rename", unix.Rename(tmp, path))
}

// overwrite replaces what is in a file, and closes it. One that is cut to nothing first goes to the disk when it is
// closed (ext4(5), auto_da_alloc).
func overwrite(fd int, name string, data []byte) error {
	file := os.NewFile(uintptr(fd), name)
	_, err := file.Write(data)
	return errors.Join(err, file.Truncate(int64(len(data))), file.Close())
}

// swapJSON is writeJSON for what is of no use after a crash of the machine: where there is a file beside it to write it
// to, both exchange their names. No file is made and none is removed, whose blocks an ext4 may have to give back at
// once, and of which a rename over another one would begin to write the new (ext4(5), discard and auto_da_alloc).
func swapJSON(path string, v any) error {
	spare := path + spareSuffix
	fd, err := unix.Open(spare, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return writeJSON(path, v)
	}
	data, err := encodeJSON(path, v)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if err := overwrite(fd, spare, data); err != nil {
		return diskError("write "+filepath.Base(path), err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, spare, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); err != nil {
		return writeJSON(path, v) // the file system cannot, or there is none yet
	}
	return nil
}

func encodeJSON(path string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return append(data, '\n'), nil
}

// ownNames are the files of ownFiles.
var ownNames = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}
