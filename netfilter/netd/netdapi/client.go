package netdapi

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/bpf"
)

// Attachment is what hutch-netd has put in force.
type Attachment struct {
	// Maps are those of bpf.Open, the caller's.
	Maps   []*os.File
	Errnos bool
}

// timeout bounds what takes hutch-netd some milliseconds, most of them the verifier's.
const timeout = 20 * time.Second

// Attach starts hutch-netd, the file at path, for a cgroup. It must be called outside of user
// namespaces and of no_new_privs. What hutch-netd refuses is a *Refusal.
func Attach(path string, cgroup *os.File) (*Attachment, error) { return attach(path, nil, cgroup) }

func attach(path string, attr *syscall.SysProcAttr, cgroup *os.File) (_ *Attachment, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair for hutch-netd: %w", err)
	}
	near, far := pair[0], os.NewFile(uintptr(pair[1]), "hutch-netd")
	defer func() { _ = unix.Close(near) }()
	p, err := start(path, attr, far)
	_ = far.Close() // the only other end is hutch-netd's now: its death is an end of file
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = p.Kill() // it may have ended
		}
		_, werr := p.Wait()
		err = errors.Join(err, werr)
	}()
	if err := ask(near, cgroup); err != nil {
		return nil, err
	}
	return answer(near)
}

func start(path string, attr *syscall.SysProcAttr, socket *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("start hutch-netd: %w", err)
	}
	defer null.Close()
	p, err := os.StartProcess(path, []string{"hutch-netd"}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, socket}, Sys: attr,
	})
	if err != nil {
		return nil, fmt.Errorf("start hutch-netd: %w", err)
	}
	return p, nil
}

func ask(socket int, cgroup *os.File) error {
	rc, err := cgroup.SyscallConn()
	if err != nil {
		return fmt.Errorf("ask hutch-netd: %w", err)
	}
	var serr error
	err = rc.Control(func(fd uintptr) {
		serr = unix.Sendmsg(socket, []byte{Version}, unix.UnixRights(int(fd)), nil, unix.MSG_NOSIGNAL)
	})
	if err := errors.Join(err, serr); err != nil {
		return fmt.Errorf("ask hutch-netd: %w", err)
	}
	return nil
}

func answer(socket int) (*Attachment, error) {
	left := unix.NsecToTimeval(int64(timeout))
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &left); err != nil {
		return nil, fmt.Errorf("wait for hutch-netd: %w", err)
	}
	b, oob := make([]byte, header+maxText+1), make([]byte, unix.CmsgSpace(4*(bpf.Count+1)))
	n, oobn, flags, err := receive(socket, b, oob)
	if err != nil {
		return nil, fmt.Errorf("wait for hutch-netd: %w", err)
	}
	a := &Attachment{Maps: received(oob[:oobn])}
	reply, err := Decode(b[:n])
	switch {
	case n == 0:
		err = errors.New("hutch-netd ended without an answer")
	case err != nil:
	case reply.Code != OK:
		err = &reply.Refusal
	case flags&unix.MSG_CTRUNC != 0 || len(a.Maps) != bpf.Count:
		err = fmt.Errorf("hutch-netd sent %d maps, want %d: too many files are open, or it is not this build's",
			len(a.Maps), bpf.Count)
	}
	if err != nil {
		for _, f := range a.Maps {
			_ = f.Close()
		}
		return nil, err
	}
	a.Errnos = reply.Errnos
	return a, nil
}

func receive(socket int, b, oob []byte) (n, oobn, flags int, err error) {
	for {
		n, oobn, flags, _, err = unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			return n, oobn, flags, err
		}
	}
}

// received are the fds of a message.
func received(oob []byte) []*os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "eBPF map"))
		}
	}
	return files
}
