package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
)

// source opens what the caller named. An O_PATH fd of the caller's proves that it
// may see the path and must be the very same file that hutchd finds there;
// a detached mount (made by a root client, id-mapped for this daemon) is taken as
// it is, since hutchd could not walk root's folders itself.
func (a *Attaching) source(m api.Mount) (*os.File, error) {
	if m.FD == nil {
		return a.openChecked(m.Source)
	}
	given, err := a.FDs.Take(*m.FD)
	if err != nil {
		return nil, err
	}
	if isDetachedMount(given) {
		return given, nil
	}
	defer given.Close()
	own, err := a.openChecked(m.Source)
	if err != nil {
		return nil, err
	}
	var one, other unix.Stat_t
	err = errors.Join(unix.Fstat(int(given.Fd()), &one), unix.Fstat(int(own.Fd()), &other))
	if err != nil || one.Dev != other.Dev || one.Ino != other.Ino {
		own.Close()
		return nil, api.Errorf(api.FailedPrecondition, "%s is not what the caller opened", m.Source).
			WithHint("the path changed meanwhile, or the caller lives in another mount namespace; give a path that both see")
	}
	return own, nil
}

// openChecked opens path and checks where it really leads, symlinks resolved.
func (a *Attaching) openChecked(path string) (*os.File, error) {
	src, err := OpenPath(path)
	if err != nil {
		return nil, err
	}
	resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(src.Fd())))
	if err == nil {
		err = a.ws.host.checkSource(resolved)
	}
	if err != nil {
		src.Close()
		return nil, err
	}
	return src, nil
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
