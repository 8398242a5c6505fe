// Package shelf keeps what outlives the daemon that made it: the folders of stopped sandboxes, and snapshots.
//
//	boxes/<sandbox>/        the folder of a stopped sandbox, as it was
//	layers/<layer>/         what a snapshot has copied; nobody writes to it again
//	snapshots/<id>.json     a snapshot: which layers it is made of
//	tmp/<random>/           being made or removed
//	lock                    held while something is put here or taken away
//
// All changes are renames, so a crash leaves a thing or none; what is in tmp is swept. A daemon holds a lock (flock(2))
// on the folders of the stopped sandboxes that it lists, and a shared one on the layers that its sandboxes are mounted
// from. The content is sandboxes': nothing here looks into it.
package shelf

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/sys"
)

// Mark is the name of a file in the folder of a sandbox that belongs on the shelf whenever the sandbox does not run.
const Mark = "kept"

// Store is one shelf. Its methods may be called from any goroutine, and by several processes.
type Store struct{ dir string }

// Open makes the folders where they are missing, and removes what killed daemons have left half done.
func Open(dir string, log *slog.Logger) (*Store, error) {
	st := &Store{dir}
	for _, sub := range []string{"boxes", "layers", "snapshots", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make the shelf: %w", err)
		}
	}
	if err := sys.Spread(st.path("tmp")); err != nil { // layers are made there
		log.Debug("spread the shelf over the disk", "err", err)
	}
	if err := st.sweep(); err != nil { // it is in nobody's way
		log.Warn("remove what was left half done on the shelf", "err", err)
	}
	return st, nil
}

// sweep removes what is in tmp and nobody's.
func (st *Store) sweep() error {
	entries, err := os.ReadDir(st.path("tmp"))
	if err != nil {
		return err
	}
	all, err := st.Lock() // whoever writes a file there has it
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			_ = os.Remove(st.path("tmp", e.Name()))
		}
	}
	_ = all.Close()
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		f, err := lock(st.path("tmp", e.Name()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // somebody is about it, or it is gone
		}
		errs = append(errs, rmtree.Path(st.path("tmp", e.Name())), f.Close())
	}
	return errors.Join(errs...)
}

// Dir is the shelf's folder.
func (st *Store) Dir() string { return st.dir }

func (st *Store) path(names ...string) string {
	return filepath.Join(append([]string{st.dir}, names...)...)
}

// Lock keeps everybody else from putting things here or taking them away until it is closed.
func (st *Store) Lock() (*os.File, error) {
	f, err := os.OpenFile(st.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the shelf: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			_ = f.Close()
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// lock opens a folder and locks it.
func lock(path string, how int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	return f, flock(f, how)
}

// Box is where the folder of a stopped sandbox is.
func (st *Store) Box(id string) string { return st.path("boxes", id) }

// Hold locks the folder of a sandbox, wherever it is: whoever has the lock lists it. The lock goes along when the
// folder is moved. An error for which errors.Is(err, unix.EWOULDBLOCK) says that another daemon does.
func Hold(dir string) (*os.File, error) { return lock(dir, unix.LOCK_EX|unix.LOCK_NB) }

// Put moves the folder of a sandbox here.
func (st *Store) Put(dir, id string) error {
	return unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, st.Box(id), unix.RENAME_NOREPLACE)
}

// Take moves it away again.
func (st *Store) Take(id, dir string) error {
	return unix.Renameat2(unix.AT_FDCWD, st.Box(id), unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
}

// Boxes are the ids of the stopped sandboxes, of all daemons.
func (st *Store) Boxes() ([]string, error) { return names(st.path("boxes")) }

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list, nil
}

// Remove removes the folder of a stopped sandbox.
func (st *Store) Remove(id string) error { return st.drop(st.Box(id)) }

// drop removes a folder in one step, and then its content.
func (st *Store) drop(path string) error {
	going := st.path("tmp", rand.Text())
	if err := os.Rename(path, going); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return rmtree.Path(going)
}

// Rescue puts the folders of a dead daemon's sandboxes that have the mark on the shelf.
func (st *Store) Rescue(sandboxes string) error {
	list, err := names(sandboxes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, id := range list {
		dir := filepath.Join(sandboxes, id)
		if IsMarked(dir) {
			errs = append(errs, st.Put(dir, id))
		}
	}
	return errors.Join(append(errs, err)...)
}

// IsMarked says whether the folder of a sandbox belongs here.
func IsMarked(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, Mark))
	return err == nil
}

