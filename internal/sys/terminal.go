package sys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ReadMaster reads from a terminal's master by read; EIO says that no slave is open and
// that nothing is left.
//
// The kernel's own says so too early: it looks for input, and then whether a slave is
// open (drivers/tty/n_tty.c, n_tty_read). Of a program that writes and ends between the
// two only a second read returns the last words.
func ReadMaster(read func(p []byte) (int, error), p []byte) (int, error) {
	n, err := read(p)
	if errors.Is(err, unix.EIO) {
		n, err = read(p)
	}
	return n, err
}

// ReadMasterFD is ReadMaster by read(2).
func ReadMasterFD(fd int, p []byte) (int, error) {
	return ReadMaster(func(p []byte) (int, error) { return unix.Read(fd, p) }, p)
}
