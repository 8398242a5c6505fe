package netd

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/netfilter/bpf/program"
	"github.com/hutch-sh/hutch/netfilter/netd/netdapi"
)

// TestRequest: exactly one message is a request.
func TestRequest(t *testing.T) {
	version, one := []byte{netdapi.Version}, unix.UnixRights(7)
	for _, tt := range []struct {
		name   string
		b, oob []byte
		flags  int
		good   bool
	}{
		{"good", version, one, 0, true},
		{"empty", nil, one, 0, false},
		{"two bytes", []byte{netdapi.Version, 0}, one, 0, false},
		{"another version", []byte{netdapi.Version + 1}, one, 0, false},
		{"no fd", version, nil, 0, false},
		{"two fds", version, unix.UnixRights(7, 8), 0, false},
		{"two messages", version, append(unix.UnixRights(7), unix.UnixRights(8)...), 0, false},
		{"credentials", version, unix.UnixCredentials(&unix.Ucred{Pid: 1}), 0, false},
		{"truncated", version, one, unix.MSG_TRUNC, false},
		{"fds truncated", version, one, unix.MSG_CTRUNC, false},
	} {
		fd, err := request(tt.b, tt.oob, tt.flags)
		if (err == nil) != tt.good || (tt.good && fd != 7) {
			t.Errorf("%s: fd %d, %v", tt.name, fd, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte{netdapi.Version}, unix.UnixRights(7), 0)
	f.Add([]byte{netdapi.Version}, unix.UnixRights(7, 8), 0)
	f.Add([]byte{}, unix.UnixCredentials(&unix.Ucred{Pid: 1}), 0)
	f.Fuzz(func(t *testing.T, b, oob []byte, flags int) {
		var fd int
		var err error
		cost.Input(t, oob, func(oob []byte) { fd, err = request(b, oob, flags) })
		// The last message may lack its padding.
		if want := unix.UnixRights(fd); err == nil && (string(b) != string([]byte{netdapi.Version}) ||
			!bytes.HasPrefix(want, oob[:min(len(oob), 20)])) {
			t.Errorf("%x with %x was taken for fd %d", b, oob, fd)
		}
	})
}

// TestReplyTo: every error becomes a code, with its errno.
func TestReplyTo(t *testing.T) {
	for _, tt := range []struct {
		err   error
		code  netdapi.Code
		errno unix.Errno
	}{
		{nil, netdapi.OK, 0},
		{refuse(netdapi.Root, nil), netdapi.Root, 0},
		{refuse(netdapi.NoRights, fmt.Errorf("capset: %w", unix.EPERM)), netdapi.NoRights, unix.EPERM},
		{fmt.Errorf("%w (2 at x)", program.ErrAttached), netdapi.Attached, 0},
		{fmt.Errorf("load: %w", unix.EINVAL), netdapi.Kernel, unix.EINVAL},
		{errors.New("something else"), netdapi.Kernel, 0},
	} {
		if got := replyTo(tt.err); got.Code != tt.code || got.Errno != tt.errno {
			t.Errorf("%v: %+v, want code %d, errno %d", tt.err, got, tt.code, tt.errno)
		}
	}
}
