// The same as ../resolve, with the C library that it is compiled with.
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *to;
	struct timespec start, end;
	clock_gettime(CLOCK_MONOTONIC, &start);
	int err = getaddrinfo(argv[1], argv[2], &hints, &to);
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("looked up in %ld ms\n", (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000);
	if (err) {
		puts(gai_strerror(err));
		return 1;
	}
	int s = socket(to->ai_family, to->ai_socktype, to->ai_protocol);
	if (s < 0 || connect(s, to->ai_addr, to->ai_addrlen))
		return fail("connect");
	char host[NI_MAXHOST] = "", text[1000];
	getnameinfo(to->ai_addr, to->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
	int n = snprintf(text, sizeof text, "GET / HTTP/1.0\r\nHost: %s:%s\r\n\r\n", argv[1], argv[2]);
	if (write(s, text, n) != n)
		return fail("write");
	n = read(s, text, sizeof text - 1);
	if (n < 0)
		return fail("read");
	text[n] = 0;
	printf("reached %s: %s\n", host, text);
	return 0;
}
