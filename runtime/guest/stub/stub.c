/*
 * stub: the last steps between hutch-init and a sandbox's command.
 *
 * Build, on x86_64 and aarch64 (the Makefile's STUB_FLAGS are these):
 *   cc -nostdlib -static -Os -Wall -Wextra -Werror -fno-stack-protector \
 *      -fno-asynchronous-unwind-tables -fno-pie -no-pie -Wl,--build-id=none \
 *      -Wl,-z,noexecstack -s -o runtime/guest/stub/stub runtime/guest/stub/stub.c
 *
 * hutch-init spawns it for every exec from a memfd, as a session leader, with
 *   0 1 2  the command's stdio
 *   3      struct config and what it refers to (memfd)
 *   4      the exec seccomp filter, an array of struct sock_filter (memfd)
 *   5      write end of a pipe: 8 bytes {stage, errno} if something fails, end
 *          of file without a byte once execve(2) has succeeded
 * It applies the config in the order of main's calls and executes the command.
 * It is C without a C library because Go cannot run code between fork and exec
 * and re-executing a Go program costs 1.3 ms; this costs less than 0.1 ms.
 *
 * The config is trusted: hutch-init wrote it and nobody else can reach the
 * memfd. hutch-init has also checked users, sizes and NUL bytes.
 */
#include <linux/capability.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/filter.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <stdint.h>

#define ENTRY "stub_main"
#include "syscall.h"

#define MAGIC 0x42545348 /* "HSTB" */
#define VERSION 1

/* Fields are named as in Go's header in config.go; a test compares the two.
 * An offset counts bytes from the start of the config; 0 is "absent". */
struct config {
	uint32_t magic;
	uint32_t version;
	uint32_t size; /* of the whole config, bytes */
	uint32_t uid;
	uint32_t gid;
	uint32_t umask;
	uint32_t oom_score_adj; /* at most 1000 */
	uint32_t set_groups;    /* 0: setgroups(2) is denied here, and not needed */
	uint32_t groups_len;
	uint32_t groups; /* offset of uint32_t[groups_len] */
	uint32_t rlimits_len;
	uint32_t rlimits; /* offset of struct rlimit_entry[rlimits_len], 8-aligned */
	uint32_t cpus_len; /* bytes, a multiple of 8; 0: those of hutch-init */
	uint32_t cpus;     /* offset of a cpu_set_t, 8-aligned */
	uint32_t cap_drop_lo; /* a bit for each capability that uid 0 does not have here either */
	uint32_t cap_drop_hi;
	uint32_t argv;    /* offset of uint64_t[]: a spare slot, string offsets, 0 */
	uint32_t env;     /* offset of uint64_t[]: string offsets, 0 */
	uint32_t cwd;     /* offset of a string */
	uint32_t path;    /* offset of PATH's value; 0: argv[0] is a path */
};

struct rlimit_entry {
	uint32_t resource;
	uint32_t unused;
	uint64_t soft, hard; /* struct rlimit64 */
};

/* Where it failed: the numbers are Go's stage constants in config.go. */
enum stage {
	STAGE_CONFIG = 1,
	STAGE_SIGNALS,
	STAGE_RLIMIT,
	STAGE_BOUNDING,
	STAGE_GROUPS,
	STAGE_GID,
	STAGE_UID,
	STAGE_CAPS,
	STAGE_CHDIR,
	STAGE_SECCOMP,
	STAGE_EXEC,
};

enum { FD_CONFIG = 3, FD_FILTER = 4, FD_ERROR = 5 };

/* PATH_MAX of linux/limits.h. */
static char candidate[4096];

__attribute__((noreturn)) static void die(enum stage stage, long err)
{
	int32_t report[2] = {(int32_t)stage, (int32_t)-err};

	sys(__NR_write, FD_ERROR, report, sizeof(report), 0, 0);
	for (;;)
		sys(__NR_exit_group, err == -ENOENT ? 127 : 126, 0, 0, 0, 0);
}

static void check(enum stage stage, long ret)
{
	if (ret < 0)
		die(stage, ret);
}

/* map_fd maps a whole file privately and closes nothing: everything above
 * stderr is close-on-exec. */
