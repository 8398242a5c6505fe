package seccomp

import (
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Names of the built-in profiles, as a spec and the launch protocol say them.
const (
	DefaultName = string(api.SeccompDefault)
	StrictName  = string(api.SeccompStrict)
	BuildName   = string(api.SeccompBuild)
	BrowserName = string(api.SeccompBrowser)
	// InitName is the profile of PID 1. Filters stack, so whatever it refuses is
	// refused to commands as well.
	InitName = "init"
	// InitBrowserName is that of a PID 1 whose commands are under Browser.
	InitBrowserName = "init-browser"
)

// profiles makes each built-in profile.
var profiles = map[string]func() Profile{
	DefaultName: Default, StrictName: Strict, BuildName: Build, BrowserName: Browser,
	InitName:        Init,
	InitBrowserName: func() Profile { return initOf(InitBrowserName, Browser()) },
}

// ByName returns a built-in profile.
func ByName(name string) (Profile, error) {
	if f, ok := profiles[name]; ok {
		return f(), nil
	}
	return Profile{}, api.Errorf(api.InvalidArgument, "unknown seccomp profile %q", name).
		WithHint("use one of %s", strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
}

// InitFor names the profile of PID 1 in a sandbox whose commands are under the profile
// with this name, which may be one of the caller's own: that can only take away.
func InitFor(name string) string {
	if name == BrowserName {
		return InitBrowserName
	}
	return InitName
}

// IsInit says whether name is that of a PID 1's profile.
func IsInit(name string) bool { return name == InitName || name == InitBrowserName }

// Init is the profile of PID 1: Default and what only PID 1 may do.
func Init() Profile { return initOf(InitName, Default()) }

// initOf is the profile of PID 1 above one for commands: that, and what only PID 1 may do.
func initOf(name string, commands Profile) Profile {
	rules := []Rule{{
		Reason: "CLONE_INTO_CGROUP exists only here, and puts a command into its cgroup before its first instruction. " +
			"The flags lie in memory, out of a filter's reach, so nobody but PID 1 may have it",
		Syscalls: []string{"clone3"},
	}}
	return Profile{Name: name, Rules: append(rules, commands.Rules...)}
}

// change is base with rules put before it. A call that they decide whatever its arguments
// loses base's own rules, which would decide nothing any more.
func change(name string, base Profile, rules []Rule) Profile {
	decided := map[string]bool{}
	for _, r := range rules {
		for _, call := range r.Syscalls {
			decided[call] = decided[call] || len(r.When) == 0
		}
	}
	p := Profile{Name: name, Rules: rules}
	for _, r := range base.Rules {
		r.Syscalls = slices.DeleteFunc(slices.Clone(r.Syscalls), func(call string) bool { return decided[call] })
		if len(r.Syscalls) > 0 {
			p.Rules = append(p.Rules, r)
		}
	}
	return p
}

// drop is p without these calls, which fail with Unlisted then: libc and programs take
// their fallback for a kernel without them.
func drop(p Profile, names string) Profile {
	gone := strings.Fields(names)
	out := Profile{Name: p.Name}
	for _, r := range p.Rules {
		r.Syscalls = slices.DeleteFunc(slices.Clone(r.Syscalls),
			func(call string) bool { return slices.Contains(gone, call) })
		if len(r.Syscalls) > 0 {
			out.Rules = append(out.Rules, r)
		}
	}
	return out
}

// debuggers read and change other processes.
var debuggers = refuse("a debugger reads and changes what other programs of the sandbox have in memory: tokens of a package "+
	"manager, for one, that runs what it has just fetched", `ptrace process_vm_readv process_vm_writev pidfd_getfd`)

// Build is for package installs and compilers, which run what they have just fetched: all
// that these do as root of a sandbox, and no debuggers, kernel AIO or message queues.
func Build() Profile {
	p := change(BuildName, Default(), []Rule{debuggers})
	return drop(p, `
		io_setup io_submit io_getevents io_pgetevents io_cancel io_destroy
		mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
		vmsplice tee`)
}

// Strict is for pure computation: programs that read, compute and write files, in as many
// processes and threads as they like, and talk to nobody outside the sandbox. There are no
// sockets but local ones, no other users and no rarely used kernel code.
func Strict() Profile {
	rules := []Rule{
		localSockets,
		{Reason: "what only computes talks to nobody; a kernel without the family gives the same errno",
			Syscalls: []string{"socket"}, Errno: unix.EAFNOSUPPORT},
		debuggers,
		refuse("there is one user, and nothing to give up", `
			setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset`),
		refuse("nothing here is a system of its own", `chroot mknod mknodat`),
		{Reason: "asking", Syscalls: []string{"personality"}, When: []Cond{int32Arg(0, perQuery)}},
		refuse("a program that computes needs no other personality", `personality`),
	}
	for _, request := range terminalRequests {
		rules = append(rules, Rule{Reason: "terminals, pipes and files: what libc and shells ask for",
			Syscalls: []string{"ioctl"}, When: []Cond{int32Arg(1, request)}})
	}
	rules = append(rules,
		Rule{Reason: "thousands of requests, each a way into a driver; a file without the request gives the same errno",
			Syscalls: []string{"ioctl"}, Errno: unix.ENOTTY})
	return drop(change(StrictName, Build(), rules), `
		shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
		inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
		splice map_shadow_stack ioprio_set sched_setattr rt_sigqueueinfo rt_tgsigqueueinfo`)
}

// terminalRequests are what Strict allows of ioctl(2) (asm-generic/ioctls.h and linux/fs.h).
var terminalRequests = []uint64{
	unix.TCGETS, unix.TCSETS, unix.TCSETSW, unix.TCSETSF, unix.TCSBRK, unix.TCXONC, unix.TCFLSH,
	unix.TIOCGPGRP, unix.TIOCSPGRP, unix.TIOCGSID, unix.TIOCGWINSZ, unix.TIOCSWINSZ, unix.TIOCSCTTY, unix.TIOCNOTTY,
	unix.TIOCINQ, fionbio, fioclex, unix.FICLONE, unix.FS_IOC_GETFLAGS,
}

// Requests that golang.org/x/sys does not name (asm-generic/ioctls.h).
const (
	fionbio = 0x5421
	fioclex = 0x5451
)
