// Package guest is hutch-init: PID 1 of a sandbox. It reaps, starts commands on
// the file descriptors it is handed, and signals them. DESIGN.md walks through
// an exec.
//
// It shares the sandbox with hostile processes of its own uid, so it trusts
// hutchd (the other end of the channel) and nothing else: files of the image
// are parsed with bounds, and no child can make it wait.
package guest
