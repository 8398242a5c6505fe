package guest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxAccounts bounds what is read of /etc/passwd and /etc/group, in bytes.
	maxAccounts = 1 << 20
	// maxGroups bounds the supplementary groups of a user. The kernel's bound is
	// 65536 (NGROUPS_MAX), no real image comes near this one.
	maxGroups = 1024
	// maxID is the highest uid and gid: (uid_t)-1 means "unchanged".
	maxID = 1<<32 - 2
)

// credentials is who a command runs as.
type credentials struct {
	uid, gid  uint32
	groups    []uint32 // supplementary
	setGroups bool     // false where setgroups(2) is denied and not needed
	pretended bool     // there is no such id
	home      string
}

// userNamespace is which ids exist. It never changes: maps are written once,
// before hutch-init starts.
type userNamespace struct {
	uids, gids      idMap
	setGroupsDenied bool
	// pretended says that PID 1 answers for those that do not exist.
	pretended bool
}

// pretend adds those ids.
func (ns *userNamespace) pretend() {
	ns.pretended = true
	ns.uids = idMap{{first: 0, count: maxPretended + 1}}
	ns.gids = ns.uids
}

func readUserNamespace() (ns userNamespace, err error) {
	if ns.uids, err = readIDMap("/proc/self/uid_map"); err != nil {
		return ns, err
	}
	if ns.gids, err = readIDMap("/proc/self/gid_map"); err != nil {
		return ns, err
	}
	verdict, err := os.ReadFile("/proc/self/setgroups")
	ns.setGroupsDenied = strings.HasPrefix(string(verdict), "deny")
	return ns, err
}

// accounts is where users are looked up.
type accounts struct {
	userNamespace
	passwd, group    string // contents of /etc/passwd and /etc/group
	passwdErr, grErr error  // why a file could not be read, if it exists
}

// readAccounts reads the sandbox's account files, which any exec may change.
func readAccounts(ns userNamespace) *accounts {
	a := &accounts{userNamespace: ns}
	a.passwd, a.passwdErr = readAccountFile("/etc/passwd")
	a.group, a.grErr = readAccountFile("/etc/group")
	return a
}

// readAccountFile reads a file that the image or a hostile process wrote: never
// a fifo or a device, never more than maxAccounts. A missing file is empty.
func readAccountFile(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
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
	case st.Size > maxAccounts:
		return "", fmt.Errorf("%s has %d bytes, at most %d are read", name, st.Size, maxAccounts)
	}
	data := make([]byte, st.Size)
	n, err := unix.Read(fd, data)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return string(data[:n]), nil
}

// resolve finds the credentials for spec, name|uid[:group|gid]; "" is 0:0. As
// docker does: a number is an id, whether or not an account has it; without a
// group the account's own one and every group that lists it apply, with a group
// only that one; an id without an account has gid 0 and HOME=/.
func (a *accounts) resolve(spec string) (*credentials, error) {
	if spec == "" {
		spec = "0"
	}
	name, group, hasGroup := strings.Cut(spec, ":")
	entry, err := a.findUser(name)
	if err != nil {
		return nil, err
	}
	c := &credentials{uid: entry.uid, gid: entry.gid, home: entry.home}
	if c.home == "" {
		c.home = "/"
	}
	if hasGroup {
		if c.gid, err = a.findGroup(group); err != nil {
			return nil, err
		}
	} else if entry.name != "" {
		c.groups = a.groupsOf(entry.name)
	}
	return c, a.checkMapped(c)
}

// checkMapped refuses ids that do not exist in the user namespace, and drops
// supplementary groups that do not: no file can belong to those anyway, and
// images list root in many groups. setgroups(2) is denied in a namespace that an
// ordinary user mapped without newgidmap (user_namespaces(7)); its only group
// is then the primary one.
func (a *accounts) checkMapped(c *credentials) error {
	if !a.uids.contains(c.uid) {
		return fmt.Errorf("uid %d is not mapped in this sandbox, which has %s", c.uid, a.uids)
	}
	if !a.gids.contains(c.gid) {
		return fmt.Errorf("gid %d is not mapped in this sandbox, which has %s", c.gid, a.gids)
	}
	c.groups = slices.DeleteFunc(c.groups, func(g uint32) bool { return !a.gids.contains(g) })
	if a.pretended { // the groups too, so that setGroups is false
		c.pretended = c.uid != 0 || c.gid != 0 || len(c.groups) > 0
		return nil
	}
	c.setGroups = !a.setGroupsDenied
	if a.setGroupsDenied {
		for _, g := range c.groups {
			if g != c.gid {
				return fmt.Errorf("supplementary group %d: setgroups is denied in this sandbox's user namespace", g)
			}
		}
		c.groups = nil
	}
	return nil
}