static void *map_fd(int fd, long *size)
{
	long ret = sys(__NR_lseek, fd, 0, 2 /* SEEK_END */, 0, 0);

	check(STAGE_CONFIG, ret);
	*size = ret;
	ret = sys6(__NR_mmap, 0, ret, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (ret < 0 && ret > -4096)
		die(STAGE_CONFIG, ret);
	return (void *)ret;
}

/* relocate turns a table of string offsets into the char *[] that execve
 * wants, in place. */
static char **relocate(char *base, uint32_t table)
{
	uint64_t *p = (uint64_t *)(base + table);

	for (; *p; p++)
		*p += (uint64_t)base;
	return (char **)(base + table);
}

static struct config *read_config(void)
{
	long size;
	struct config *c = map_fd(FD_CONFIG, &size);

	if (size < (long)sizeof(*c) || c->magic != MAGIC || c->version != VERSION || c->size != size)
		die(STAGE_CONFIG, -EINVAL);
	return c;
}

/* Ignored signals and the mask survive execve(2): a command must not inherit
 * hutch-init's. SIGKILL (9) and SIGSTOP (19) cannot be set. */
static void reset_signals(void)
{
	uint64_t action[4] = {0}; /* struct sigaction of the kernel, SIG_DFL */
	uint64_t mask = 0;
	int sig;

	for (sig = 1; sig <= 64; sig++)
		if (sig != 9 && sig != 19)
			check(STAGE_SIGNALS, sys(__NR_rt_sigaction, sig, action, 0, sizeof(mask), 0));
	check(STAGE_SIGNALS, sys(__NR_rt_sigprocmask, 2 /* SIG_SETMASK */, &mask, 0, sizeof(mask), 0));
}

/* A failure is ignored: the score only says who dies first when memory is
 * short, and an image may hide /proc. Lowering needs a capability, so the
 * command cannot undo it. */
static void set_oom_score(uint32_t score)
{
	char text[4], *p = text + sizeof(text);
	long fd = sys(__NR_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0, 0);

	if (fd < 0)
		return;
	do
		*--p = '0' + score % 10;
	while ((score /= 10) && p > text);
	sys(__NR_write, fd, p, text + sizeof(text) - p, 0, 0);
	sys(__NR_close, fd, 0, 0, 0, 0);
}

static void set_rlimits(char *base, struct config *c)
{
	struct rlimit_entry *r = (struct rlimit_entry *)(base + c->rlimits);
	uint32_t i;

	for (i = 0; i < c->rlimits_len; i++)
		check(STAGE_RLIMIT, sys(__NR_prlimit64, 0, r[i].resource, &r[i].soft, 0, 0));
}

/* set_cpus starts the command on as many CPUs as its limit is worth, which it and all that it starts see by
 * sched_getaffinity(2). It may ask for others; the cgroup bounds what it uses. CPUs that are offline, or outside of the
 * cgroup's, leave it as it was. */
static void set_cpus(char *base, struct config *c)
{
	if (c->cpus_len)
		sys(__NR_sched_setaffinity, 0, c->cpus_len, base + c->cpus, 0, 0);
}

/* drop_bounding takes capabilities out of the bounding set: with uid 0 a command
 * has what the sandbox was given, less drop and CAP_SETPCAP; any other user has
 * nothing. CAP_SETPCAP goes last, it is what allows dropping. */
static void drop_bounding(uint32_t uid, const uint32_t drop[2])
{
	long cap, has;

	if (uid == 0 && !drop[0] && !drop[1])
		has = -1; /* nothing else to look for */
	else
		has = 0;
	for (cap = 0; has >= 0 && (has = sys(__NR_prctl, PR_CAPBSET_READ, cap, 0, 0, 0)) >= 0; cap++)
		if (has == 1 && cap != CAP_SETPCAP && (uid != 0 || drop[cap / 32] >> (cap % 32) & 1))
			check(STAGE_BOUNDING, sys(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0));
	if (sys(__NR_prctl, PR_CAPBSET_READ, CAP_SETPCAP, 0, 0, 0) == 1)
		check(STAGE_BOUNDING, sys(__NR_prctl, PR_CAPBSET_DROP, CAP_SETPCAP, 0, 0, 0));
}

static void set_ids(char *base, struct config *c)
{
	if (c->set_groups)
		check(STAGE_GROUPS, sys(__NR_setgroups, c->groups_len, base + c->groups, 0, 0, 0));
	check(STAGE_GID, sys(__NR_setresgid, c->gid, c->gid, c->gid, 0, 0));
	check(STAGE_UID, sys(__NR_setresuid, c->uid, c->uid, c->uid, 0, 0));
}

/* set_caps leaves nothing inheritable or ambient; a user other than 0 has
 * nothing permitted either (setresuid has cleared it; said again here). */
static void set_caps(uint32_t uid, const uint32_t drop[2])
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}, {0, 0, 0}};
	int i;

	check(STAGE_CAPS, sys(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	if (uid == 0)
		check(STAGE_CAPS, sys(__NR_capget, &head, data, 0, 0, 0));
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].effective &= ~drop[i];
		data[i].permitted &= ~drop[i];
		data[i].inheritable = 0;
	}
	check(STAGE_CAPS, sys(__NR_capset, &head, data, 0, 0, 0));
}

