// Package passwd looks users up as passwd(5) and group(5) have them, in files that an image or a hostile process may
// have written.
package passwd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxBytes bounds what is read of /etc/passwd and /etc/group.
	maxBytes = 1 << 20
	// MaxGroups bounds the supplementary groups of a user. The kernel's bound is
	// 65536 (NGROUPS_MAX), no real image comes near this one.
	MaxGroups = 1024
	// MaxID is the highest uid and gid: (uid_t)-1 means "unchanged".
	MaxID = 1<<32 - 2
)

// Files are the contents of /etc/passwd and /etc/group.
type Files struct {
	Passwd, Group       string
	PasswdErr, GroupErr error // why a file could not be read, if it exists
}

// Read reads both, with an open(2) of its caller's.
func Read(open func(name string, flags int) (fd int, err error)) *Files {
	f := &Files{}
	f.Passwd, f.PasswdErr = read(open, "/etc/passwd")
	f.Group, f.GroupErr = read(open, "/etc/group")
	return f
}

// read never reads a fifo or a device, and never more than maxBytes. A missing file is empty.
func read(open func(string, int) (int, error), name string) (string, error) {
	fd, err := open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", name, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", fmt.Errorf("%s is not a regular file (mode %#o)", name, st.Mode)
	case st.Size > maxBytes:
		return "", fmt.Errorf("%s has %d bytes, at most %d are read", name, st.Size, maxBytes)
	}
	data := make([]byte, st.Size)
	n, err := unix.Read(fd, data)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return string(data[:n]), nil
}

// Find finds the user that spec, [name|uid][:[group|gid]], names; "" is 0:0. As
// docker does: a number is an id, whether or not an account has it; without a
// group the account's own one and every group that lists it apply, with a group
// only that one; an id without an account has gid 0 and no home. What is missing
// on either side of the colon, perhaps because a build argument was empty, is as without it.
func (f *Files) Find(spec string) (u User, groups []uint32, err error) {
	name, group, _ := strings.Cut(spec, ":")
	if name == "" {
		name = "0"
	}
	if u, err = f.user(name); err != nil {
		return User{}, nil, err
	}
	if group != "" {
		if u.GID, err = f.group(group); err != nil {
			return User{}, nil, err
		}
	} else if u.Name != "" {
		groups = f.groupsOf(u.Name)
	}
	return u, groups, nil
}

// User is what is used of a line of /etc/passwd; Name is empty when there
// is none.
type User struct {
	Name     string
	UID, GID uint32
	Home     string
}

func (f *Files) user(name string) (User, error) {
	id, numeric := ParseID(name)
	for line := range strings.Lines(f.Passwd) {
		e, ok := parseUser(line)
		if ok && (numeric && e.UID == id || !numeric && !isNumber(name) && e.Name == name) {
			return e, nil
		}
	}
	if numeric {
		return User{UID: id}, nil
	}
	if isNumber(name) {
		return User{}, noID("user", name)
	}
	if f.PasswdErr != nil {
		return User{}, fmt.Errorf("user %q: %w", name, f.PasswdErr)
	}
	return User{}, fmt.Errorf("user %q is neither a number nor in the sandbox's /etc/passwd", name)
}

func (f *Files) group(name string) (uint32, error) {
	id, numeric := ParseID(name)
	if numeric {
		return id, nil
	}
	if isNumber(name) {
		return 0, noID("group", name)
	}
	for line := range strings.Lines(f.Group) {
		if g, ok := parseGroup(line); ok && g.name == name {
			return g.gid, nil
		}
	}
	if f.GroupErr != nil {
		return 0, fmt.Errorf("group %q: %w", name, f.GroupErr)
	}
	return 0, fmt.Errorf("group %q is neither a number nor in the sandbox's /etc/group", name)
}

// groupsOf lists the groups that name is a member of, without duplicates.
func (f *Files) groupsOf(name string) []uint32 {
	var gids []uint32
	for line := range strings.Lines(f.Group) {
		g, ok := parseGroup(line)
		if ok && g.has(name) && !slices.Contains(gids, g.gid) && len(gids) < MaxGroups {
			gids = append(gids, g.gid)
		}
	}
	return gids
}

// parseUser parses name:password:uid:gid:gecos:home:shell (passwd(5)).
func parseUser(line string) (User, bool) {
	f := strings.Split(strings.TrimRight(line, "\n"), ":")
	if len(f) < 6 || f[0] == "" || strings.IndexByte(f[5], 0) >= 0 {
		return User{}, false
	}
	uid, ok := ParseID(f[2])
	gid, ok2 := ParseID(f[3])
	return User{Name: f[0], UID: uid, GID: gid, Home: f[5]}, ok && ok2
}

// groupEntry is what is used of a line of /etc/group.
type groupEntry struct {
	name    string
	gid     uint32
	members string // comma-separated
}

// parseGroup parses name:password:gid:members (group(5)).
func parseGroup(line string) (groupEntry, bool) {
	f := strings.Split(strings.TrimRight(line, "\n"), ":")
	if len(f) < 4 || f[0] == "" {
		return groupEntry{}, false
	}
	gid, ok := ParseID(f[2])
	return groupEntry{name: f[0], gid: gid, members: f[3]}, ok
}

func (g groupEntry) has(user string) bool {
	for m := range strings.SplitSeq(g.members, ",") {
		if strings.TrimSpace(m) == user {
			return true
		}
	}
	return false
}

// noID says that a number is too large. It is not looked up as a name, whatever the files hold.
func noID(what, number string) error {
	return fmt.Errorf("%s %q is no possible id: ids go from 0 to %d", what, number, uint32(MaxID))
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// ParseID parses a uid or gid: decimal digits only, no sign, no space.
func ParseID(s string) (uint32, bool) {
	if !isNumber(s) {
		return 0, false
	}
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err == nil && id <= MaxID
}