// userEntry is what is used of a line of /etc/passwd; name is empty when there
// is none.
type userEntry struct {
	name     string
	uid, gid uint32
	home     string
}

func (a *accounts) findUser(name string) (userEntry, error) {
	id, numeric := parseID(name)
	for line := range strings.Lines(a.passwd) {
		e, ok := parseUser(line)
		if ok && (numeric && e.uid == id || !numeric && e.name == name) {
			return e, nil
		}
	}
	if numeric {
		return userEntry{uid: id}, nil
	}
	if a.passwdErr != nil {
		return userEntry{}, fmt.Errorf("user %q: %w", name, a.passwdErr)
	}
	return userEntry{}, fmt.Errorf("user %q is neither a number nor in the sandbox's /etc/passwd", name)
}

func (a *accounts) findGroup(name string) (uint32, error) {
	id, numeric := parseID(name)
	if numeric {
		return id, nil
	}
	for line := range strings.Lines(a.group) {
		if g, ok := parseGroup(line); ok && g.name == name {
			return g.gid, nil
		}
	}
	if a.grErr != nil {
		return 0, fmt.Errorf("group %q: %w", name, a.grErr)
	}
	return 0, fmt.Errorf("group %q is neither a number nor in the sandbox's /etc/group", name)
}

// groupsOf lists the groups that name is a member of, without duplicates.
func (a *accounts) groupsOf(name string) []uint32 {
	var gids []uint32
	for line := range strings.Lines(a.group) {
		g, ok := parseGroup(line)
		if ok && g.has(name) && !slices.Contains(gids, g.gid) && len(gids) < maxGroups {
			gids = append(gids, g.gid)
		}
	}
	return gids
}

// parseUser parses name:password:uid:gid:gecos:home:shell (passwd(5)).
func parseUser(line string) (userEntry, bool) {
	f := strings.Split(strings.TrimRight(line, "\n"), ":")
	if len(f) < 6 || f[0] == "" || strings.IndexByte(f[5], 0) >= 0 {
		return userEntry{}, false
	}
	uid, ok := parseID(f[2])
	gid, ok2 := parseID(f[3])
	return userEntry{name: f[0], uid: uid, gid: gid, home: f[5]}, ok && ok2
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
	gid, ok := parseID(f[2])
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

// parseID parses a uid or gid: decimal digits only, no sign, no space.
func parseID(s string) (uint32, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err == nil && id <= maxID
}

// idMap is a uid_map or gid_map as seen from inside.
type idMap []idRange

type idRange struct{ first, count uint32 }

// readIDMap reads the inside ids of a map file (user_namespaces(7)).
func readIDMap(name string) (idMap, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseIDMap(string(data))
}

func parseIDMap(text string) (idMap, error) {
	var m idMap
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("id map line %q: not three numbers", line)
		}
		first, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("id map line %q: %w", line, err)
		}
		count, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("id map line %q: %w", line, err)
		}
		m = append(m, idRange{uint32(first), uint32(count)})
	}
	return m, nil
}

func (m idMap) contains(id uint32) bool {
	for _, r := range m {
		if id >= r.first && uint64(id) < uint64(r.first)+uint64(r.count) {
			return true
		}
	}
	return false
}

// String lists the ranges for messages: "0-65535", "0 only", "0, 100-199".
func (m idMap) String() string {
	if len(m) == 0 {
		return "no ids"
	}
	var parts []string
	for _, r := range m {
		last := uint64(r.first) + uint64(r.count) - 1
		if r.count == 1 {
			parts = append(parts, strconv.FormatUint(last, 10))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d-%d", r.first, last))
	}
	s := strings.Join(parts, ", ")
	if len(m) == 1 && m[0].count == 1 {
		s += " only"
	}
	return s
}
