package sys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MinLandlock is the first Landlock ABI whose domains commands can live in: 2 lets files be moved
// between folders, 3 (Linux 6.2) restricts truncation.
const MinLandlock = 3

// LandlockABI is the kernel's Landlock version (landlock_create_ruleset(2), flag
// LANDLOCK_CREATE_RULESET_VERSION): ENOSYS or EOPNOTSUPP where there is none.
func LandlockABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock_create_ruleset(LANDLOCK_CREATE_RULESET_VERSION): %w", errno)
	}
	return int(abi), nil
}

// LandlockRestrict puts the calling thread, and what it starts from then on, in a new Landlock
// domain: what set names is refused but for what rules allow (landlock(7)). The caller has locked
// the thread and set no_new_privs; the rules' fds stay its own. Where it fails nothing
// has changed.
func LandlockRestrict(set *unix.LandlockRulesetAttr, rules []unix.LandlockPathBeneathAttr) error {
	// Older kernels take a longer struct when the rest is zero.
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(set)),
		unsafe.Sizeof(*set), 0)
	if errno != 0 {
		return fmt.Errorf("landlock_create_ruleset(fs %#x, scoped %#x): %w", set.Handled_access_fs, set.Scoped, errno)
	}
	defer unix.Close(int(ruleset))
	for i := range rules {
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH,
			uintptr(unsafe.Pointer(&rules[i])), 0, 0, 0)
		if errno != 0 {
			return fmt.Errorf("landlock_add_rule(%#x): %w", rules[i].Allowed_access, errno)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return nil
}
