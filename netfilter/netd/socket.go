package netd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/netd/netdapi"
)

// patience is how long the request may take: a caller that sends none does not keep a
// process of ours.
const patience = 10 * time.Second

// checkSocket refuses fds that are no socket of the protocol.
func checkSocket(fd int) error {
	for _, want := range []struct{ option, value int }{{unix.SO_DOMAIN, unix.AF_UNIX},
		{unix.SO_TYPE, unix.SOCK_SEQPACKET}} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return fmt.Errorf("fd %d: %w", fd, err)
		}
		if got != want.value {
			return fmt.Errorf("fd %d is a socket of another kind", fd)
		}
	}
	unix.CloseOnExec(fd)
	for option, limit := range map[int]time.Duration{unix.SO_RCVTIMEO: patience, unix.SO_SNDTIMEO: patience} {
		tv := unix.NsecToTimeval(int64(limit))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &tv); err != nil {
			return fmt.Errorf("fd %d: %w", fd, err)
		}
	}
	return nil
}

// maxFDs is one more than a request has, so that a second one is seen; the kernel closes
// what does not fit.
const maxFDs = 2

// receive reads the request.
func receive(socket int) (cgroup *os.File, err error) {
	b, oob := make([]byte, 2), make([]byte, unix.CmsgSpace(4*maxFDs))
	n, oobn, flags := 0, 0, 0
	for {
		n, oobn, flags, _, err = unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, refuse(netdapi.BadRequest, fmt.Errorf("receive it: %w", err))
	}
	fd, err := request(b[:n], oob[:oobn], flags)
	if err != nil {
		return nil, refuse(netdapi.BadRequest, err)
	}
	return os.NewFile(uintptr(fd), "cgroup"), nil
}

// discard takes the request and its fds away unseen. One that is still there when the socket
// closes would take the answer's place at the other end: ECONNRESET (af_unix.c,
// unix_release_sock).
func discard(socket int) {
	for {
		if _, _, err := unix.Recvfrom(socket, make([]byte, 1), 0); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// request decodes a message. It uses none of its fds: those of a refused one close with the
// process.
func request(b, oob []byte, flags int) (fd int, err error) {
	switch {
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return -1, errors.New("it is too long")
	case len(b) != 1:
		return -1, fmt.Errorf("it has %d bytes, want 1", len(b))
	case b[0] != netdapi.Version:
		return -1, fmt.Errorf("it has version %d, this is %d", b[0], netdapi.Version)
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("it has %d control messages, want 1", len(messages))
	}
	if n := len(messages[0].Data); n != 4 { // of one fd; ParseUnixRights trusts the length
		return -1, fmt.Errorf("it has %d bytes of fds, want 4", n)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.New("it has no fd")
	}
	return fds[0], nil
}

// send answers.
func send(socket int, reply netdapi.Reply, maps []*os.File) error {
	var oob []byte
	if len(maps) > 0 {
		var fds []int
		for _, f := range maps {
			fds = append(fds, int(f.Fd()))
		}
		oob = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(socket, reply.Encode(), oob, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
