package api

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// MaxHosts bounds Spec.Hosts.
const MaxHosts = 256

func checkHosts(s *Spec) error {
	if len(s.Hosts) > MaxHosts {
		return invalid("hosts", "%d of them", len(s.Hosts)).WithHint("give at most %d", MaxHosts)
	}
	for i, h := range s.Hosts {
		field := "hosts[" + strconv.Itoa(i) + "]"
		if !isHostname(h.Name) || strings.EqualFold(h.Name, "localhost") {
			return invalid(field+".name", "%q is not a host name that can be given", h.Name).
				WithHint("use letters, digits, hyphens and dots, at most 64 bytes; localhost is what it is")
		}
		if a, err := netip.ParseAddr(h.Address); err != nil || a.Zone() != "" {
			return invalid(field+".address", "%q is no IP address", h.Address).
				WithHint("give one such as 192.0.2.1 or 2001:db8::1")
		}
	}
	return nil
}

// capabilities are the kernel's, by their numbers (linux/capability.h).
var capabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE",
	"NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO",
	"SYS_CHROOT",
	"SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG",
	"MKNOD", "LEASE",
	"AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND",
	"AUDIT_READ",
	"PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

// AllCapabilities is each of them in CapDrop.
const AllCapabilities = "ALL"

// Capabilities are the names of all, without CAP_.
func Capabilities() []string { return slices.Clone(capabilities) }

// Capability is the number of a capability by its name, with or without CAP_, in any case.
func Capability(name string) (number int, ok bool) {
	name = strings.ToUpper(name)
	number = slices.Index(capabilities, strings.TrimPrefix(name, "CAP_"))
	return number, number >= 0
}

// CapabilityMask has a bit for each capability of names, which have been validated.
func CapabilityMask(names []string) (mask uint64) {
	for _, name := range names {
		if strings.EqualFold(name, AllCapabilities) {
			return 1<<len(capabilities) - 1
		}
		if n, ok := Capability(name); ok {
			mask |= 1 << n
		}
	}
	return mask
}

func checkCapDrop(s *Spec) error {
	if len(s.CapDrop) > len(capabilities)+1 {
		return invalid("cap_drop", "%d names, and there are %d capabilities", len(s.CapDrop), len(capabilities)).
			WithHint("give each once, or ALL")
	}
	for _, name := range s.CapDrop {
		if _, ok := Capability(name); !ok && !strings.EqualFold(name, AllCapabilities) {
			return invalid("cap_drop", "%q is no capability", name).
				WithHint("capabilities(7) has them: CHOWN, SETUID and so on, or ALL")
		}
	}
	return nil
}

// checkTmpfs refuses what no folder in memory can be.
func checkTmpfs(field string, m *Mount) error {
	switch {
	case m.Target == "":
		return invalid(field+".target", "missing").WithHint("give the folder that it is to be in the sandbox")
	case m.Source != "" || m.Volume != "" || m.FD != nil:
		return invalid(field, "a tmpfs has no source and no volume").
			WithHint("leave them out, or take mode ro, rw or overlay")
	case m.SizeBytes < 0:
		return invalid(field+".size_bytes", "%d is negative", m.SizeBytes).WithHint("use 0 for the default")
	case len(m.Guard)+len(m.Unguarded) > 0 || m.GuardNew != "":
		return invalid(field, "a guard is for folders of the host's").
			WithHint("leave guard, unguarded and guard_new out")
	case m.Permissions == "":
		return nil
	}
	if n, err := strconv.ParseUint(m.Permissions, 8, 32); err != nil || n > 0o7777 {
		return invalid(field+".permissions", "%q are none", m.Permissions).
			WithHint("give them octal, such as 0755 or 1777")
	}
	return nil
}
