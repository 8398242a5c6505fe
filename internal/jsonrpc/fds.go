package jsonrpc

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// FDs are the fds that came with one request. They belong to the request: what
// nobody took is closed when its handler returns. A nil *FDs has none.
type FDs struct {
	mu     sync.Mutex
	files  []*os.File
	taken  []bool
	closed bool
}

// NewFDs takes ownership of files.
func NewFDs(files []*os.File) *FDs {
	return &FDs{files: files, taken: make([]bool, len(files))}
}

// Len is the number of fds that came, taken or not.
func (s *FDs) Len() int {
	if s == nil {
		return 0
	}
	return len(s.files)
}

// Take hands over the fd with the given index: the caller owns it.
//
// An index may be named twice, as in 2>&1. Each Take after the first duplicates
// the fd, which must still be open: take everything before using anything.
func (s *FDs) Take(index int) (*os.File, error) {
	if index < 0 || index >= s.Len() {
		return nil, api.Errorf(api.InvalidArgument, "fd index %d, but %d fds came with the request", index, s.Len()).
			WithField("fds").WithHint("Send the fds on the sendmsg of the request itself and count from 0.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, api.Errorf(api.Internal, "fd index %d taken after its request ended", index).
			WithHint("This is a bug in hutch; please report it.")
	}
	if !s.taken[index] {
		s.taken[index] = true
		return s.files[index], nil
	}
	dup, err := duplicate(s.files[index])
	if err != nil {
		return nil, api.Errorf(api.ResourceExhausted, "duplicate fd index %d: %w", index, err).
			WithHint("Raise the daemon's limit of open files (ulimit -n).")
	}
	return dup, nil
}

// Close closes the fds that were not taken. It may be called twice.
func (s *FDs) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.files {
		if !s.closed && !s.taken[i] {
			_ = f.Close()
		}
	}
	s.closed = true
}

// duplicate avoids File.Fd, which may change the file description that we share
// with the sender to blocking mode.
func duplicate(f *os.File) (*os.File, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var dup int
	var derr error
	if err := rc.Control(func(fd uintptr) {
		dup, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, derr
	}
	return os.NewFile(uintptr(dup), f.Name()), nil
}
