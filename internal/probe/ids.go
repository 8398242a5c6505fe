package probe

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// wantIDs is how many subordinate ids an image with ordinary users needs: uids 1
// to 65534 and nobody's.
const wantIDs = 65536

// SubIDs looks for the caller's ranges in /etc/subuid and /etc/subgid (subuid(5)).
// Without them sandboxes have a single user inside, uid 0, and others are emulated.
func SubIDs() Check { return thisHost().subIDs() }

func (h host) subIDs() Check {
	const name = "subordinate_ids"
	if h.uid == 0 {
		return yes(name, "root takes a range of its own")
	}
	if h.user == "" {
		return no(name, fmt.Sprintf("uid %d has no account: sandboxes have one user inside, others are emulated",
			h.uid), "")
	}
	uids, gids := h.idCount("/etc/subuid"), h.idCount("/etc/subgid")
	detail := fmt.Sprintf("%s has %d subordinate uids and %d gids", h.user, uids, gids)
	if uids >= wantIDs && gids >= wantIDs {
		return yes(name, detail)
	}
	first := max(h.freeID("/etc/subuid"), h.freeID("/etc/subgid"))
	ids := fmt.Sprintf("%d-%d", first, first+wantIDs-1)
	return fixable(name, fmt.Sprintf("%s, %d are needed for users inside that are real and not emulated", detail,
		wantIDs),
		h.sudo(fmt.Sprintf("usermod --add-subuids %s --add-subgids %s %s", ids, ids, h.user)))
}

// idRange is one line of /etc/subuid or /etc/subgid.
type idRange struct {
	owner        string // account name or uid in digits
	first, count int
}

// parseIDRanges reads the lines of subuid(5), OWNER:FIRST:COUNT. Lines of any
// other form are passed over, as newuidmap does.
func parseIDRanges(text string) []idRange {
	var ranges []idRange
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] == "" || strings.HasPrefix(f[0], "#") {
			continue
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 != nil || err2 != nil || first+count > 1<<32-1 {
			continue
		}
		ranges = append(ranges, idRange{f[0], int(first), int(count)})
	}
	return ranges
}

// idCount is the size of the caller's largest range in file: maps are made of
// one range.
func (h host) idCount(file string) int {
	text, _ := h.read(file)
	most := 0
	for _, r := range parseIDRanges(text) {
		if r.owner == h.user || r.owner == strconv.Itoa(h.uid) {
			most = max(most, r.count)
		}
	}
	return most
}

// freeID is the first id behind every range in file, at least where
// distributions start (SUB_UID_MIN of login.defs(5)).
func (h host) freeID(file string) int {
	text, _ := h.read(file)
	first := 100000
	for _, r := range parseIDRanges(text) {
		first = max(first, r.first+r.count)
	}
	return first
}

// IDMapTools looks for newuidmap and newgidmap (newuidmap(1)), which write the
// maps of ranges that /etc/subuid grants: an ordinary user may write only a map
// of itself. Root writes any.
func IDMapTools() Check {
	h := thisHost()
	const name = "id_map_tools"
	if h.uid == 0 {
		return yes(name, "root writes id maps itself")
	}
	var found []string
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return fixable(name, tool+" is not installed: sandboxes have one user inside, others are emulated",
				h.install("uidmap", "shadow-utils", "shadow-subids"))
		}
		if !mayMapIDs(path) {
			return fixable(name, path+" has neither the setuid bit nor file capabilities: it cannot write a map",
				h.sudo("chmod u+s "+path))
		}
		found = append(found, path)
	}
	return yes(name, strings.Join(found, ", "))
}

// mayMapIDs reports whether the file at path gets privileges on exec: setuid
// root, or capabilities (Fedora and Arch use those).
func mayMapIDs(path string) bool {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false
	}
	if st.Mode&unix.S_ISUID != 0 && st.Uid == 0 {
		return true
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}

// install is the command that installs a package, by its name in Debian, Fedora
// and Alpine.
func (h host) install(debian, fedora, alpine string) string {
	for _, m := range []struct{ file, command string }{
		{"/usr/bin/apt-get", "apt-get install -y " + debian},
		{"/usr/bin/dnf", "dnf install -y " + fedora},
		{"/sbin/apk", "apk add " + alpine},
	} {
		if h.exists(m.file) {
			return h.sudo(m.command)
		}
	}
	return ""
}
