package monitor

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/bootstrap"
)

// rootRuntime is where a daemon started by root mounts its data for itself. It
// must be walkable by the daemon's own uid, which is nobody on the host.
const rootRuntime = "/run/hutch"

// dataDir is the part of the state root that belongs to hutchd's uid. The state
// root itself stays the caller's, 0700: another local user must not be able to
// run a setuid file of an image. hutch-launch binds dataDir into its own mount
// namespace while it still has the caller's uid, so hutchd need not walk there.
func (m *monitor) dataDir() string { return filepath.Join(m.opts.Paths.State, "data") }

// mountPoint is the empty folder on which hutch-launch binds dataDir.
func (m *monitor) mountPoint() (string, error) {
	if os.Geteuid() != 0 {
		dir := filepath.Join(m.opts.Paths.Runtime, "mnt")
		return dir, makeDir(dir, 0o700)
	}
	if err := makeDir(rootRuntime, 0o711); err != nil {
		return "", err
	}
	dir := filepath.Join(rootRuntime, "mnt")
	return dir, makeDir(dir, 0o755)
}

func makeDir(dir string, mode os.FileMode) error {
	err := os.Mkdir(dir, mode)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make folder: %w", err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if !st.IsDir() || int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return api.Errorf(api.PermissionDenied, "%s is not a folder of this user", dir).
			WithHint("remove it: rm -r %s", dir)
	}
	if st.Mode() == fs.ModeDir|mode {
		return nil // who watches the folder above it, as daemons do, is not told about a change
	}
	return os.Chmod(dir, mode)
}

// makeData makes dataDir and returns the first uid of the daemon's range, which
// matters for root only: the folder's owner says which it was the first time.
func (m *monitor) makeData() (base uint32, err error) {
	dir := m.dataDir()
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(dir, 0o700); err != nil {
			return 0, fmt.Errorf("make folder: %w", err)
		}
		if st, err = os.Lstat(dir); err != nil {
			return 0, fmt.Errorf("make folder: %w", err)
		}
	case err != nil:
		return 0, fmt.Errorf("look at %s: %w", dir, err)
	case !st.IsDir():
		return 0, api.Errorf(api.FailedPrecondition, "%s is not a folder", dir).WithHint("remove it, or set HUTCH_ROOT")
	}
	if os.Geteuid() != 0 {
		return 0, nil
	}
	sys := st.Sys().(*syscall.Stat_t)
	if sys.Uid != 0 {
		// A range of somebody else's would hand their files to the daemon.
		if sys.Uid < firstBase || sys.Uid%bootstrap.RootCount != 0 {
			return 0, api.Errorf(api.FailedPrecondition,
				"%s belongs to uid %d, which is not the start of a range of hutch's", dir, sys.Uid).
				WithHint("remove %s, or set HUTCH_ROOT to another folder", dir)
		}
		return sys.Uid, nil
	}
	if base, err = freeBase(sys.Dev, sys.Ino); err != nil {
		return 0, err
	}
	if err := os.Lchown(dir, int(base), int(base)); err != nil {
		e := api.Errorf(api.Unavailable, "give %s to uid %d: %w", dir, base, err)
		if errors.Is(err, syscall.EINVAL) {
			return 0, e.WithHint("this root is root of a container that has few ids; run hutch as an ordinary user of it")
		}
		return 0, e
	}
	return base, nil
}

const (
	firstBase = api.FirstIDBase
	numBases  = 0x10000000 / bootstrap.RootCount
)

// freeBase picks a range for the folder with this identity: different state roots
// get different ranges, so that their daemons are strangers to each other. Ranges
// that /etc/subuid or /etc/passwd give to somebody are passed over.
func freeBase(dev, ino uint64) (uint32, error) {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d:%d", dev, ino)
	start := h.Sum32() % numBases
	taken := takenRanges("/etc/subuid", "/etc/subgid", "/etc/passwd")
	for i := range uint32(numBases) {
		base := uint32(firstBase) + (start+i)%numBases*bootstrap.RootCount
		if !overlaps(taken, uint64(base), bootstrap.RootCount) {
			return base, nil
		}
	}
	return 0, api.Errorf(api.ResourceExhausted, "no free range of %d ids for the daemon", bootstrap.RootCount).
		WithHint("remove unused lines of /etc/subuid and /etc/subgid")
}

type idRange struct{ start, count uint64 }

func overlaps(taken []idRange, start, count uint64) bool {
	for _, r := range taken {
		if start < r.start+r.count && r.start < start+count {
			return true
		}
	}
	return false
}

// takenRanges reads "name:start:count" lines, and passwd lines as ranges of one.
func takenRanges(files ...string) []idRange {
	var taken []idRange
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue // an absent file gives nobody anything
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			fields := strings.Split(sc.Text(), ":")
			switch {
			case len(fields) == 3:
				start, err1 := strconv.ParseUint(fields[1], 10, 32)
				count, err2 := strconv.ParseUint(fields[2], 10, 32)
				if err1 == nil && err2 == nil {
					taken = append(taken, idRange{start, count})
				}
			case len(fields) >= 4:
				if uid, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
					taken = append(taken, idRange{uid, 1})
				}
			}
		}
		_ = f.Close()
	}
	return taken
}
