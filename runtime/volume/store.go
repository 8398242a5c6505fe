// Package volume keeps named volumes: folders of the daemon's that sandboxes mount by name and that outlive them.
//
// A volume is nothing but the folder <dir>/<user>/<name>, so that no crash leaves half of one. Whoever has it mounted
// holds a shared lock on it (flock(2)), in whichever daemon: it is removed by who gets it exclusively, by a rename, and
// what such a removal leaves when it is killed is swept by the next Store. What a volume holds is a sandbox's: nothing
// in it is believed, or walked by a path that it could change.
package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// MaxPerUser is how many volumes one user can have.
const MaxPerUser = 1000

// goingPrefix begins the names of volumes that are being removed; users are numbers.
const goingPrefix = "removed-"

// Store is the volumes below one folder. Its methods may be called from any goroutine, and by several processes.
type Store struct{ dir string }

// Open makes the folder where it is missing, and removes what killed daemons have left of volumes.
func Open(dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of volumes: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for volumes: %w", err)
	}
	st := &Store{dir}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), goingPrefix) {
			continue
		}
		if err := st.sweep(e.Name()); err != nil { // its name is free: nobody is in need of it
			log.Warn("remove the rest of a volume", "err", err)
		}
	}
	return st, nil
}

// sweep removes what was renamed to be removed, unless another daemon is about it.
func (st *Store) sweep(going string) error {
	path := filepath.Join(st.dir, going)
	f, err := lock(path, unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return rmtree.Path(path)
}

// Path is where a volume is, or would be.
func (st *Store) Path(user uint32, name string) string {
	return filepath.Join(st.dir, strconv.FormatUint(uint64(user), 10), name)
}

// Use opens the folder of a volume for a sandbox, and keeps it from being removed until the file is closed. With
// make it is made where there is none, for all users of a sandbox to write to, as /tmp.
func (st *Store) Use(user uint32, name string, make bool) (*os.File, error) {
	if err := (api.VolumeParams{Name: name}).Validate(); err != nil { // it becomes part of a path
		return nil, err
	}
	path := st.Path(user, name)
	for {
		f, err := lock(path, unix.LOCK_SH)
		switch {
		case errors.Is(err, fs.ErrNotExist) && make:
			if err = st.make(user, path); err != nil {
				return nil, err
			}
			continue
		case errors.Is(err, fs.ErrNotExist):
			return nil, notFound(name)
		case errors.Is(err, unix.EWOULDBLOCK): // it has no more than a rename before it
			return nil, api.Errorf(api.Unavailable, "volume %s is being removed", name).WithHint("try again")
		case err != nil:
			return nil, err
		}
		same, err := isAt(f, path)
		if same {
			return f, nil
		}
		if f.Close(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// It was removed between the two calls.
	}
}

func notFound(name string) error {
	return api.Errorf(api.NotFound, "no volume %q", name).
		WithHint("hutch volume ls lists those that there are; hutch volume create, or a mount with mode rw, makes one")
}

// make makes a volume. Another who makes it at the same time is as good.
func (st *Store) make(user uint32, path string) error {
	parent := filepath.Dir(path)
	if err := os.Mkdir(parent, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a volume: %w", err)
	}
	there, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("make a volume: %w", err)
	}
	if len(there) >= MaxPerUser {
		return api.Errorf(api.ResourceExhausted, "user %d has %d volumes, which is the most", user, len(there)).
			WithHint("remove some: hutch volume rm NAME")
	}
	// Its mode first and then its name: nobody finds one that is not ready.
	temporary := filepath.Join(st.dir, goingPrefix+rand.Text())
	err = os.Mkdir(temporary, 0o700)
	if err == nil {
		err = os.Chmod(temporary, fs.ModeSticky|0o777) // past the umask
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, temporary, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	// Or another daemon that starts has swept it: the caller looks again.
	if err = ignore(ignore(err, fs.ErrExist), fs.ErrNotExist); err != nil {
		return fmt.Errorf("make volume %s: %w", filepath.Base(path), err)
	}
	return nil
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// Create makes a volume that is not there yet.
func (st *Store) Create(user uint32, name string) (api.Volume, error) {
	f, err := st.Use(user, name, false)
	if err == nil {
		f.Close()
		return api.Volume{}, api.Errorf(api.AlreadyExists, "volume %s exists", name).WithField("name").
			WithHint("use it, or choose another name")
	}
	if api.ErrorCode(err) != api.NotFound {
		return api.Volume{}, err
	}
	if f, err = st.Use(user, name, true); err != nil {
		return api.Volume{}, err
	}
	defer f.Close()
	return describe(f, name)
}

// List lists a user's volumes by name.
func (st *Store) List(user uint32) ([]api.Volume, error) {
	entries, err := os.ReadDir(filepath.Dir(st.Path(user, "x")))
	if err != nil {
		return nil, ignore(err, fs.ErrNotExist)
	}
	var list []api.Volume
	for _, e := range entries {
		f, err := os.Open(st.Path(user, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at volume %s: %w", e.Name(), err)
		}
		v, err := describe(f, e.Name())
		f.Close()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// Usage is what a volume holds, counted as limits.disk_bytes counts. It looks at every file.
func (st *Store) Usage(ctx context.Context, user uint32, name string) (diskuse.Usage, error) {
	return diskuse.Trees(ctx, diskuse.Usage{Bytes: math.MaxInt64 / 2, Inodes: math.MaxInt64 / 2}, st.Path(user, name))
}

// Remove removes a volume and all that is in it, unless it is in use.
func (st *Store) Remove(user uint32, name string) error {
	if err := (api.VolumeParams{Name: name}).Validate(); err != nil {
		return err
	}
	path := st.Path(user, name)
	f, err := lock(path, unix.LOCK_EX)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notFound(name)
	case errors.Is(err, unix.EWOULDBLOCK):
		return api.Errorf(api.FailedPrecondition, "volume %s is in use", name).WithField("name").
			WithHint("hutch volume ls shows the sandboxes that have it mounted: remove them first")
	case err != nil:
		return err
	}
	defer f.Close()
	same, err := isAt(f, path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !same { // another has removed it
		return notFound(name)
	}
	if err != nil {
		return err
	}
	going := filepath.Join(st.dir, goingPrefix+rand.Text())
	if err := os.Rename(path, going); err != nil {
		return fmt.Errorf("remove volume %s: %w", name, err)
	}
	if err := rmtree.Path(going); err != nil {
		return fmt.Errorf("remove volume %s: its name is free, its files are not all gone: %w", name, err)
	}
	return nil
}

// lock opens a folder and locks it, without waiting.
func lock(path string, how int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Flock(fd, how|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return f, nil
}

// isAt says whether f is what path names now.
func isAt(f *os.File, path string) (bool, error) {
	a, err := f.Stat()
	if err != nil {
		return false, err
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b), err
}

func describe(f *os.File, name string) (api.Volume, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME|unix.STATX_CTIME, &st); err != nil {
		return api.Volume{}, fmt.Errorf("look at volume %s: %w", name, err)
	}
	at := st.Btime
	if st.Mask&unix.STATX_BTIME == 0 { // not every file system tells
		at = st.Ctime
	}
	return api.Volume{Name: name, Created: time.Unix(at.Sec, int64(at.Nsec)).UTC(), Sandboxes: []string{}}, nil
}
