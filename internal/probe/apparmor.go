package probe

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// sandboxProfile is what the profile for sandboxes is called.
const sandboxProfile = "hutch-sandbox"

// SandboxProfileText is the AppArmor profile for sandboxes. Whoever is root may load it; hutchd then starts each
// sandbox under it. It is a second wall: everything it refuses is refused by namespaces and seccomp as well.
// Files are allowed: which there are is the mounts' business, and beneath the same names lie other ones.
const SandboxProfileText = `abi <abi/4.0>,
include <tunables/global>
profile hutch-sandbox flags=(attach_disconnected,mediate_deleted) {
  file,
  capability,
  network,
  unix,
  userns,
  signal (receive),
  signal (send) peer=hutch-sandbox,
  ptrace (readby, tracedby),
  ptrace (read, trace) peer=hutch-sandbox,

  # No mount, umount, pivot_root, change_profile, dbus, mqueue, io_uring: these need a rule each.
  deny /proc/sysrq-trigger rwklx,
  deny /proc/kcore rwklx,
  deny /sys/kernel/security/** rwklx,
  deny /sys/firmware/** wklx,
  include if exists <local/hutch-sandbox>
}
`

// SandboxProfile is the profile that sandboxes are started under, and where that is none the reason; both are ""
// where the kernel has no AppArmor. An ordinary user cannot list profiles: the kernel is asked to change to it
// with the next exec, by a thread that never makes one.
func SandboxProfile() (profile, reason string) {
	const attr = "/proc/thread-self/attr/apparmor/"
	own, err := os.ReadFile("/proc/self/attr/apparmor/current")
	if err != nil {
		return "", ""
	}
	label := strings.TrimSpace(string(own))
	if label != "unconfined" && !strings.HasSuffix(label, " (unconfined)") {
		return "", "the daemon is confined as " + label + ", and its sandboxes with it"
	}
	found := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this
		f, err := os.OpenFile(attr+"exec", os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("exec " + sandboxProfile)
			err = errors.Join(err, f.Close())
		}
		found <- err
	}()
	switch err := <-found; {
	case errors.Is(err, unix.ENOENT):
		return "", fmt.Sprintf("no profile %s is loaded", sandboxProfile)
	case err != nil:
		return "", fmt.Sprintf("profile %s cannot be used: %v", sandboxProfile, err)
	}
	return sandboxProfile, ""
}

// AppArmor tells whether sandboxes have a profile of their own; false where the kernel has no AppArmor.
func AppArmor() (Check, bool) { return appArmorCheck(thisHost()) }

func appArmorCheck(h host) (Check, bool) {
	const name = "apparmor"
	profile, reason := SandboxProfile()
	switch {
	case profile != "":
		return yes(name, "sandboxes are under the profile "+profile), true
	case reason == "":
		return Check{}, false
	case strings.HasSuffix(reason, "is loaded"):
		file := "/etc/apparmor.d/" + sandboxProfile
		return fixable(name, reason+": sandboxes are under the daemon's own, which refuses nothing",
			h.sudo("tee "+file+" >/dev/null")+" <<'END'\n"+SandboxProfileText+"END\n"+
				h.sudo("apparmor_parser -r "+file)), true
	}
	return no(name, reason, ""), true
}
