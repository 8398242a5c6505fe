/*
 * swap: gives a sandbox that was launched ahead its root file system.
 *
 * hutch-launch starts it for every claim, from a memfd, as uid 0 of its own user
 * and mount namespace, with
 *   0      the config, see below
 *   1      write end of a pipe: 8 bytes {stage, errno}, {0, 0} on success
 *   3      pidfd of the sandbox's PID 1, in which only hutch-init has run
 * The config is a sequence of strings, each with its zero: the folder where the
 * new root is mounted in hutch-launch's mount namespace, the host name, and then
 * in order any of
 *   m PATH           move what is mounted at /PATH in the old root to the new one
 *   b FLAG SRC DST   mount what is at SRC in hutch-launch's namespace at DST, r or w
 * where the letters are strings of one byte and PATH has no slash before it.
 *
 * It is C without a C library because a Go program has threads before it could
 * join a user namespace. It executes and reads no file of the image: it only walks
 * names, below a root where every other process is hutch-init. The config is
 * trusted but for what DST leads to.
 */
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <stdint.h>

#define ENTRY "swap_main"
#include "../../guest/stub/syscall.h"

enum { FD_CONFIG = 0, FD_RESULT = 1, FD_PID1 = 3 };

enum { MAX_CONFIG = 1 << 16, MAX_BINDS = 256, PATH_MAX = 4096, TRIES = 1000 };

/* Where the new root is mounted first: hutch-launch made this folder. */
#define STAGING "/.claim"

/* Where it failed: the numbers are Go's names in claim.go. */
enum stage {
	STAGE_CONFIG = 1,
	STAGE_USERNS,
	STAGE_COPY,
	STAGE_CLONE,
	STAGE_JOIN,
	STAGE_ATTACH,
	STAGE_MOVE,
	STAGE_BIND,
	STAGE_PIVOT,
	STAGE_UNMOUNT,
	STAGE_HOSTNAME,
};

/* Not in the headers of older systems. */
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
enum { ATTR_RDONLY = 1, ATTR_NOSUID = 2, ATTR_NODEV = 4 };
static const uint64_t PRIVATE = 1 << 18; /* MS_PRIVATE */

struct attr {
	uint64_t set, clr, propagation, userns_fd;
};

/* How names are resolved: those of the caller's, and ours. */
static const uint64_t INSIDE = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
static const uint64_t OWN = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;

static char config[MAX_CONFIG + 1];
static int trees[MAX_BINDS];
static char partial[PATH_MAX];

__attribute__((noreturn)) static void end(enum stage stage, long err)
{
	int32_t report[2] = {(int32_t)stage, (int32_t)-err};

	sys(__NR_write, FD_RESULT, report, sizeof(report), 0, 0);
	for (;;)
		sys(__NR_exit_group, stage != 0, 0, 0, 0, 0);
}

static long check(enum stage stage, long ret)
{
	if (ret < 0)
		end(stage, ret);
	return ret;
}

static long length(const volatile char *s) /* volatile: compilers would call strlen */
{
	long n = 0;

	while (s[n])
		n++;
	return n;
}

/* next returns the string behind s, NULL at the end of the config. */
static char *next(char *s, const char *limit)
{
	s += length(s) + 1;
	return s < limit ? s : 0;
}

static char *need(char *s, const char *limit)
{
	s = next(s, limit);
	if (!s)
		end(STAGE_CONFIG, -EINVAL);
	return s;
}

static char *read_config(void)
{
	long n, size = 0;

	while ((n = check(STAGE_CONFIG, sys(__NR_read, FD_CONFIG, config + size, MAX_CONFIG - size, 0, 0))) > 0)
		size += n;
	if (size == 0 || size == MAX_CONFIG || config[size - 1])
		end(STAGE_CONFIG, -EINVAL);
	return config + size;
}

/* clone copies the mounts at path, with flags, where nobody else's show up. */
static int clone_tree(const char *path, int recursive, uint64_t flags)
{
	struct attr attr = {flags, 0, PRIVATE, 0};
	long fd = check(STAGE_CLONE, sys(__NR_open_tree, AT_FDCWD, path,
					 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (recursive ? AT_RECURSIVE : 0), 0, 0));

	check(STAGE_CLONE, sys(__NR_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)));
	return (int)fd;
}

static long open_in(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {O_PATH | O_CLOEXEC | flags, 0, resolve};
	long fd = -EAGAIN;

	/* EAGAIN: a rename or mount anywhere on the machine while ".." was resolved (openat2(2)). */
	for (int i = 0; i < TRIES && fd == -EAGAIN; i++)
		fd = sys(__NR_openat2, dir, path, &how, sizeof(how), 0);
	return fd;
}

static uint32_t kind(int fd)
{
	static struct statx st;

	check(STAGE_BIND, sys(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &st));
	return st.stx_mode & S_IFMT;
}

static uint64_t mount_id(int fd)
{
	static struct statx st;

	check(STAGE_BIND, sys(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st));
	return st.stx_mnt_id;
}

/* target opens path, as the sandbox would from its root, and makes what is missing of it: the
 * last part a folder or an empty file, as the source is. A symlink leads nowhere else than
 * inside. */
