package keep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// ownCopy is what was in a file system of the sandbox's own.
const ownCopy = "fs.copy"

// boxPin is the name of the pin of the image of a stopped sandbox.
func boxPin(id string) string { return "box-" + id }

// Pin keeps the layers of the image of a sandbox that is to be stopped, where they are its own; those of the machine
// are made again.
func (k *Keep) Pin(id string, root *spec.Root) error {
	if root.Ref == spec.HostImage {
		return nil
	}
	return k.images.Pin(boxPin(id), root.Lower)
}

// Unpin ends Pin.
func (k *Keep) Unpin(id string) error { return k.images.Unpin(boxPin(id)) }

// CopyOwn copies what is in fs below dir, a sandbox's folder, and goes with the file system that is mounted there.
func (k *Keep) CopyOwn(dir string) error {
	to := filepath.Join(dir, ownCopy)
	if err := rmtree.Path(to); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return k.cfg.DiskError("copy files", err)
	}
	_, err := k.Copy(context.Background(), filepath.Join(dir, "fs"), to)
	return err
}

// Mark makes the folder of a sandbox one that belongs on the shelf whenever the sandbox does not run.
func (k *Keep) Mark(dir string) error {
	return k.cfg.DiskError("mark the sandbox's folder", os.WriteFile(filepath.Join(dir, shelf.Mark), nil, 0o600))
}

// Unmark ends Mark and Pin, of a sandbox that goes.
func (k *Keep) Unmark(dir, id string) error {
	return errors.Join(os.Remove(filepath.Join(dir, shelf.Mark)), k.Unpin(id))
}

// Shelve puts a folder on the shelf that belongs there. Nothing is mounted in it any more.
func (k *Keep) Shelve(dir, id string) error {
	if err := k.Tidy(dir); err != nil {
		return err
	}
	if err := k.shelf.Put(dir, id); err != nil {
		return fmt.Errorf("keep the sandbox's folder: %w", err)
	}
	return nil
}

// Tidy takes away what is made again at the next start, which fails where it is there already: who was killed over a
// stop or a start has left all of it, and Rescue moves it along.
func (k *Keep) Tidy(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("keep the sandbox's folder: %w", err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == recordFile, name == "fs", name == ownCopy, name == shelf.Mark, slices.Contains(k.cfg.Kept, name):
		default:
			if err := removeAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, ownCopy)); err != nil {
		return nil
	}
	return errors.Join(removeAll(filepath.Join(dir, "fs")),
		os.Rename(filepath.Join(dir, ownCopy), filepath.Join(dir, "fs")))
}

// recordFile is the record in the folder of a sandbox.
const recordFile = "record.json"

// SetAside makes place for a file system of the sandbox's own at fs, below dir, a folder that was taken from the shelf.
func (k *Keep) SetAside(dir string) error {
	fsDir := filepath.Join(dir, "fs")
	return k.cfg.DiskError("make the sandbox's folder",
		errors.Join(os.Rename(fsDir, filepath.Join(dir, ownCopy)), os.Mkdir(fsDir, 0o700)))
}

// FillOwn copies what SetAside has set aside to that file system.
func (k *Keep) FillOwn(dir string) error {
	_, err := k.Copy(context.Background(), filepath.Join(dir, ownCopy), filepath.Join(dir, "fs"))
	return err
}

// Renew makes fs below dir, a folder that was taken from the shelf, fit for another start: an empty work folder, and
// the folders that our mounts need, whatever the sandbox has left in their places.
func (k *Keep) Renew(dir string) error {
	// A volatile overlay says so in its work folder, and is not mounted again; this kernel has written nothing half.
	work := filepath.Join(dir, "fs", "work")
	if err := errors.Join(removeAll(work), os.Mkdir(work, 0o700)); err != nil {
		return k.cfg.DiskError("make the sandbox's folder", err)
	}
	top, err := os.OpenFile(filepath.Join(dir, "fs", upper), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer top.Close()
	for _, name := range []string{"proc", "dev", "sys"} { // that something is mounted on
		if err := needFolder(top, name); err != nil {
			return fmt.Errorf("make /%s again: %w", name, err)
		}
	}
	return nil
}

// needFolder makes a folder in top unless there is one. The sandbox has chosen what is there; no link is followed.
func needFolder(top *os.File, name string) error {
	parent := int(top.Fd())
	var st unix.Stat_t
	err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err == nil {
		err = unix.Unlinkat(parent, name, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Mkdirat(parent, name, 0o755); err != nil {
		return err
	}
	return unix.Fchmodat(parent, name, 0o755, 0) // a folder that was just made, by us
}

// Begun takes the mark from the folder of a sandbox that was started: from now on it ends with its sandbox.
func (k *Keep) Begun(dir string) error {
	if err := os.Remove(filepath.Join(dir, shelf.Mark)); err != nil {
		return err
	}
	return removeAll(filepath.Join(dir, ownCopy))
}

// Remove removes a stopped sandbox from the shelf.
func (k *Keep) Remove(id string) error { return errors.Join(k.shelf.Remove(id), k.Unpin(id)) }

// Own reports whether the shelf is in memory, and so goes with this daemon.
func (k *Keep) Own() bool { return filepath.Dir(k.shelf.Dir()) == k.cfg.Dir }

// TidyPins ends the pins of what a daemon was killed over: it had pinned an image, and kept nothing.
func (k *Keep) TidyPins() error {
	if k.Own() { // there may be others that this daemon cannot look into
		return nil
	}
	all, err := k.shelf.Lock()
	if err != nil {
		return err
	}
	defer all.Close()
	pins, err := k.images.Pins()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range pins {
		var places []string
		if id, ok := strings.CutPrefix(name, boxPin("")); ok {
			homes, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(k.cfg.Dir)), "*", "sandboxes", id))
			errs = append(errs, err)
			places = append(homes, k.shelf.Box(id))
		} else if id, ok := strings.CutPrefix(name, snapshotPin("")); ok {
			places = []string{k.shelf.Snapshot(id)}
		} else {
			continue
		}
		if !slices.ContainsFunc(places, func(at string) bool { _, err := os.Lstat(at); return err == nil }) {
			errs = append(errs, k.images.Unpin(name))
		}
	}
	return errors.Join(errs...)
}

// Close ends the pins of what goes with this daemon.
func (k *Keep) Close() error {
	if !k.Own() {
		return nil
	}
	ids, err := k.shelf.Snapshots()
	for _, id := range ids {
		err = errors.Join(err, k.images.Unpin(snapshotPin(id)))
	}
	return err
}
