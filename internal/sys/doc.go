// Package sys holds the raw system calls that golang.org/x/sys does not wrap, or
// not in the form the project needs: the one place where unsafe is allowed. Each
// function names its man page or kernel source, says what happens on EINTR, and
// makes file descriptors close-on-exec.
package sys