static int target(int root, const char *path, uint32_t want)
{
	long parent = root, fd, i = 0, part;

	while (path[i] == '/')
		i++;
	if (!path[i] || length(path) >= PATH_MAX)
		end(STAGE_BIND, -EINVAL);
	for (;;) {
		part = i;
		while (path[i] && path[i] != '/')
			i++;
		for (long j = 0; j < i; j++)
			partial[j] = path[j];
		partial[i] = 0;
		while (path[i] == '/')
			i++;
		int last = !path[i];

		fd = open_in(root, partial, 0, INSIDE);
		if (fd == -ENOENT) {
			if (last && want != S_IFDIR) {
				long file = check(STAGE_BIND, sys(__NR_openat, parent, partial + part,
								  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644, 0));
				sys(__NR_close, file, 0, 0, 0, 0);
			} else {
				check(STAGE_BIND, sys(__NR_mkdirat, parent, partial + part, 0755, 0, 0));
			}
			fd = open_in(root, partial, O_NOFOLLOW, INSIDE);
		}
		check(STAGE_BIND, fd);
		if (parent != root)
			sys(__NR_close, parent, 0, 0, 0, 0);
		parent = fd;
		if (last)
			break;
	}
	if ((kind((int)fd) == S_IFDIR) != (want == S_IFDIR))
		end(STAGE_BIND, -ENOTDIR);
	return (int)fd;
}

/* bind mounts trees[n] at path. */
static void bind(int root, int n, const char *path)
{
	int at = target(root, path, kind(trees[n]));

	check(STAGE_BIND, sys(__NR_move_mount, trees[n], "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
	sys(__NR_close, at, 0, 0, 0, 0);
}

/* look fails when trees[n] is not what path leads to: the image had a link there, into /proc,
 * /dev or another bind. */
static void look(int root, int n, const char *path)
{
	int at;

	while (*path == '/')
		path++;
	at = (int)check(STAGE_BIND, open_in(root, path, 0, INSIDE));
	if (mount_id(at) != mount_id(trees[n]))
		end(STAGE_BIND, -EXDEV);
	sys(__NR_close, at, 0, 0, 0, 0);
}

/* move takes what is mounted at /path along. */
static void move(int root, const char *path)
{
	long i, at = check(STAGE_MOVE, open_in(root, path, O_DIRECTORY, OWN));

	if (length(path) >= PATH_MAX - 1)
		end(STAGE_MOVE, -ENAMETOOLONG);
	partial[0] = '/';
	for (i = 0; path[i]; i++)
		partial[i + 1] = path[i];
	partial[i + 1] = 0;
	check(STAGE_MOVE, sys(__NR_move_mount, AT_FDCWD, partial, at, "", MOVE_MOUNT_T_EMPTY_PATH));
	sys(__NR_close, at, 0, 0, 0, 0);
}

/* each calls on_bind for every bind and on_move for every move, where they are given. */
static void each(char *s, const char *limit, int root, void (*on_bind)(int, int, const char *), void (*on_move)(int, const char *))
{
	int n = 0;

	while ((s = next(s, limit))) {
		if (s[0] == 'm') {
			s = need(s, limit);
			if (on_move)
				on_move(root, s);
		} else {
			s = need(need(need(s, limit), limit), limit);
			if (on_bind)
				on_bind(root, n, s);
			n++;
		}
	}
}

/* clone_all clones the sources of the binds. */
static void clone_all(char *s, const char *limit)
{
	int n = 0;

	while ((s = next(s, limit))) {
		char *flag;

		if (s[0] == 'm') {
			s = need(s, limit);
			continue;
		}
		if (s[0] != 'b' || n == MAX_BINDS)
			end(STAGE_CONFIG, -EINVAL);
		flag = need(s, limit);
		s = need(flag, limit);
		trees[n++] = clone_tree(s, 1, ATTR_NOSUID | ATTR_NODEV | (flag[0] == 'r' ? ATTR_RDONLY : 0));
		s = need(s, limit);
	}
}

void swap_main(void)
{
	char *limit = read_config(), *host = need(config, limit);
	int root;

	/* What the mounts' attributes are now is locked for whoever is root in the sandbox once they
	 * have been copied into a mount namespace of its user namespace (mount_namespaces(7)). */
	check(STAGE_USERNS, sys(__NR_setns, FD_PID1, CLONE_NEWUSER, 0, 0, 0));
	check(STAGE_COPY, sys(__NR_unshare, CLONE_NEWNS, 0, 0, 0, 0));
	root = clone_tree(config, 0, 0);
	clone_all(host, limit);
	check(STAGE_JOIN, sys(__NR_setns, FD_PID1, CLONE_NEWNS | CLONE_NEWUTS, 0, 0, 0));

	/* The binds come first, so that no target of theirs is in /proc or /dev; one that is covered
	 * by these is found in the end. */
	check(STAGE_ATTACH, sys(__NR_move_mount, root, "", AT_FDCWD, STAGING, MOVE_MOUNT_F_EMPTY_PATH));
	each(host, limit, root, bind, 0);
	each(host, limit, root, 0, move);
	each(host, limit, root, look, 0);

	/* The old root is put on top of the new one, and taken off (pivot_root(2), NOTES). PID 1, whose
	 * root it was, is moved by the kernel. */
	check(STAGE_PIVOT, sys(__NR_fchdir, root, 0, 0, 0, 0));
	check(STAGE_PIVOT, sys(__NR_pivot_root, ".", ".", 0, 0, 0));
	check(STAGE_UNMOUNT, sys(__NR_umount2, ".", 2 /* MNT_DETACH */, 0, 0, 0));
	check(STAGE_HOSTNAME, sys(__NR_sethostname, host, length(host), 0, 0, 0));
	end(0, 0);
}
