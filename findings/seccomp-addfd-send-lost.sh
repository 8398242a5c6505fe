#!/bin/sh
# SECCOMP_ADDFD_FLAG_SEND is not atomic for the supervisor: a signal, or the cgroup freezer, at the wrong moment loses the
# answer. The intercepted call returns 0, a descriptor that the process has had all along, and the supervisor gets an error.
#
# What one expects: seccomp_unotify(2) and the kernel's documentation have the flag make adding a descriptor and answering one
# step, so that no signal to the *target* comes between. A supervisor that is interrupted repeats the ioctl, as after EINTR
# elsewhere, or has SA_RESTART do that.
#
# What happens: the kernel marks the call as answered before the target has taken the descriptor, then waits, interruptibly.
# When that wait is interrupted it takes the descriptor back, but not the mark (seccomp_notify_addfd, kernel/seccomp.c): the
# target wakes up with an answer that nobody has given, value 0. The repeated ioctl is EINPROGRESS or ENOENT. Without the
# flag, in two steps (SECCOMP_IOCTL_NOTIF_ADDFD, then NOTIF_SEND with the number), both can be repeated; where the filter has
# SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19) nothing but a deadly signal to the target comes between them either.
#
# Whom it meets: supervisors that open files for others, above all those in Go, whose run-time signals its own threads. It is
# rare without the thread that disturbs here, and what comes of it is a write to the wrong file.
#
# Seen with Linux 6.18. Needs a C compiler and the kernel's headers of 5.19 or later.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/lost.c" <<'C'
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int listener, file, one_step;

static void nothing(int n) { (void)n; }

static void *supervise(void *arg)
{
	for (;;) {
		struct seccomp_notif n = {0};
		struct seccomp_notif_addfd a = {0};
		struct seccomp_notif_resp r = {0};
		int fd;
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) != 0)
			continue;
		a.id = r.id = n.id;
		a.srcfd = file;
		a.flags = one_step ? SECCOMP_ADDFD_FLAG_SEND : 0;
		while ((fd = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &a)) < 0 && errno == EINTR)
			;
		r.val = fd;
		if (!one_step)
			while (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r) != 0 && errno == EINTR)
				;
	}
	return arg;
}

static void *disturb(void *thread)
{
	for (;;)
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
}

int main(int argc, char **argv)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioprio_get, 0, 1), /* a call that nobody needs here */
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {4, code};
	struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	struct stat want, got;
	pthread_t supervisor, other;
	int wrong = 0;
	one_step = argc > 1 && atoi(argv[1]);
	sigaction(SIGUSR1, &action, NULL);
	file = open("/dev/zero", O_RDONLY);
	fstat(file, &want);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &prog);
	if (listener < 0)
		return perror("seccomp"), 1;
	pthread_create(&supervisor, NULL, supervise, NULL);
	pthread_create(&other, NULL, disturb, &supervisor);
	for (int i = 0; i < 5000; i++) {
		int fd = syscall(SYS_ioprio_get, 0, 0);
		if (fd < 0 || fstat(fd, &got) != 0 || got.st_rdev != want.st_rdev)
			wrong++;
		if (fd > 2)
			close(fd);
	}
	printf("%s: %s\n", one_step ? "in one step" : "in two steps", wrong ? "answers are lost" : "all arrive");
	return 0;
}
C
cc -pthread -o "$dir/lost" "$dir/lost.c"
got=$("$dir/lost" 1 </dev/null; "$dir/lost" 0 </dev/null)
want='in one step: answers are lost
in two steps: all arrive'
uname -r
printf '%s\n' "$got"
[ "$got" = "$want" ] || { echo "it is no more as this file says" >&2; exit 1; }
