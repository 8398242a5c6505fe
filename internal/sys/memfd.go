package sys

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MemfdKind says what a sealed memfd may be used for.
type MemfdKind int

const (
	// MemfdData can never be executed.
	MemfdData MemfdKind = iota
	// MemfdProgram can be executed as /proc/self/fd/N.
	MemfdProgram
)

// memfdSeals make the content final. libcontainer takes a binary with exactly
// these for safe against CVE-2019-5736 (a container that overwrites the runtime
// through /proc/PID/exe) and does not copy it again.
const memfdSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// SealedMemfd copies src to a memfd that nobody can change any more
// (memfd_create(2)). name is shown in /proc/PID/fd and /proc/PID/exe and may be
// at most 249 bytes. The file is close-on-exec, its offset is 0 and it is the
// caller's; whoever shares the description shares the offset, so readers should
// use pread or ReopenReadOnly.
func SealedMemfd(name string, src io.Reader, kind MemfdKind) (*os.File, error) {
	f, err := memfd(name, kind)
	if err != nil {
		return nil, err
	}
	if err := fillAndSeal(f, src); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("memfd %s: %w", name, err)
	}
	return f, nil
}

// memfd makes an empty one. Since Linux 6.3 (commit 105ff5339f49) a caller must
// say whether it will be executed, else the kernel logs a warning or, by
// vm.memfd_noexec, refuses; before, the flags are unknown and give EINVAL.
func memfd(name string, kind MemfdKind) (*os.File, error) {
	flag := unix.MFD_NOEXEC_SEAL
	if kind == MemfdProgram {
		flag = unix.MFD_EXEC
	}
	const base = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, base|flag)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, base)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// sealTries bounds the wait for pages to settle.
const sealTries = 20

func fillAndSeal(f *os.File, src io.Reader) error {
	if _, err := io.Copy(f, src); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return SealMemfd(int(f.Fd()))
}

// SealMemfd makes the content of a memfd that was made with MFD_ALLOW_SEALING final.
func SealMemfd(fd int) error {
	var err error
	for range sealTries {
		// EBUSY: a page just written is held by somebody else, the kernel's own batches
		// most likely, longer than it waits by itself, 0.15 s (mm/memfd.c).
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfdSeals); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	return nil
}

// IsSealed reports whether f is a memfd whose content cannot change.
func IsSealed(f *os.File) bool {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&memfdSeals == memfdSeals
}

// ReopenReadOnly opens f's file again: a description of its own, with offset 0
// and no way to write. It needs /proc.
func ReopenReadOnly(f *os.File) (*os.File, error) {
	re, err := os.OpenFile(FDPath(f), os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reopen %s: %w", f.Name(), err)
	}
	return re, nil
}

// FDPath is the name of f's file for system calls that take a path, valid in
// this process while f is open.
func FDPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
