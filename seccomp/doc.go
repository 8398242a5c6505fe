// Package seccomp holds the system call policies of a sandbox as tables with a
// reason for every rule, and compiles them with libseccomp to the BPF that
// seccomp(2) loads.
//
// The tables are plain Go and need no C. Compile and Cached need cgo and
// libseccomp; only hutch-launch links them and hands the bytes over, so that the
// processes inside a sandbox load a program without being able to make one.
// Installing one is sys.InstallSeccomp.
//
// DESIGN.md says how the tables are read and why they are as they are.
package seccomp
