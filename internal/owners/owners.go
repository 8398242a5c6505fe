// Package owners is about the owner that a file should have where there is only one id: an extended attribute of the
// file has it.
package owners

import (
	"fmt"
	"strconv"
	"strings"
)

// Xattr is that attribute. Programs in a sandbox can write it as well.
const Xattr = "user.hutch.owner"

// MaxLen is more than any value has, in bytes.
const MaxLen = 32

// Format is the value for an owner.
func Format(uid, gid uint32) []byte { return fmt.Appendf(nil, "%d:%d", uid, gid) }

// Parse reads what Format has written.
func Parse(value []byte) (uid, gid uint32, ok bool) {
	u, g, _ := strings.Cut(string(value), ":")
	uid, uok := id(u)
	gid, gok := id(g)
	if !uok || !gok {
		return 0, 0, false
	}
	return uid, gid, true
}

// id is a decimal number, but for (uid_t)-1, which is nobody's.
func id(text string) (uint32, bool) {
	v, err := strconv.ParseUint(text, 10, 32)
	return uint32(v), err == nil && v != 1<<32-1
}
