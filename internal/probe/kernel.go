package probe

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/sys"
)

// Seccomp asks for the filter actions that the default profile uses.
func Seccomp() Check {
	const name = "seccomp"
	for _, action := range []uint32{unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO, unix.SECCOMP_RET_KILL_PROCESS} {
		ok, err := sys.SeccompActionAvailable(action)
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
			return no(name, err.Error()+": this kernel is built without CONFIG_SECCOMP_FILTER", "").required()
		} else if err != nil {
			return inconclusive(name, err.Error()).required()
		}
		if !ok {
			return no(name, fmt.Sprintf("filters cannot return %#x here", action), "").required()
		}
	}
	return yes(name, "filters can allow, refuse with an errno, and kill").required()
}

// SeccompNotify asks whether filters may hand system calls to a supervisor
// (SECCOMP_RET_USER_NOTIF, Linux 5.0), which only the debug modes use.
func SeccompNotify() Check {
	const name = "seccomp_notify"
	ok, err := sys.SeccompActionAvailable(unix.SECCOMP_RET_USER_NOTIF)
	switch {
	case err != nil:
		return inconclusive(name, err.Error())
	case !ok:
		return no(name, "refused calls cannot be reported as they happen", "")
	}
	return yes(name, "filters can hand system calls to a supervisor")
}

// Landlock asks for the version of Landlock, a second wall around files.
func Landlock() Check {
	const name = "landlock"
	abi, err := sys.LandlockABI()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return no(name, err.Error()+": this kernel has no Landlock", "")
	case errors.Is(err, unix.EOPNOTSUPP):
		return no(name, err.Error()+": Landlock is built in but not started; the boot parameter does",
			"add lsm=landlock,... to the kernel command line")
	case err != nil:
		return inconclusive(name, err.Error())
	case abi < sys.MinLandlock:
		return no(name, fmt.Sprintf("ABI %d is too old for commands, which need %d", abi, sys.MinLandlock),
			"use Linux 6.2 or newer")
	}
	return yes(name, fmt.Sprintf("ABI %d: the commands of a sandbox are in a domain of their own", abi))
}

// EBPF tries to load a program, and looks for the hutch-netd that may do it for this user.
func EBPF() Check {
	const name = "ebpf"
	err := sys.TryBPF()
	switch {
	case err == nil:
		return yes(name, "this user may load cgroup programs")
	case errors.Is(err, unix.EPERM):
		built, err := paths.Sibling("hutch-netd")
		if err != nil {
			built = ""
		}
		return thisHost().viaNetd(name, built, unix.Access(paths.InstalledNetd, unix.X_OK))
	case errors.Is(err, unix.ENOSYS):
		return no(name, err.Error()+": this kernel is built without CONFIG_BPF_SYSCALL, or an outer container hides it",
			"")
	}
	return inconclusive(name, err.Error())
}

// viaNetd is what a user without rights of their own gets of eBPF. built is a hutch-netd that
// could be installed, "" without one.
func (h host) viaNetd(name, built string, netd error) Check {
	const without = "; optional: without it network policies are enforced by namespaces and the proxy alone"
	var member string
	if h.user != "" {
		member = h.sudo("usermod -aG hutch "+quoted(h.user)) + "\n"
	}
	switch {
	case netd == nil:
		return yes(name, "by "+paths.InstalledNetd+", where sandboxes have a cgroup2 folder")
	case errors.Is(netd, unix.EACCES):
		return fixable(name, paths.InstalledNetd+
			": you are not in its group, hutch, or were not when you logged in: log in again after"+without, member)
	case built == "":
		return no(name, "hutch-netd is not installed (sudo make install-netd, in hutch's sources)"+without, "")
	}
	dir := filepath.Dir(paths.InstalledNetd)
	return fixable(name, "hutch-netd is not installed; log in again after"+without, // as make install-netd does
		"getent group hutch >/dev/null || "+h.sudo("groupadd --system hutch")+"\n"+
			h.sudo("install -d -m 0755 "+dir)+"\n"+
			h.sudo("install -o root -g hutch -m 0750 "+quoted(built)+" "+paths.InstalledNetd)+"\n"+
			h.sudo("setcap cap_bpf,cap_net_admin=ep "+paths.InstalledNetd)+"\n"+member)
}

// quoted is one word of a shell's.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Container reports whether hutch runs on a host of its own (yes) or inside an
// outer container (no), which is allowed but explains other findings.
func Container() Check {
	h := thisHost()
	const name = "outside_container"
	kind := h.container()
	if kind == "" {
		return yes(name, "no sign of an outer container")
	}
	return no(name, kind+
		": it decides what is possible; no matter unless user_namespaces or proc say no (their remedies name its flags)", "")
}

// container names the outer container, or is empty. Signs are those that the
// runtimes leave on purpose (systemd's CONTAINER_INTERFACE, docker, podman) and
// the cgroup names of those that leave none.
func (h host) container() string {
	if h.exists("/run/.containerenv") {
		return "a podman container (/run/.containerenv)"
	}
	if h.exists("/.dockerenv") {
		return "a docker container (/.dockerenv)"
	}
	if kind, ok := h.read("/run/systemd/container"); ok && kind != "" {
		return "a container (" + strings.TrimSpace(kind) + ")"
	}
	if kind := h.env("container"); kind != "" {
		return "a container (" + kind + ")"
	}
	cgroups, _ := h.read("/proc/1/cgroup")
	for _, kind := range []string{"kubepods", "docker", "containerd", "lxc", "libpod"} {
		if strings.Contains(cgroups, "/"+kind) {
			return "a container (cgroup of " + kind + ")"
		}
	}
	return ""
}
