package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// claim is one sentence about the sandbox, and whether it was found to be so.
type claim struct {
	text  string
	holds bool
	found string // what was read
}

// wall is one part of the isolation.
type wall struct {
	name     string
	inForce  bool
	optional bool // its absence is the host's doing, and no failure
	found    string
}

// tourClaims is all that the tour says.
type tourClaims struct {
	program string
	result  claim
	claims  []claim
	walls   []wall
}

// newClaims judges what was read inside and about the sandbox.
func newClaims(sb *api.Sandbox, host *hostFacts, in facts) *tourClaims {
	t := &tourClaims{program: in["program"]}
	t.result = claim{"primes below 1000", in["primes"] == "168", in["primes"]}
	t.claims = []claim{
		identity(host, in),
		{"its parent is PID 1 of the sandbox", in["ppid"] == "1", "parent " + in["ppid"]},
		{"its host name is its own", in["hostname"] == sb.Hostname && in["hostname"] != host.hostname, in["hostname"] +
			", yours is " + host.hostname},
	}
	if len(host.homeNames) > 0 {
		t.claims = append(t.claims, claim{"your home is not there", in["home_seen"] == "0",
			fmt.Sprintf("%s of %d names of %s", in["home_seen"], len(host.homeNames), host.home)})
	}
	t.claims = append(t.claims,
		claim{"/etc/shadow is not there", in["shadow"] == "ENOENT", in["shadow"]},
		ownFiles(host, in),
		claim{"there is no network", in["interfaces"] == "lo" && in["connect"] != "allowed" && in["connect"] != "",
			"interfaces: " + in["interfaces"] + "; connect: " + in["connect"]},
	)
	t.walls = []wall{
		userWall(host, in),
		namespaceWall("pid namespace", "pid", host, in),
		namespaceWall("net namespace", "net", host, in),
		otherNamespaces(host, in),
		seccompWall(in),
		capabilityWall(in),
		cgroupWall(sb, host),
		reportedWall(sb, "eBPF"),
	}
	return t
}

// identity checks who the program is on both sides. The outer number comes from
// the kernel's map as this process sees it.
func identity(host *hostFacts, in facts) claim {
	c := claim{text: "it is uid 0, which is nobody special outside"}
	if len(host.uidMap) == 0 {
		c.found = "uid " + in["uid"] + ", without an id map"
		return c
	}
	root := host.uidMap[0]
	c.holds = in["uid"] == "0" && in["ns_user"] != "" && in["ns_user"] != host.namespaces["user"] &&
		root.inside == 0 && root.outside != 0
	c.found = fmt.Sprintf("uid %s inside is uid %d outside", in["uid"], root.outside)
	return c
}

func ownFiles(host *hostFacts, in facts) claim {
	_, err := os.Lstat(host.canary)
	seen := "not there"
	if !errors.Is(err, fs.ErrNotExist) {
		seen = "there too"
	}
	return claim{
		"it writes its own files, and the host sees none",
		in["wrote"] == "written in the sandbox" && in["read_back"] == in["wrote"] && errors.Is(err, fs.ErrNotExist),
		host.canary[:len("/hutch-tour-")] + "...: read back inside, " + seen + " outside",
	}
}

func namespaceWall(name, ns string, host *hostFacts, in facts) wall {
	own, ours := in["ns_"+ns], host.namespaces[ns]
	return wall{name: name, inForce: own != "" && own != ours, found: inode(own) + ", the host's is " + inode(ours)}
}

// userWall adds how many ids the sandbox has to what namespaceWall says.
func userWall(host *hostFacts, in facts) wall {
	w := namespaceWall("user namespace", "user", host, in)
	ids := uint64(0)
	for _, r := range host.uidMap {
		ids += uint64(r.count)
	}
	if w.found += fmt.Sprintf("; %d ids", ids); ids == 1 {
		w.found = strings.TrimSuffix(w.found, "s") + ", your own"
	}
	return w
}

// inode is the number in "user:[4026531837]".
func inode(link string) string {
	_, n, _ := strings.Cut(strings.TrimSuffix(link, "]"), "[")
	return n
}

func otherNamespaces(host *hostFacts, in facts) wall {
	names := []string{"mnt", "ipc", "uts", "cgroup"}
	shared := slices.DeleteFunc(slices.Clone(names), func(ns string) bool {
		return in["ns_"+ns] != "" && in["ns_"+ns] != host.namespaces[ns]
	})
	w := wall{name: "other namespaces", inForce: len(shared) == 0, found: strings.Join(names, ", ")}
	if len(shared) > 0 {
		w.found = "shared with the host: " + strings.Join(shared, ", ")
	}
	return w
}

// seccompWall wants the kernel's word, 2 is a filter (proc(5)), and a refusal.
func seccompWall(in facts) wall {
	return wall{
		name:    "seccomp",
		inForce: in["Seccomp"] == "2" && in["unshare"] != "allowed" && in["unshare"] != "",
		found:   "mode " + in["Seccomp"] + "; a new user namespace: " + in["unshare"],
	}
}

// Capabilities that a sandbox never has, by number (linux/capability.h).
var neverHeld = []struct {
	name   string
	number uint
}{
	{"NET_ADMIN", 12}, {"NET_RAW", 13}, {"SYS_MODULE", 16}, {"SYS_RAWIO", 17}, {"SYS_PTRACE", 19},
	{"SYS_ADMIN", 21}, {"SYS_BOOT", 22}, {"SYS_TIME", 25}, {"MKNOD", 27}, {"PERFMON", 38}, {"BPF", 39},
}

func capabilityWall(in facts) wall {
	w := wall{name: "capabilities"}
	bounding, err := strconv.ParseUint(in["CapBnd"], 16, 64)
	if err != nil || in["NoNewPrivs"] == "" {
		w.found = "not readable: " + in["CapBnd"]
		return w
	}
	var held []string
	for _, c := range neverHeld {
		if bounding&(1<<c.number) != 0 {
			held = append(held, c.name)
		}
	}
	w.inForce = len(held) == 0 && in["NoNewPrivs"] == "1"
	w.found = "bounding set " + strings.TrimLeft(in["CapBnd"], "0") + ", no_new_privs " + in["NoNewPrivs"]
	if len(held) > 0 {
		w.found += ", holds " + strings.Join(held, " ")
	}
	return w
}

// reportedWall repeats what the daemon says: for walls that can only be absent in
// this build.
func reportedWall(sb *api.Sandbox, name string) wall {
	w := wall{name: name, optional: true, found: "not in this build"}
	for _, said := range sb.Isolation.Walls {
		if strings.EqualFold(strings.Split(said.Name, " ")[0], name) {
			w.inForce, w.found = said.Status == "yes", said.Detail
		}
	}
	return w
}

// hold reports whether all is as it should be.
func (t *tourClaims) hold() bool {
	ok := t.result.holds
	for _, c := range t.claims {
		ok = ok && c.holds
	}
	for _, w := range t.walls {
		ok = ok && (w.inForce || w.optional)
	}
	return ok
}
