/*
 * netload makes connections as it is told to, and says how long that took.
 *
 *	usage: netload <COMMANDS >TIMES
 *
 * It is the same program on the host, in a sandbox and in the peers' namespaces. A command
 * is a line "WHAT ADDRESS PORT N", its answer a line with nanoseconds:
 *
 *	connect  N times, one after the other: connect, read a byte, close. The median.
 *	down     read N bytes that the server sends.
 *	up       send N bytes, and read the byte with which the server says that it has them.
 *	http     N requests for 1 KiB, eight connections that stay open having one each.
 *	hold     N connections that each read a byte and then stay open.
 *	drop     close those.
 *
 *	usage: netload serve
 *
 * It listens on two ports of 127.0.0.1, prints them, and serves one connection after the other until the end of its
 * input: a byte on the first port, BULK bytes on the second.
 *
 * What fails ends the program, with a line on stderr.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, BULK = 64 << 20, CLIENTS = 8, MOST = 20000 };

static char buffer[BUFFER];
static struct sockaddr_in to;

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int dial(void) {
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
		err(1, "connect to %s port %d", inet_ntoa(to.sin_addr), ntohs(to.sin_port));
	return fd;
}

static void one_byte(int fd) {
	if (recv(fd, buffer, 1, 0) != 1)
		err(1, "no byte from %s port %d", inet_ntoa(to.sin_addr), ntohs(to.sin_port));
}

static int compare(const void *a, const void *b) {
	long long x = *(const long long *)a, y = *(const long long *)b;
	return (x > y) - (x < y);
}

static long long connects(int n) {
	static long long times[MOST];
	for (int i = 0; i < n; i++) {
		long long start = now();
		int fd = dial();
		one_byte(fd);
		times[i] = now() - start;
		close(fd);
	}
	qsort(times, n, sizeof times[0], compare);
	return times[n / 2];
}

/* denied is how long the kernel takes to refuse, the median, or with at when it was asked. */
static long long denied(int n, int at) {
	static long long times[MOST];
	for (int i = 0; i < n; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		long long start = now();
		int got = connect(fd, (struct sockaddr *)&to, sizeof to);
		times[i] = at ? start : now() - start;
		if (fd < 0 || got == 0 || errno != EACCES)
			err(1, "not denied: %s port %d", inet_ntoa(to.sin_addr), ntohs(to.sin_port));
		close(fd);
	}
	qsort(times, n, sizeof times[0], compare);
	return times[n / 2];
}

static void down(long long left) {
	int fd = dial();
	for (ssize_t n; left > 0; left -= n)
		if ((n = recv(fd, buffer, BUFFER, 0)) <= 0)
			err(1, "%lld bytes are missing", left);
	close(fd);
}

static void up(long long left) {
	int fd = dial();
	for (ssize_t n; left > 0; left -= n)
		if ((n = send(fd, buffer, left < BUFFER ? left : BUFFER, MSG_NOSIGNAL)) <= 0)
			err(1, "%lld bytes could not be sent", left);
	shutdown(fd, SHUT_WR);
	one_byte(fd);
	close(fd);
}

/* http has as many requests under way as there are clients, until n are answered. */
static void http(int n) {
	struct pollfd clients[CLIENTS];
	size_t had[CLIENTS] = {0};
	char request[128];
	int length = snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: bench.test:%d\r\nAccept: */*\r\n\r\n", ntohs(to.sin_port));
	int asked = 0, answered = 0;
	size_t whole = 0; /* length of a response, the same for all */

	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = (struct pollfd){.fd = dial(), .events = POLLIN};
		if (send(clients[i].fd, request, length, MSG_NOSIGNAL) != length)
			err(1, "request");
		asked++;
	}
	while (answered < n) {
		if (poll(clients, CLIENTS, -1) < 0)
			err(1, "poll");
		for (int i = 0; i < CLIENTS; i++) {
			if (!clients[i].revents)
				continue;
			ssize_t got = recv(clients[i].fd, buffer, BUFFER - 1, 0);
			if (got <= 0)
				err(1, "no response");
			if (!whole) {
				buffer[got] = 0;
				char *end = strstr(buffer, "\r\n\r\n");
				if (strncmp(buffer, "HTTP/1.1 200 ", 13) || !end)
					errx(1, "response: %.200s", buffer);
				whole = end + 4 - buffer + 1024;
			}
			had[i] += got;
			if (had[i] < whole)
				continue;
			had[i] = 0;
			answered++;
			if (asked < n && ++asked && send(clients[i].fd, request, length, MSG_NOSIGNAL) != length)
				err(1, "request");
		}
	}
	for (int i = 0; i < CLIENTS; i++)
		close(clients[i].fd);
}

static int held[MOST], holding;

static void hold(int n) {
	for (int i = 0; i < n && holding < MOST; i++) {
		held[holding] = dial();
		one_byte(held[holding++]);
	}
}

static void drop(void) {
	while (holding > 0)
		close(held[--holding]);
}

static int listening(void) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) < 0 || listen(fd, 1024) < 0 || getsockname(fd, (struct sockaddr *)&at, &size) < 0)
		err(1, "listen");
	printf("%d\n", ntohs(at.sin_port));
	return fd;
}

static void serve(void) {
	struct pollfd from[] = {{.fd = listening(), .events = POLLIN}, {.fd = listening(), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
	fflush(stdout);
	while (poll(from, 3, -1) > 0 && !from[2].revents)
		for (int i = 0; i < 2; i++) {
			int fd = from[i].revents ? accept(from[i].fd, NULL, NULL) : -1;
			if (fd < 0)
				continue;
			long long left = i ? BULK : 1;
			for (ssize_t n; left > 0 && (n = send(fd, buffer, left < BUFFER ? left : BUFFER, MSG_NOSIGNAL)) > 0; left -= n)
				;
			while (recv(fd, buffer, BUFFER, 0) > 0) /* the client closes first */
				;
			close(fd);
		}
}

int main(int argc, char **argv) {
	char line[256], what[16], address[64];
	int port;
	long long n;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (argc == 2 && !strcmp(argv[1], "serve")) {
		serve();
		return 0;
	}
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "%15s %63s %d %lld", what, address, &port, &n) != 4 || n < 1)
			errx(2, "not a command: %s", line);
		to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
		if (!inet_aton(address, &to.sin_addr))
			errx(2, "not an address: %s", address);
		long long start = now(), took = 0;
		if (!strcmp(what, "connect") && n <= MOST)
			took = connects(n);
		else if (!strncmp(what, "denied", 6) && n <= MOST)
			took = denied(n, !strcmp(what, "denied-at"));
		else if (!strcmp(what, "down"))
			down(n);
		else if (!strcmp(what, "up"))
			up(n);
		else if (!strcmp(what, "http"))
			http(n);
		else if (!strcmp(what, "hold"))
			hold(n);
		else if (!strcmp(what, "drop"))
			drop();
		else
			errx(2, "not a command: %s", line);
		printf("%lld\n", took ? took : now() - start);
		fflush(stdout);
	}
	return 0;
}
