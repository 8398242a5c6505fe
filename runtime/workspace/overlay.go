package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Overlay mounts an overlay, with the number behind those of the folders, over layers that are no folder of the spec's,
// and returns where. Top-most first.
func (a *Attaching) Overlay(lower ...string) (merged string, err error) {
	sorted, err := Sorted(a.Spec)
	if err != nil {
		return "", err
	}
	return a.overlay(len(sorted), "", false, lower...)
}

// overlay mounts an overlay whose lower layers, top-most first, are the host's folders at lower: the
// sandbox may write, the host sees nothing of it. Its own top folder is like the folder like, if that is not "".
func (a *Attaching) overlay(i int, like string, mapped bool, lower ...string) (string, error) {
	base, merged := filepath.Join(a.Dir, written, strconv.Itoa(i)), At(a.Dir, i)+mergedSuffix
	err := a.overlayFolders(i, base, like, mapped)
	if err == nil {
		err = os.Mkdir(merged, 0o755)
	}
	if err != nil {
		return "", a.c.DiskError("make overlay folders", err)
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
	a.c.Undo(func() error { return a.ws.unmount(merged) })
	return merged, nil
}

// overlayFolders makes those of an overlay other than the root, with what was written to it before. The folder is like
// that of the host's below it, where there is one.
func (a *Attaching) overlayFolders(i int, base, like string, mapped bool) error {
	if a.Again {
		if err := rmtree.Path(base + "/work"); err != nil {
			return fmt.Errorf("remove the sandbox's folder: %w", err)
		}
	}
	for _, d := range []string{base, base + "/upper", base + "/work"} {
		if err := os.Mkdir(d, 0o755); err != nil && (!a.Again || !errors.Is(err, fs.ErrExist)) {
			return err
		}
	}
	if like != "" && !a.Again {
		if err := prepareOverlay(base+"/upper", like, mapped); err != nil {
			return err
		}
	}
	if a.Over != "" {
		from := filepath.Join(a.Over, strconv.Itoa(i))
		if _, err := os.Lstat(from); err == nil {
			return a.c.Copy(from, base+"/upper")
		}
	}
	return nil
}

// prepareOverlay gives the upper folder of an overlay the mode and the owner of the folder below it, which the sandbox
// sees as the overlay's. mapped says that who has made the mount has mapped that owner: there 65534 is an id as others.
func prepareOverlay(upper, lower string, mapped bool) error {
	var st unix.Stat_t
	if err := unix.Lstat(lower, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if !mapped && (st.Uid == overflowID || st.Gid == overflowID) {
		return api.Errorf(api.FailedPrecondition,
			"the folder's owner or its group has no id in sandboxes, and the kernel's overlay cannot change a file of theirs").
			WithHint("ls -ld shows whose it is; use mode rw or ro, or a copy: cp -r")
	}
	if err := os.Lchown(upper, int(st.Uid), int(st.Gid)); err != nil {
		return fmt.Errorf("own the overlay's folder: %w", err)
	}
	return unix.Chmod(upper, st.Mode&0o7777)
}
