// Before Go and libcontainer's nsexec: the first process of a new sandbox ("hutch-launch init") goes to the sandbox's cgroups by itself.
//
// Somebody who writes its pid to cgroup.procs holds up all forks, and waits for a grace period of RCU before: 5 to 15 ms
// (kernel/cgroup/cgroup.c, cgroup_attach_lock). A thread that writes 0 to tasks of cgroup v1 takes no such lock
// (cgroup_procs_write_start), nor does a child that is cloned into a cgroup of v2 (cgroup_css_set_fork).
//
// runtime/launch/birth.go sends what is read here, and reads what is said.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	BIRTH_FD = 6,            // birthFD
	MAX_REQUEST = 32 * 1024, // maxBirth
	MAX_CPUS = 64 * 1024,    // more than a kernel can have
};

static char request[MAX_REQUEST + 1];
static unsigned char cpus[MAX_CPUS / 8];
static int child; // whose parent has told

// tell says which line has failed and how, or with no error that all is done, and which child goes on, if one does.
static void tell(int32_t error, int32_t value)
{
	int32_t reply[2] = {error, value};
	(void)send(BIRTH_FD, reply, sizeof reply, MSG_NOSIGNAL);
}

static void fail(int32_t line)
{
	tell(errno, line);
	_exit(1);
}

// join moves the calling process, which has one thread, to the cgroup that has file: tasks, or cgroup.procs.
static int join(int dir, const char *file)
{
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = write(fd, "0", 1);
	int err = errno;
	close(fd);
	errno = err;
	return n == 1 ? 0 : -1;
}

// born goes on as a child in the cgroup of v2 that is dir. It has the same parent, which waits for both.
static int born(const char *dir)
{
	// As libcontainer does for the process that it has started, and that ends here.
	memset(cpus, 0xff, sizeof cpus);
	(void)syscall(SYS_sched_setaffinity, 0, sizeof cpus, cpus);
	int fd = open(dir, O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	struct clone_args args = {.flags = CLONE_PARENT | CLONE_INTO_CGROUP, .cgroup = (uint64_t)fd};
	long pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid > 0) {
		tell(0, (int32_t)pid);
		_exit(0);
	}
	child = pid == 0;
	// Somebody around us may refuse clone3, which filters cannot look into: then it takes as long as it takes.
	int result = child ? 0 : join(fd, "cgroup.procs");
	int err = errno;
	close(fd);
	errno = err;
	return result;
}

// Before nsexec, which is a constructor without a priority.
__attribute__((constructor(101))) static void birth(void)
{
	const char *type = getenv("_LIBCONTAINER_INITTYPE");
	if (type == NULL || strcmp(type, "standard") != 0)
		return;
	ssize_t n = recv(BIRTH_FD, request, MAX_REQUEST, 0);
	if (n <= 0) {
		if (n == 0)
			errno = EPIPE;
		fail(-1);
	}
	if (fcntl(BIRTH_FD, F_SETFD, FD_CLOEXEC) != 0) // PID 1 does not get it
		fail(-1);
	// A line is the kind of a hierarchy, 1 or 2, whether it has to be joined, '!' or '?', and a path; that of v2 comes last.
	int32_t line = 0;
	for (char *at = request, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, line++) {
		*end = 0;
		if (end - at < 3)
			continue; // nothing to join
		int failed = at[0] == '2' ? born(at + 2) : join(AT_FDCWD, at + 2);
		if (failed && at[1] == '!')
			fail(line);
	}
	if (!child)
		tell(0, 0);
}