static void install_filter(void)
{
	long size;
	struct sock_filter *code = map_fd(FD_FILTER, &size);
	struct sock_fprog prog = {(unsigned short)(size / sizeof(*code)), code};

	check(STAGE_SECCOMP, sys(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog, 0, 0));
}

/* is_script tells a script without "#!" from a program of another
 * architecture: no NUL byte near its start, as shells decide it. */
static int is_script(const char *file)
{
	char head[128];
	long i, n, fd = sys(__NR_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0, 0);

	if (fd < 0)
		return 0;
	n = sys(__NR_read, fd, head, sizeof(head), 0, 0);
	for (i = 0; i < n; i++)
		if (head[i] == 0)
			return 0;
	return n >= 0;
}

/* try_exec returns -errno. argv[-1] is the spare slot of the table. */
static long try_exec(char *file, char **argv, char **env)
{
	long err = sys(__NR_execve, file, argv, env, 0, 0);

	if (err == -ENOEXEC && is_script(file)) {
		argv[-1] = "/bin/sh";
		argv[0] = file;
		err = sys(__NR_execve, argv[-1], argv - 1, env, 0, 0);
	}
	return err;
}

/* next_candidate writes dir/name for the PATH element at *path and advances
 * *path; 0 when it does not fit. An empty element is the working directory. */
static int next_candidate(const char **path, const char *name)
{
	char *out = candidate, *end = candidate + sizeof(candidate) - 2;
	const char *p = *path;
	int fits;

	for (; *p && *p != ':'; p++)
		if (out < end)
			*out++ = *p;
	fits = out < end;
	if (out > candidate)
		*out++ = '/';
	for (; *name && out < end; name++)
		*out++ = *name;
	*out = 0;
	*path = *p ? p + 1 : 0;
	return fits && *name == 0;
}

/* search walks PATH as execvp(3) does: it goes on where a file is missing or
 * forbidden, stops at any other error, and remembers "forbidden". */
static long search(const char *path, char **argv, char **env)
{
	char *name = argv[0];
	long err, result = -ENOENT;

	while (path) {
		if (!next_candidate(&path, name))
			continue;
		err = try_exec(candidate, argv, env);
		argv[0] = name;
		switch (err) {
		case -EACCES:
			result = err;
			break;
		case -ENOENT:
		case -ENOTDIR:
		case -ENODEV:
		case -ESTALE:
		case -ETIMEDOUT:
			break;
		default:
			return err;
		}
	}
	return result;
}

__attribute__((noreturn, used)) void stub_main(void)
{
	struct config *c;
	char *base, **argv, **env;
	uint32_t drop[2];

	/* First of all: until the filter is on, this process may do more than a
	 * command may, so no other process of the sandbox may attach to it. */
	check(STAGE_CONFIG, sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0));
	check(STAGE_CONFIG, sys(__NR_close_range, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */, 0, 0));

	c = read_config();
	base = (char *)c;
	drop[0] = c->cap_drop_lo;
	drop[1] = c->cap_drop_hi;
	argv = relocate(base, c->argv + sizeof(uint64_t));
	env = relocate(base, c->env);

	set_oom_score(c->oom_score_adj);
	reset_signals();
	set_rlimits(base, c);
	set_cpus(base, c);
	/* hutch-init has a millisecond (runtime/launch/bootstrap); this is the kernel's. */
	sys(__NR_prctl, PR_SET_TIMERSLACK, 50000 /* ns */, 0, 0, 0);
	sys(__NR_umask, c->umask, 0, 0, 0, 0);
	drop_bounding(c->uid, drop); /* needs CAP_SETPCAP, which setresuid takes away */
	set_ids(base, c);
	set_caps(c->uid, drop);
	if (c->cwd) /* as the user, who must be allowed to be there */
		check(STAGE_CHDIR, sys(__NR_chdir, base + c->cwd, 0, 0, 0, 0));
	install_filter(); /* last: it may forbid any of the above */
	die(STAGE_EXEC, c->path ? search(base + c->path, argv, env) : try_exec(argv[0], argv, env));
}
