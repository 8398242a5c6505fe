#!/bin/sh
# A folder that only one layer of an overlay has is listed as it is there, whiteouts included: readdir names files that stat
# does not find.
#
# What one expects: overlayfs hides whiteouts. It does for folders that it merges of several layers.
#
# What happens: a folder of one lower layer alone is not merged, and its entries are passed on unfiltered (ovl_iterate,
# fs/overlayfs/readdir.c), while a lookup of the whiteout's name fails with ENOENT. ls, find, cp -r and tar then say "cannot
# access" and exit 1. The kernel filters such a folder, too, when it may be "impure" or carries the attribute overlay.origin,
# which whoever unpacks layers can set: an empty one will do.
#
# Whom it meets: images whose layers were rebased, squashed or built by hand hold a whiteout for what no layer below has;
# unpacked as they are, every listing of that folder fails.
#
# Seen with Linux 6.18, ext4 and tmpfs below. Needs unprivileged user namespaces and python3.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/show.py" <<'P'
import ctypes, os, stat, sys
top = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        e = ctypes.get_errno()
        raise OSError(e, name + ": " + os.strerror(e))
uid, gid = os.getuid(), os.getgid()
call("unshare", 0x10000000 | 0x00020000) # CLONE_NEWUSER | CLONE_NEWNS
for name, text in ("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid):
    open("/proc/self/" + name, "w").write(text)
for d in "bottom/both", "lower/one", "lower/marked", "lower/both", "upper", "work", "merged":
    os.makedirs(os.path.join(top, d))
os.chdir(top)
for d in "one", "marked", "both":
    os.mknod("lower/%s/gone" % d, stat.S_IFCHR, 0) # a whiteout
    open("lower/%s/kept" % d, "w").close()
os.setxattr("lower/marked", "user.overlay.origin", b"")
call("mount", b"none", b"merged", b"overlay", 0, b"lowerdir=lower:bottom,upperdir=upper,workdir=work,userxattr")
for d in "both", "one", "marked":
    missing = [n for n in os.listdir("merged/" + d) if not os.path.lexists("merged/%s/%s" % (d, n))]
    print(d, sorted(os.listdir("merged/" + d)), missing)
P
got=$(python3 "$dir/show.py" "$dir/t")
want="both ['kept'] []
one ['gone', 'kept'] ['gone']
marked ['kept'] []"
uname -r
printf '%s\n' "$got"
[ "$got" = "$want" ] || { echo "it is no more as this file says" >&2; exit 1; }
