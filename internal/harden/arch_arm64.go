package harden

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var refusedHere []uint32

// readersHere are the older forms of readers, which this architecture does not have.
var readersHere []uint32
