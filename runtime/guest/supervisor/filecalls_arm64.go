package supervisor

import "golang.org/x/sys/unix"

// nativeArch is this architecture's in struct seccomp_data.
const nativeArch = unix.AUDIT_ARCH_AARCH64
