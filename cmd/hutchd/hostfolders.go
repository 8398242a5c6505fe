package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/sys"
)

// hostFolders is a layer with the folders of the host's /usr and no file: in them the owner is uid 0 of
// sandboxes. The kernel lets nobody in a user namespace write into folders whose owner has no id there, as
// root's have not; below this layer the host's /usr can be written to, by an overlay: files and folders can be made,
// removed and replaced, but the host's files neither changed in place nor renamed, since their copies would be root's.
//
// It is in memory: on a disk, 18,000 folders take 71 MB and seconds.
type hostFolders struct {
	dir string // the daemon's home

	mu     sync.Mutex
	at     string // the layer, "" before the first
	made   int    // number of the next
	key    string // of what at was made from
	mounts []string
}

// packageLists change whenever a package is installed or removed, and with it what folders there are.
var packageLists = []string{
	"/var/lib/dpkg/status", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite", "/lib/apk/db/installed",
	"/var/lib/pacman/local",
}

// adopt takes over the layers of a hutchd before, which sandboxes still use; new sandboxes get a new one.
func (h *hostFolders) adopt() (err error) {
	if h.mounts, err = filepath.Glob(filepath.Join(h.dir, "folders*")); err != nil {
		return err
	}
	for _, at := range h.mounts {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(at), "folders")); err == nil {
			h.made = max(h.made, n+1)
		}
	}
	return nil
}

// close unmounts the layers; no sandbox uses them any more.
func (h *hostFolders) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, at := range h.mounts {
		errs = append(errs, dropFolders(at))
	}
	h.mounts, h.at = nil, ""
	return errors.Join(errs...)
}

func dropFolders(at string) error {
	err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) { // hutchd was killed before it mounted it
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return os.Remove(at)
}

// layer returns the folder of the layer of source, without what is hidden. The first call, and one after a package
// was installed, takes a few tenths of a second, and 1 KB of memory a folder.
func (h *hostFolders) layer(source string, hide []string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := source
	for _, p := range append([]string{source, source + "/bin", source + "/lib", source + "/share", source + "/local"},
		packageLists...) {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil {
			key += fmt.Sprintf(" %d:%d:%d", st.Ino, st.Mtim.Sec, st.Mtim.Nsec)
		}
	}
	if h.at != "" && h.key == key {
		return h.at, nil
	}
	at := filepath.Join(h.dir, "folders"+strconv.Itoa(h.made))
	h.made++
	if err := makeFolders(source, at, hide); err != nil {
		return "", fmt.Errorf("make the folders of %s: %w", source, err)
	}
	// The one before is still some sandbox's; it goes with the daemon.
	h.at, h.key, h.mounts = at, key, append(h.mounts, at)
	return at, nil
}

// makeFolders makes the layer. When it fails nothing is left.
func makeFolders(source, at string, hide []string) (err error) {
	var undo cleanup.Stack
	defer undo.Run(&err)
	var st unix.Stat_t
	if err := unix.Stat(source, &st); err != nil {
		return err
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	undo.Add(func() error { return dropFolders(at) })
	mnt, err := sys.FSMount("tmpfs", []sys.FSOption{{Key: "source", Value: "hutch"}, {Key: "mode", Value: "0755"}},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer mnt.Close()
	if err := sys.AttachTree(mnt, at); err != nil {
		return err
	}
	if err := copyFolders(source, at, st.Dev, hide); err != nil {
		return err
	}
	undo.Release()
	return nil
}

// copyFolders makes in the folder to those below from, as far as hutchd may look, on one device.
func copyFolders(from, to string, dev uint64, hide []string) error {
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		var st unix.Stat_t
		if !e.IsDir() || slices.Contains(hide, from) || unix.Lstat(from, &st) != nil ||
			st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Dev != dev {
			continue // gone meanwhile, a mount, or hidden by a layer above
		}
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		if err := copyFolders(from, to, dev, hide); err != nil {
			return err
		}
		if err := unix.Chmod(to, st.Mode&0o777); err != nil { // mkdir goes by the umask
			return err
		}
	}
	return nil
}
