// Package supervisor answers the system calls that a sandbox's seccomp filter does not decide by itself
// (seccomp_unotify(2)). It is a thread of PID 1. It reports what is refused, foresees in debug mode what file
// permissions refuse, makes names where only PID 1 may, moves folders that overlayfs cannot, and answers for ids that
// the sandbox has not got. runtime/guest/DESIGN.md has a section on each.
//
// All that it reads of a caller is hostile: its memory, its names in /proc, its folders. So what is checked is opened
// first, and what was read counts only while the call still waits.
package supervisor
