package seccomp

import "golang.org/x/sys/unix"

// recent are calls newer than the oldest libseccomp in use (2.5.4, which knows
// Linux 5.17), so that a profile means the same whatever library compiled it.
// Since 424 a call has the same number on every architecture.
var recent = map[string]int{
	"set_mempolicy_home_node": unix.SYS_SET_MEMPOLICY_HOME_NODE,
	"cachestat":               unix.SYS_CACHESTAT,
	"fchmodat2":               unix.SYS_FCHMODAT2,
	"map_shadow_stack":        unix.SYS_MAP_SHADOW_STACK,
	"futex_wake":              unix.SYS_FUTEX_WAKE,
	"futex_wait":              unix.SYS_FUTEX_WAIT,
	"futex_requeue":           unix.SYS_FUTEX_REQUEUE,
	"statmount":               unix.SYS_STATMOUNT,
	"listmount":               unix.SYS_LISTMOUNT,
	"lsm_get_self_attr":       unix.SYS_LSM_GET_SELF_ATTR,
	"lsm_set_self_attr":       unix.SYS_LSM_SET_SELF_ATTR,
	"lsm_list_modules":        unix.SYS_LSM_LIST_MODULES,
	"mseal":                   unix.SYS_MSEAL,
	"setxattrat":              unix.SYS_SETXATTRAT,
	"getxattrat":              unix.SYS_GETXATTRAT,
	"listxattrat":             unix.SYS_LISTXATTRAT,
	"removexattrat":           unix.SYS_REMOVEXATTRAT,
	"open_tree_attr":          unix.SYS_OPEN_TREE_ATTR,
	"file_getattr":            unix.SYS_FILE_GETATTR,
	"file_setattr":            unix.SYS_FILE_SETATTR,
	"listns":                  unix.SYS_LISTNS,
	"rseq_slice_yield":        unix.SYS_RSEQ_SLICE_YIELD,
}
