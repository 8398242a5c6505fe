/*
 * floor starts a command in fresh namespaces on an overlay root, with nothing
 * that is not a system call for that: what no launcher on this kernel can beat.
 *
 *   usage: floor LOWER SCRATCH COMMAND [ARG...]
 *
 * LOWER holds the folders usr and proc and the links into usr; SCRATCH is an
 * empty folder that the command never sees. The command is PID 1, uid 0 of its
 * user namespace, and meets: an overlay of LOWER with a tmpfs above it, the
 * host's /usr read-only, its own /proc, and a network with loopback alone.
 *
 * Left out, so that nobody takes this for a sandbox: seccomp, capabilities,
 * no_new_privs, cgroups, /dev, masked paths, a PID 1 that reaps.
 *
 * Needs Linux 5.12 (mount_setattr(2); overlays in user namespaces came in 5.11).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* mount(2) without <sys/mount.h>, which older libcs cannot combine with
 * <linux/mount.h>. */
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);
int umount2(const char *target, int flags);
#define UMOUNT_DETACH 2

/* What the shell would say: 125 is the launcher's own failure. */
#define EXIT_OWN 125

static void fail(const char *what)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
	_exit(EXIT_OWN);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = (ssize_t)strlen(text);

	if (fd < 0 || write(fd, text, len) != len || close(fd) < 0)
		fail(path);
}

/* A process may map its own ids when it maps one, its own: user_namespaces(7). */
static void map_ids(uid_t uid, gid_t gid)
{
	char line[32];

	put("/proc/self/setgroups", "deny");
	snprintf(line, sizeof(line), "0 %u 1\n", uid);
	put("/proc/self/uid_map", line);
	snprintf(line, sizeof(line), "0 %u 1\n", gid);
	put("/proc/self/gid_map", line);
}

static void loopback_up(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0 || close(fd) < 0)
		fail("loopback up");
}

static void enter_root(const char *lower, const char *scratch)
{
	struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY };
	char options[1024];
	int n = snprintf(options, sizeof(options), "lowerdir=%s,upperdir=up,workdir=work,userxattr,volatile", lower);

	if (n < 0 || n >= (int)sizeof(options)) {
		errno = ENAMETOOLONG;
		fail(lower);
	}
	/* Nothing of this may reach the host, where / is a shared mount. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail("make / private");
	if (mount("tmpfs", scratch, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0 || chdir(scratch) < 0)
		fail(scratch);
	if (mkdir("up", 0755) < 0 || mkdir("work", 0755) < 0 || mkdir("root", 0755) < 0)
		fail("mkdir");
	if (mount("overlay", "root", "overlay", MS_NOSUID | MS_NODEV, options) < 0)
		fail("mount overlay");
	if (mount("/usr", "root/usr", NULL, MS_BIND | MS_REC, NULL) < 0)
		fail("bind /usr");
	if (syscall(SYS_mount_setattr, AT_FDCWD, "root/usr", AT_RECURSIVE, &read_only, sizeof(read_only)) < 0)
		fail("make /usr read-only");
	if (mount("proc", "root/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		fail("mount proc");
	/* With both names the same the old root lands on top of the new one, so no
	 * folder is needed for it: pivot_root(2). */
	if (chdir("root") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", UMOUNT_DETACH) < 0 || chdir("/") < 0)
		fail("pivot_root");
}

int main(int argc, char **argv)
{
	const unsigned long namespaces =
		CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int status;
	pid_t pid;

	if (argc < 4) {
		fprintf(stderr, "usage: floor LOWER SCRATCH COMMAND [ARG...]\n");
		return EXIT_OWN;
	}
	/* A null stack makes it a fork: clone(2). The arguments after it are unused,
	 * so their order, which differs between architectures, does not matter. */
	pid = (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid < 0)
		fail("clone");
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
			fail("prctl");
		map_ids(uid, gid);
		loopback_up();
		enter_root(argv[1], argv[2]);
		execv(argv[3], argv + 3);
		fail(argv[3]);
	}
	if (waitpid(pid, &status, 0) < 0)
		fail("wait");
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
