package probe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
)

// ContainerFlags are what an outer container needs to let sandboxes run in it,
// in docker's and podman's spelling.
const ContainerFlags = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"

// containerRemedy is a command that shows whether the flags help.
const containerRemedy = "docker run " + ContainerFlags + " IMAGE"

// AppArmorProfile is the text of a profile that lets hutch's binaries make user
// namespaces with capabilities where kernel.apparmor_restrict_unprivileged_userns
// is set. Like the distribution's own profiles for browsers it confines nothing.
// It names the binaries beside exe, the caller's, and no others: a profile for
// every file of that name would lift the restriction for everybody.
func AppArmorProfile(exe string) string {
	dir := strings.TrimSuffix(filepath.Dir(exe), "/bin")
	if dir != filepath.Dir(exe) {
		// Installed, the other binaries lie in ../libexec/hutch.
		dir = appArmorQuote(dir) + "/{bin,libexec/hutch}"
	} else {
		dir = appArmorQuote(dir)
	}
	return `abi <abi/4.0>,
include <tunables/global>
profile hutch "` + dir + `/hutch{,d,-launch}" flags=(unconfined) {
  userns,
  include if exists <local/hutch>
}
`
}

// appArmorQuote takes the special meaning from characters of a path
// (apparmor.d(5), globbing).
func appArmorQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`,
		`^`, `\^`).Replace(path)
}

// UserNamespaces tries to make a user namespace and to use the capabilities in it
// (user_namespaces(7)). Nothing works without.
func UserNamespaces(ctx context.Context) Check {
	return userNamespaces(ctx, thisHost(), justUser|syscall.CLONE_NEWNS)
}

func userNamespaces(ctx context.Context, h host, flags uintptr) Check {
	const name = "user_namespaces"
	outcomes, startErr, err := runChild(ctx, flags, request{Attempts: []string{"capabilities"}})
	if err != nil {
		return inconclusive(name, err.Error()).required()
	}
	if startErr != nil {
		return h.noUserNamespace(name, startErr).required()
	}
	if a := outcomes["capabilities"]; !a.OK() {
		return h.noCapabilities(name, a).required()
	}
	return yes(name, fmt.Sprintf("made one as uid %d, with capabilities in it", h.uid)).required()
}

// noUserNamespace explains a failed clone(CLONE_NEWUSER). The same errno has
// several causes; the host's settings tell them apart.
func (h host) noUserNamespace(name string, err error) Check {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return inconclusive(name, err.Error())
	}
	detail := fmt.Sprintf("clone(CLONE_NEWUSER) as uid %d: %v", h.uid, err)
	switch errno {
	case syscall.ENOSPC, syscall.EUSERS:
		limit, _ := h.sysctl("user.max_user_namespaces")
		return fixable(name, fmt.Sprintf("%s: user.max_user_namespaces is %d, or namespaces are nested 32 deep",
			detail, limit),
			h.sudo("sysctl -w user.max_user_namespaces=28633"))
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS:
		return h.refusedUserNamespace(name, detail, errno)
	case syscall.EINVAL:
		return no(name, detail+": this kernel is built without CONFIG_USER_NS", "")
	}
	return inconclusive(name, detail)
}

// refusedUserNamespace finds out who refuses.
func (h host) refusedUserNamespace(name, detail string, errno syscall.Errno) Check {
	if v, ok := h.sysctl("kernel.unprivileged_userns_clone"); ok && v == 0 && h.uid != 0 {
		return fixable(name, detail+": kernel.unprivileged_userns_clone is 0",
			h.sudo("sysctl -w kernel.unprivileged_userns_clone=1"))
	}
	if h.appArmorRestricts() || errno == syscall.EACCES {
		return h.appArmor(name, detail)
	}
	if h.inChroot() {
		return no(name, detail+
			": the root folder is a chroot, from which user namespaces are refused (user_namespaces(7))",
			"enter the folder by pivot_root in a mount namespace of its own, not by chroot")
	}
	if h.status("Seccomp") == "2" {
		return no(name, detail+": a seccomp filter of an outer container refuses it", containerRemedy)
	}
	if h.confined() {
		return h.appArmor(name, detail)
	}
	return no(name, detail, "")
}

// noCapabilities explains a user namespace in which capabilities are withheld:
// what AppArmor's restriction does, for the clone itself works there.
func (h host) noCapabilities(name string, a attempt) Check {
	detail := "made one, but its capabilities are withheld: " + a.String()
	if h.appArmorRestricts() {
		return h.appArmor(name, detail)
	}
	if kind := h.container(); kind != "" {
		return no(name, detail+" (inside "+kind+")", containerRemedy)
	}
	if h.confined() {
		return h.appArmor(name, detail)
	}
	return no(name, detail, "")
}

func (h host) appArmorRestricts() bool {
	v, ok := h.sysctl("kernel.apparmor_restrict_unprivileged_userns")
	return ok && v != 0
}

// confined reports whether an AppArmor profile holds this process: somebody's for
// programs that have none of their own. Outer containers, which have theirs, are
// asked for first.
func (h host) confined() bool {
	for _, file := range []string{"/proc/self/attr/apparmor/current", "/proc/self/attr/current"} {
		if label, ok := h.read(file); ok {
			return strings.HasSuffix(strings.TrimSpace(label), "(enforce)")
		}
	}
	return false
}

// appArmor is the finding that AppArmor withholds user namespaces from programs
// without a profile that says otherwise.
func (h host) appArmor(name, detail string) Check {
	tee := h.sudo("tee /etc/apparmor.d/hutch >/dev/null")
	load := h.sudo("apparmor_parser -r /etc/apparmor.d/hutch")
	remedy := tee + " <<'END'\n" + AppArmorProfile(h.exe) + "END\n" + load
	return fixable(name, detail+": AppArmor restricts unprivileged user namespaces", remedy)
}

// inChroot reports whether the root folder is none of this namespace's mounts,
// which is what makes the kernel refuse (current_chrooted()).
func (h host) inChroot() bool {
	text, ok := h.read("/proc/self/mountinfo")
	if !ok {
		return false
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/" {
			return false
		}
	}
	return true
}
