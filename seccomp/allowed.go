package seccomp

import "strings"

// allow is a rule that allows the calls in names, separated by white space.
func allow(reason, names string) Rule {
	return Rule{Reason: reason, Syscalls: strings.Fields(names)}
}

// allowedRules are the calls that a program may make with any arguments, by
// subject.
func allowedRules() []Rule {
	return append(fileRules(), []Rule{
		allow("processes: start, end, wait, signal", `
			fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill
			pidfd_open pidfd_send_signal getpid getppid gettid getpgid getpgrp setpgid getsid setsid`),
		allow("per-thread and per-process state of the caller itself", `
			set_tid_address set_robust_list get_robust_list rseq arch_prctl prctl restart_syscall membarrier`),
		allow("resource limits and usage; hard limits only go down without CAP_SYS_RESOURCE", `
			getrusage getrlimit setrlimit times`),
		allow("scheduling, within what the kernel grants an unprivileged process", `
			sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam
			sched_getscheduler sched_setscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
			getpriority setpriority ioprio_get ioprio_set getcpu`),
		allow("users and capabilities inside the sandbox's user namespace; package managers and daemons drop privileges", `
			getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
			setresuid setresgid setfsuid setfsgid setgroups capget capset`),
		allow(ptraceReason, `ptrace process_vm_readv process_vm_writev pidfd_getfd`),
		allow("programs that confine themselves further; filters and domains only add up", `
			seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self`),
		allow("signals", `
			rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo
			rt_sigreturn sigaltstack pause signalfd signalfd4`),
		allow("memory of the caller, bounded by RLIMIT_MEMLOCK and the memory limit", `
			brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 mlockall munlock munlockall mseal
			memfd_create pkey_alloc pkey_free pkey_mprotect map_shadow_stack`),
		allow("clocks and timers", `
			clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time alarm getitimer setitimer
			timer_create timer_settime timer_gettime timer_getoverrun timer_delete
			timerfd_create timerfd_settime timerfd_gettime`),
		allow("locks between threads", `
			futex futex_waitv futex_wait futex_wake futex_requeue`),
		allow("waiting for events", `
			poll ppoll select pselect6 eventfd eventfd2
			epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2`),
		allow("Linux AIO: databases use it; unlike io_uring it makes no sockets and opens no files", `
			io_setup io_submit io_getevents io_pgetevents io_cancel io_destroy`),
		allow("sockets that exist; making one is decided by family, type and protocol", `
			bind connect listen accept accept4 getsockname getpeername getsockopt setsockopt shutdown
			sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg`),
		allow("System V and POSIX IPC: PostgreSQL and others; the sandbox has an IPC namespace of its own", `
			shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
			mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`),
		allow("what the system is", `uname sysinfo getrandom`),
	}...)
}

// fileRules are the calls on files and folders. Permissions, the mount
// namespace and read-only mounts decide what they reach.
func fileRules() []Rule {
	return []Rule{
		allow("opening and closing", `
			open openat openat2 creat close close_range dup dup2 dup3 fcntl flock pipe pipe2`),
		allow("reading and writing", `
			read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 lseek
			sendfile copy_file_range splice tee vmsplice readahead fadvise64`),
		allow("size and durability", `
			truncate ftruncate fallocate fsync fdatasync sync syncfs sync_file_range`),
		allow("metadata", `
			stat lstat fstat newfstatat statx statfs fstatfs access faccessat faccessat2
			chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat umask
			utime utimes utimensat futimesat file_getattr file_setattr`),
		allow("extended attributes; the kernel keeps trusted and security ones from sandboxes", `
			getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat
			setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat`),
		allow("names and folders", `
			getcwd chdir fchdir mkdir mkdirat rmdir rename renameat renameat2 link linkat symlink symlinkat
			unlink unlinkat readlink readlinkat getdents getdents64`),
		allow("fifos and sockets; device nodes need a capability over the host's user namespace", `mknod mknodat`),
		allow("package builds and daemons use it; the walls of a sandbox are mounts, not a chroot", `chroot`),
		allow("file watchers of editors, bundlers and test runners", `
			inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`),
	}
}
