package seccomp

import (
	"strings"

	"golang.org/x/sys/unix"
)

// refuse is a rule that fails the calls in names with EPERM, the kernel's own
// answer to a process without the privilege.
func refuse(reason, names string) Rule {
	return Rule{Reason: reason, Syscalls: strings.Fields(names), Errno: unix.EPERM}
}

// tried marks a rule about calls that programs only try.
func tried(r Rule) Rule {
	r.Probe = true
	return r
}

// refusedRules are the calls that exist everywhere and are refused as
// privileged, so that programs say "not permitted" and not "not implemented".
func refusedRules() []Rule {
	return []Rule{
		refuse("joining another namespace leaves the sandbox's", `setns`),
		refuse("mounting changes what the sandbox sees, uncovers masked paths and parses file systems in the kernel", `
			mount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr`),
		refuse("keyrings belong to the kernel's user id, not to the sandbox, and are shared with the host's processes of it", `
			add_key request_key keyctl`),
		refuse("loads programs into the kernel", `bpf`),
		refuse("measures other processes and the kernel; a long record of holes", `perf_event_open`),
		refuse("stops the kernel in the middle of a copy, the favourite tool to win races against it", `userfaultfd`),
		tried(refuse("file handles open files by inode number, past every folder's permissions and mount", `
			name_to_handle_at open_by_handle_at`)), // by systemd's libraries
		refuse("replaces or extends the running kernel", `
			kexec_load kexec_file_load init_module finit_module delete_module`),
		refuse("stops the machine; in a pid namespace, its PID 1", `reboot`),
		refuse("sets the clock of the whole machine, or shows its discipline", `
			settimeofday clock_settime adjtimex clock_adjtime`),
		refuse("resources of the whole machine", `swapon swapoff acct quotactl quotactl_fd vhangup iopl ioperm`),
		refuse("the kernel's log has addresses and other tenants' messages", `syslog`),
		refuse("the host name is part of the spec", `sethostname setdomainname`),
	}
}

// unlisted are the calls that Default leaves to Unlisted on purpose. The table
// decides nothing: it keeps the reasons, and makes a test fail when a kernel
// brings a call that nobody has thought about.
func unlisted() map[string]string {
	table := map[string]string{}
	for _, group := range []struct{ reason, names string }{
		{"libc falls back to clone, whose flags a filter can read", `clone3`},
		{"its operations are not seen by any filter: sockets and files would be opened past this table. Programs only try it, " +
			"and some take their other way after ENOSYS alone (DESIGN.md)",
			`io_uring_setup io_uring_enter io_uring_register`},
		{"mounts show host paths and device names; programs read /proc/self/mountinfo instead", `statmount listmount`},
		{"lists namespaces", `listns`},
		{"segments for 16-bit programs: seldom compiled in, and a record of holes", `modify_ldt`},
		{"NUMA placement: programs take the fallback for one node; migration concerns other processes", `
			get_mempolicy set_mempolicy set_mempolicy_home_node mbind migrate_pages move_pages`},
		{"works on other processes' memory; allocators have madvise", `process_madvise process_mrelease`},
		{"memory that neither debuggers nor the memory limit's reclaim can reach", `memfd_secret`},
		{"which pages are cached tells what neighbours with shared image layers run", `cachestat`},
		{"compares kernel objects of other processes", `kcmp`},
		{"watches whole mounts and needs file handles; watchers fall back to inotify", `fanotify_init fanotify_mark`},
		{"deprecated: emulated by mmap in the kernel", `remap_file_pages`},
		{"security module administration", `lsm_get_self_attr lsm_set_self_attr lsm_list_modules`},
		{"made by uprobe trampolines only, which the kernel lets pass every filter", `uretprobe uprobe`},
		{"too new to have users", `rseq_slice_yield`},
		{"removed from the kernel, or never built for 64 bits", `
			_sysctl sysfs ustat uselib create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg
			afs_syscall tuxcall security vserver epoll_ctl_old epoll_wait_old set_thread_area get_thread_area
			lookup_dcookie`},
	} {
		for _, name := range strings.Fields(group.names) {
			table[name] = group.reason
		}
	}
	return table
}
