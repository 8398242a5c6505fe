#!/bin/sh
# A program with musl waits five seconds for a name when the name server answers REFUSED or SERVFAIL at once; with glibc it
# fails at once.
#
# What one expects: a name server that will not answer says REFUSED (RFC 1035), and the client fails. glibc goes to the next
# server of resolv.conf and, where there is none, reports EAI_AGAIN without waiting.
#
# What happens: musl takes an answer for one when its code is NOERROR or NXDOMAIN alone. At SERVFAIL it asks again, up to the
# number of attempts; anything else it drops and waits on, until the time of resolv.conf is over, 5 s by default
# (__res_msend_rc, src/network/res_msend.c). Only NXDOMAIN ends it.
#
# Whom it meets: whoever keeps a container from the network by a name server that refuses. Alpine's apk, curl, git and BusyBox
# hang for seconds for each name, where NXDOMAIN lets them fail at once.
#
# Seen with Linux 6.18, musl 1.2.3 and glibc 2.36. Needs unprivileged user namespaces, python3, a C compiler and musl-gcc
# (Debian: musl-tools).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/look.c" <<'C'
#include <netdb.h>
#include <stdio.h>
#include <time.h>
int main(void)
{
	struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	int failed = getaddrinfo("name.test", "80", &hints, &found) != 0;
	clock_gettime(CLOCK_MONOTONIC, &b);
	puts(failed ? b.tv_sec - a.tv_sec + (b.tv_nsec < a.tv_nsec ? -1 : 0) >= 3 ? "waits" : "at once" : "found");
	return 0;
}
C
cc -D_GNU_SOURCE -o "$dir/glibc" "$dir/look.c"
musl-gcc -D_GNU_SOURCE -static -o "$dir/musl" "$dir/look.c"
cat >"$dir/show.py" <<'P'
import ctypes, fcntl, os, socket, struct, subprocess, sys, threading
top = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
if libc.unshare(0x10000000 | 0x00020000 | 0x40000000) != 0: # CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
for name, text in ("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid):
    open("/proc/self/" + name, "w").write(text)
with socket.socket() as s: # lo up
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 1))
open(top + "/resolv.conf", "w").write("nameserver 127.0.0.1\n")
if libc.mount((top + "/resolv.conf").encode(), os.path.realpath("/etc/resolv.conf").encode(), None, 4096, None) != 0: # MS_BIND
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
code = 0
def serve():
    while True:
        q, who = server.recvfrom(512)
        end = 12
        while q[end]:
            end += q[end] + 1
        server.sendto(q[:2] + bytes([0x81, 0x80 | code]) + q[4:6] + bytes(6) + q[12:end + 5], who)
threading.Thread(target=serve, daemon=True).start()
for code, name in (3, "NXDOMAIN"), (5, "REFUSED"), (2, "SERVFAIL"):
    print(name, *("%s: %s" % (c, subprocess.run([top + "/" + c], stdout=subprocess.PIPE, text=True).stdout.strip()) for c in ("glibc", "musl")), sep=", ")
P
got=$(python3 "$dir/show.py" "$dir")
want='NXDOMAIN, glibc: at once, musl: at once
REFUSED, glibc: at once, musl: waits
SERVFAIL, glibc: at once, musl: waits'
uname -r
printf '%s\n' "$got"
[ "$got" = "$want" ] || { echo "it is no more as this file says" >&2; exit 1; }
