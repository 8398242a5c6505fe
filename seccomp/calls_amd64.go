package seccomp

import _ "embed"

// callNumbers are the numbers and names of system calls, a line each; `go test -run Golden
// -update` writes it.
//
//go:embed calls_amd64.txt
var callNumbers string
