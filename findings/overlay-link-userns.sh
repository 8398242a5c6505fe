#!/bin/sh
# A hard link to a file of an overlay's lower layer has another inode number than the file had, when the overlay was
# mounted in a user namespace; mounted by the host's root the two are one.
#
# What one expects: link(2) gives a file one more name, and stat(2) shows one inode by both. overlayfs keeps the number over
# the copy-up ("constant inode numbers", overlayfs.rst), also with the option userxattr, which is what user namespaces use.
#
# What happens: the copy has the number of the upper file, the first name goes on to show that of the lower one until it
# leaves the cache, and the link count is 2 on both. overlayfs writes down where the copy came from
# (user.overlay.origin), but to look that up takes CAP_DAC_READ_SEARCH in the first user namespace
# (ovl_decode_real_fh, fs/overlayfs/namei.c). xino=on changes the device, not this.
#
# Whom it meets: git clone of a local repository in such an overlay compares the numbers before and after link(2), and ends
# with "hardlink different from source". --no-hardlinks works. Tools that find hard links by inode see two files.
#
# Seen with Linux 6.18, git 2.39.5, ext4 below. Needs unprivileged user namespaces, python3 and git.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/show.py" <<'P'
import ctypes, os, subprocess, sys
top = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        e = ctypes.get_errno()
        raise OSError(e, name + ": " + os.strerror(e))
uid, gid = os.getuid(), os.getgid()
NEWUSER, NEWNS = 0x10000000, 0x00020000
call("unshare", NEWUSER | NEWNS)
for name, text in ("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid):
    open("/proc/self/" + name, "w").write(text)
for d in "lower/repo", "upper", "work", "merged":
    os.makedirs(os.path.join(top, d))
os.chdir(top)
env = dict(os.environ, HOME=top, GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@a.test", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@a.test")
def git(*args, dir="."):
    return subprocess.run(["git"] + list(args), cwd=dir, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
open("lower/file", "w").write("x"); open("lower/repo/file", "w").write("x")
for args in ("init", "-q"), ("add", "."), ("commit", "-qm", "x"):
    assert git(*args, dir="lower/repo").returncode == 0
call("mount", b"none", b"merged", b"overlay", 0, b"lowerdir=lower,upperdir=upper,workdir=work,userxattr")
os.chdir("merged")
before = os.stat("file")
os.link("file", "link")
first, second = os.stat("file"), os.stat("link")
print("kept" if first.st_ino == before.st_ino else "changed", "same" if first.st_ino == second.st_ino else "different", first.st_nlink, second.st_nlink)
clone = git("clone", "-q", "repo", "clone")
print(clone.returncode, "different from source" in clone.stdout)
print(git("clone", "-q", "--no-hardlinks", "repo", "copy").returncode)
P
got=$(python3 "$dir/show.py" "$dir/t")
want='kept different 2 2
128 True
0'
uname -r
git --version
printf '%s\n' "$got"
[ "$got" = "$want" ] || { echo "it is no more as this file says" >&2; exit 1; }
