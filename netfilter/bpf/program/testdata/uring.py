"""uring.py ADDRESS PORT prints what io_uring's connect answers: 0, or an errno below it.

Offsets and numbers are linux/io_uring.h's.
"""
import ctypes, mmap, os, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
SETUP, ENTER, CONNECT, GETEVENTS = 425, 426, 16, 1


def syscall(*args):
    got = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if got < 0:
        sys.exit("io_uring: " + os.strerror(ctypes.get_errno()))
    return got


params = ctypes.create_string_buffer(120)
ring = syscall(SETUP, 8, params)
sq_entries, cq_entries = struct.unpack_from("II", params)
sq_tail, sq_array = struct.unpack_from("I", params, 44)[0], struct.unpack_from("I", params, 64)[0]
cqes = struct.unpack_from("I", params, 100)[0]
sq = mmap.mmap(ring, sq_array + 4 * sq_entries, offset=0)
cq = mmap.mmap(ring, cqes + 16 * cq_entries, offset=0x8000000)
sqes = mmap.mmap(ring, 64 * sq_entries, offset=0x10000000)

s = socket.socket()
to = ctypes.create_string_buffer(struct.pack("=H", socket.AF_INET) + struct.pack("!H", int(sys.argv[2])) + socket.inet_aton(sys.argv[1]) + bytes(8), 16)
sqes[0:64] = struct.pack("=BBHiQQ", CONNECT, 0, 0, s.fileno(), 16, ctypes.addressof(to)).ljust(64, b"\0")
sq[sq_array : sq_array + 4] = struct.pack("=I", 0)
sq[sq_tail : sq_tail + 4] = struct.pack("=I", 1)
syscall(ENTER, ring, 1, 1, GETEVENTS, 0, 0)
print(struct.unpack_from("=i", cq, cqes + 8)[0])
