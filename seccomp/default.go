package seccomp

import "golang.org/x/sys/unix"

// Default is the profile of commands for which nobody asks for another.
func Default() Profile {
	rules := conditionalRules()
	rules = append(rules, socketRules(true)...)
	rules = append(rules, allowedRules()...)
	return Profile{Name: DefaultName, Rules: append(rules, refusedRules()...)}
}

// int32Mask selects the part of a register that the kernel reads for an
// argument declared int or unsigned int.
const int32Mask = 0xffffffff

// int32Arg is true when the 32-bit argument arg equals value.
func int32Arg(arg uint, value uint64) Cond { return Cond{Arg: arg, Mask: int32Mask, Value: value} }

// newNamespaces are the flags of clone(2) that make a namespace. CLONE_NEWTIME
// (0x80) is not among them: in clone(2) that bit belongs to the exit signal.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Terminal requests that the filter refuses (asm-generic/ioctls.h, which amd64
// and arm64 share).
const (
	tiocsti   = 0x5412
	tioclinux = 0x541c
	tiocsetd  = 0x5423
)

// Personalities that change nothing but the caller's own view
// (linux/personality.h).
const (
	perQuery     = 0xffffffff // returns the current one, changes nothing
	perLinux32   = 0x0008     // uname says i686 or armv8l
	uname26      = 0x0020000  // uname says 2.6
	addrNoRandom = 0x0040000  // addresses are not randomised
)

// sockTypeMask selects the type in socket(2)'s second argument; above it are
// SOCK_CLOEXEC and SOCK_NONBLOCK (linux/net.h, SOCK_TYPE_MASK).
const sockTypeMask = 0xf

// Reasons that more than one rule has or that are long.
const (
	namespaceReason = "a new namespace gives the caller capabilities over kernel code that is otherwise out of reach"
	ptraceReason    = "debuggers are everyday tools. Without CAP_SYS_PTRACE, which no sandbox has, the kernel asks for the " +
		"same user and a dumpable process, the pid namespace bounds the targets, and since 4.8 a traced call meets " +
		"the filter after the tracer changed it"
)

// conditionalRules are the calls whose arguments decide.
func conditionalRules() []Rule {
	rules := []Rule{
		{Reason: "processes and threads, in the namespaces that exist",
			Syscalls: []string{"clone"}, When: []Cond{{Arg: 0, Mask: newNamespaces}}},
		{Reason: namespaceReason,
			Syscalls: []string{"clone"}, Errno: unix.EPERM},
		{Reason: "unsharing files, the working directory or semaphore undo concerns only the caller",
			Syscalls: []string{"unshare"}, When: []Cond{{Arg: 0, Mask: newNamespaces | unix.CLONE_NEWTIME}}},
		{Reason: namespaceReason,
			Syscalls: []string{"unshare"}, Errno: unix.EPERM},

		{Reason: "TIOCSTI types into the terminal of whoever attached it; TIOCLINUX pastes into a console; " +
			"TIOCSETD brings in line disciplines, rarely used kernel code with a record of holes",
			Syscalls: []string{"ioctl"}, When: []Cond{int32Arg(1, tiocsti)}, Errno: unix.EPERM},
		{Reason: "as TIOCSTI",
			Syscalls: []string{"ioctl"}, When: []Cond{int32Arg(1, tioclinux)}, Errno: unix.EPERM},
		{Reason: "as TIOCSTI",
			Syscalls: []string{"ioctl"}, When: []Cond{int32Arg(1, tiocsetd)}, Errno: unix.EPERM},
		{Reason: "every other request is decided by the file it is made on, and a sandbox has harmless devices only",
			Syscalls: []string{"ioctl"}},
	}
	rules = append(rules,
		Rule{Reason: "limits of the caller itself: libc's getrlimit and setrlimit",
			Syscalls: []string{"prlimit64"}, When: []Cond{int32Arg(0, 0)}},
		Rule{Reason: "a limit that the kernel looks at nowhere (since 2.4.25), in which PID 1 keeps whom a process takes itself " +
			"for; whoever sets another's changes nothing else",
			Syscalls: []string{"prlimit64"}, When: []Cond{int32Arg(1, unix.RLIMIT_LOCKS)}},
		Rule{Reason: "unlike signals and ptrace the kernel lets a process lower the limits of PID 1, which is more " +
			"privileged but of the same user: without fds PID 1 could neither start nor end a command",
			Syscalls: []string{"prlimit64"}, Errno: unix.EPERM})
	for _, v := range []uint64{0, perLinux32, uname26, uname26 | perLinux32, addrNoRandom, perQuery} {
		rules = append(rules, Rule{
			Reason:   "asking, setarch's 32-bit and 2.6 names, and gdb's switch for its child's address layout",
			Syscalls: []string{"personality"}, When: []Cond{int32Arg(0, v)},
		})
	}
	return append(rules, Rule{
		Reason:   "other personalities weaken memory protection (READ_IMPLIES_EXEC, MMAP_PAGE_ZERO) or select dead ABIs",
		Syscalls: []string{"personality"}, Errno: unix.EPERM,
	})
}

