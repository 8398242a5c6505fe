package sys

import (
	"os"
	"unsafe"
)

// SetTitle writes name over the first argument of this process, as far as that is long: what /proc/PID/cmdline shows.
// os.Args[0] lies where the kernel has put the arguments (runtime, goargs), so it changes as well.
func SetTitle(name string) {
	first := unsafe.Slice(unsafe.StringData(os.Args[0]), len(os.Args[0]))
	for n := copy(first, name); n < len(first); n++ {
		first[n] = ' ' // a NUL would be an argument more
	}
}
