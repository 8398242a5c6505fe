package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// RootCount is how many ids a namespace started by root gets.
const RootCount = api.IDCount

// Range maps Count ids, Inside the new namespace, to Outside, the caller's.
type Range struct {
	Inside, Outside, Count uint32
}

// Method is how the maps of a user namespace are written.
type Method string

const (
	// MethodDirect writes the maps as they are, which needs CAP_SETUID and
	// CAP_SETGID in the caller's user namespace.
	MethodDirect Method = "direct"
	// MethodHelper lets newuidmap(1) and newgidmap(1) write them.
	MethodHelper Method = "newuidmap"
	// MethodSelf maps nothing but the caller, which the kernel allows to anybody
	// who gives up setgroups(2).
	MethodSelf Method = "self"
)

// IDMap is how the ids of a new user namespace map to the caller's.
type IDMap struct {
	UIDs, GIDs []Range
	Method     Method
	// Reason says why there is only one id, in words for a user; "" when there
	// are more.
	Reason string
}

// PlanIDMap decides which ids the daemon's user namespace has.
//
// Root gets {0 -> base, 65536 ids}: base must be a range that belongs to nobody
// else. Anybody else becomes uid 0, followed by all their ranges in /etc/subuid
// and /etc/subgid; where there is none, or the helpers that may use it are
// missing, by nothing, for the stated reason. base is then ignored.
func PlanIDMap(base uint32) (IDMap, error) {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if uid == 0 {
		return rootMap(base)
	}
	uids, gids, reason := subordinate(uid)
	if reason != "" {
		return IDMap{
			UIDs: []Range{{0, uid, 1}}, GIDs: []Range{{0, gid, 1}},
			Method: MethodSelf, Reason: reason,
		}, nil
	}
	return IDMap{
		UIDs: behind(uid, uids), GIDs: behind(gid, gids), Method: MethodHelper,
	}, nil
}

func rootMap(base uint32) (IDMap, error) {
	if base == 0 || base > math.MaxUint32-RootCount {
		return IDMap{}, api.Errorf(api.InvalidArgument,
			"id range of %d ids from %d: must lie between 1 and %d", RootCount, base, uint32(math.MaxUint32)).
			WithHint("choose a range that no user has, for example 1879048192")
	}
	r := []Range{{0, base, RootCount}}
	return IDMap{UIDs: r, GIDs: r, Method: MethodDirect}, nil
}

// behind puts the ranges after the caller's own id, which becomes 0.
func behind(own uint32, ranges []Range) []Range {
	out := []Range{{0, own, 1}}
	next := uint32(1)
	for _, r := range ranges {
		count := min(r.Count, math.MaxUint32-next)
		if count == 0 {
			break
		}
		out = append(out, Range{next, r.Outside, count})
		next += count
	}
	return out
}

// subordinate finds the caller's ranges, or the reason why they cannot be
// used.
func subordinate(uid uint32) (uids, gids []Range, reason string) {
	id := strconv.FormatUint(uint64(uid), 10)
	u, err := user.LookupId(id)
	if err != nil {
		return nil, nil, fmt.Sprintf("uid %s has no entry in /etc/passwd, so newuidmap would refuse it", id)
	}
	if uids, err = readSubIDs("/etc/subuid", u.Username, uid); err != nil {
		return nil, nil, err.Error()
	}
	if gids, err = readSubIDs("/etc/subgid", u.Username, uid); err != nil {
		return nil, nil, err.Error()
	}
	for _, helper := range []string{"newuidmap", "newgidmap"} {
		if err := usableHelper(helper); err != nil {
			return nil, nil, err.Error()
		}
	}
	if nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && nnp == 1 {
		return nil, nil, "this process has no_new_privs set, under which newuidmap has no rights"
	}
	return uids, gids, ""
}

func readSubIDs(path, name string, uid uint32) ([]Range, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ranges, err := parseSubIDs(f, name, uid)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("%s has no range for %s", path, name)
	}
	return ranges, nil
}

// usableHelper checks that name is installed and has the rights it needs:
// set-user-ID root or, on some distributions, a file capability.
func usableHelper(name string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not installed", name)
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSetuid != 0 {
		return nil
	}
	if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 {
		return nil
	}
	return fmt.Errorf("%s is neither setuid root nor has file capabilities", path)
}