// socketRules decide which sockets can be made. The errnos are the ones of a
// kernel built without the protocol, which programs are prepared for: PAM and
// sudo take EPROTONOSUPPORT for "no audit" and go on, but end at EPERM.
func socketRules(netlink bool) []Rule {
	rules := []Rule{localSockets}
	if netlink {
		rules = append(rules,
			Rule{Reason: "libc lists addresses and interfaces by it, in getaddrinfo for one",
				Syscalls: []string{"socket"},
				When:     []Cond{int32Arg(0, unix.AF_NETLINK), int32Arg(2, unix.NETLINK_ROUTE)}},
			Rule{Reason: "the other netlink protocols (netfilter, xfrm, audit, crypto, generic) configure the kernel",
				Syscalls: []string{"socket"}, When: []Cond{int32Arg(0, unix.AF_NETLINK)}, Errno: unix.EPROTONOSUPPORT})
	}
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6} {
		rules = append(rules, inetRules(family)...)
	}
	return append(rules,
		Rule{Reason: "AF_VSOCK reaches the hypervisor, AF_PACKET the wire, AF_ALG and rare families load kernel modules; " +
			"none passes the network policy",
			Syscalls: []string{"socket"}, Errno: unix.EAFNOSUPPORT},
		Rule{Reason: "local socket pairs", Syscalls: []string{"socketpair"}, When: []Cond{int32Arg(0, unix.AF_UNIX)}},
		Rule{Reason: "the kernel makes two sockets of the family before it finds that they cannot be paired",
			Syscalls: []string{"socketpair"}, Errno: unix.EAFNOSUPPORT},
	)
}

// localSockets is what is left of socket(2) where there is no network.
var localSockets = Rule{Reason: "local sockets", Syscalls: []string{"socket"}, When: []Cond{int32Arg(0, unix.AF_UNIX)}}

// inetRules allow the stream and datagram protocols of an internet family that
// the network policy understands.
func inetRules(family uint64) []Rule {
	var rules []Rule
	for _, t := range []struct {
		kind      uint64
		protocols []uint64
	}{
		{unix.SOCK_STREAM, []uint64{0, unix.IPPROTO_TCP, unix.IPPROTO_MPTCP}},
		{unix.SOCK_DGRAM, []uint64{0, unix.IPPROTO_UDP}},
	} {
		kind := []Cond{int32Arg(0, family), {Arg: 1, Mask: sockTypeMask, Value: t.kind}}
		for _, proto := range t.protocols {
			rules = append(rules, Rule{
				Reason:   "TCP, which Go listens for by MPTCP, and UDP",
				Syscalls: []string{"socket"}, When: append(kind[:2:2], int32Arg(2, proto)),
			})
		}
		rules = append(rules, Rule{
			Reason:   "SCTP, L2TP, SMC and others load kernel modules on demand; an ICMP socket's packets pass the network policy by",
			Syscalls: []string{"socket"}, When: kind, Errno: unix.EPROTONOSUPPORT,
		})
	}
	return append(rules, Rule{
		Reason:   "raw sockets forge packets; the errno is that of a process without CAP_NET_RAW",
		Syscalls: []string{"socket"}, When: []Cond{int32Arg(0, family)}, Errno: unix.EPERM,
	})
}