// A layer's folder has root/, which is the layer of the root, and over/<i>/ of further overlays.

// NewLayer makes the folder of a layer, which is nobody's until AddLayer. Discard removes it otherwise.
type NewLayer struct {
	st   *Store
	Dir  string
	lock *os.File
}

// NewLayer makes one.
func (st *Store) NewLayer() (*NewLayer, error) {
	dir := st.path("tmp", rand.Text())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := lock(dir, unix.LOCK_SH|unix.LOCK_NB)
	if err != nil { // another daemon that starts has swept it, within microseconds
		return nil, err
	}
	return &NewLayer{st, dir, f}, nil
}

// Add gives the layer its name, and ends the making of it. The shelf is locked, so that who is to have it can say so
// before it is collected.
func (n *NewLayer) Add(id string) error {
	defer n.lock.Close()
	return os.Rename(n.Dir, n.st.LayerDir(id))
}

// Discard removes it.
func (n *NewLayer) Discard() error {
	defer n.lock.Close()
	return rmtree.Path(n.Dir)
}

// LayerDir is where a layer is.
func (st *Store) LayerDir(id string) string { return st.path("layers", id) }

// Use keeps layers from being collected until the files are closed.
func (st *Store) Use(ids []string) (held []*os.File, err error) {
	defer func() {
		if err != nil {
			CloseAll(held)
		}
	}()
	for _, id := range ids {
		f, err := lock(st.LayerDir(id), unix.LOCK_SH)
		if err != nil {
			return held, err
		}
		held = append(held, f)
		if _, err := os.Lstat(st.LayerDir(id)); err != nil { // it was collected between the two
			return held, err
		}
	}
	return held, nil
}

// CloseAll closes what Use has returned.
func CloseAll(held []*os.File) {
	for _, f := range held {
		_ = f.Close()
	}
}

// Collect removes the layers that wanted does not have and nobody uses. The shelf is locked; the content goes
// afterwards, by the function that is returned, which is nil where nothing goes.
func (st *Store) Collect(wanted map[string]bool) (finish func() error, err error) {
	ids, err := names(st.path("layers"))
	if err != nil {
		return nil, err
	}
	var going []string
	for _, id := range ids {
		if wanted[id] {
			continue
		}
		f, err := lock(st.LayerDir(id), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue
		}
		to := st.path("tmp", rand.Text())
		if err := os.Rename(st.LayerDir(id), to); err == nil {
			going = append(going, to)
		}
		_ = f.Close()
	}
	if len(going) == 0 {
		return nil, nil
	}
	return func() error {
		var errs []error
		for _, dir := range going {
			errs = append(errs, rmtree.Path(dir))
		}
		return errors.Join(errs...)
	}, nil
}

// Snapshots are the ids of all snapshots, of all users.
func (st *Store) Snapshots() ([]string, error) {
	list, err := names(st.path("snapshots"))
	var ids []string
	for _, name := range list {
		if id, ok := strings.CutSuffix(name, ".json"); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Snapshot is where the record of one is.
func (st *Store) Snapshot(id string) string { return st.path("snapshots", id+".json") }

// ReadSnapshot returns what is on record of one. The id is the caller's word.
func (st *Store) ReadSnapshot(id string) ([]byte, error) {
	if id == "" || strings.ContainsAny(id, "/\x00") {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(st.Snapshot(id))
}

// WriteSnapshot puts one on record. The shelf is locked.
func (st *Store) WriteSnapshot(id string, data []byte) error {
	tmp := st.path("tmp", rand.Text())
	err := os.WriteFile(tmp, data, 0o600)
	if err == nil {
		err = os.Rename(tmp, st.Snapshot(id))
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}

// RemoveSnapshot takes one off the record.
func (st *Store) RemoveSnapshot(id string) error {
	return os.Remove(st.Snapshot(id))
}
