package guest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/passwd"
	"github.com/hutch-sh/hutch/runtime/guest/supervisor"
)

// credentials is who a command runs as.
type credentials struct {
	uid, gid  uint32
	groups    []uint32 // supplementary
	setGroups bool     // false where setgroups(2) is denied and not needed
	emulated  bool     // there is no such id
	home      string   // of the account files; "" for who has none
}

// userNamespace is which ids exist. It never changes: maps are written once,
// before hutch-init starts.
type userNamespace struct {
	uids, gids      idMap
	setGroupsDenied bool
	// emulated says that PID 1 answers for those that do not exist.
	emulated bool
}

// emulate adds those ids.
func (ns *userNamespace) emulate() {
	ns.emulated = true
	ns.uids = idMap{{first: 0, count: supervisor.MaxID + 1}}
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
	*passwd.Files
}

// readAccounts reads the sandbox's account files, which any exec may change.
func readAccounts(ns userNamespace) *accounts {
	return &accounts{ns, passwd.Read(func(name string, flags int) (int, error) { return unix.Open(name, flags, 0) })}
}

// resolve finds the credentials for spec, see passwd.Files.Find.
func (a *accounts) resolve(spec string) (*credentials, error) {
	u, groups, err := a.Find(spec)
	if err != nil {
		return nil, err
	}
	c := &credentials{uid: u.UID, gid: u.GID, groups: groups, home: u.Home}
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
	if a.emulated { // the groups too, so that setGroups is false
		c.emulated = c.uid != 0 || c.gid != 0 || len(c.groups) > 0
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
