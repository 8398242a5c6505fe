package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// boot waits for the monitor's first message, makes the mount namespace and becomes
// uid 0.
func boot(c Config, monitor *packet.Conn) (_ *launcher, err error) {
	var msg launchapi.Boot
	files, err := monitor.Recv(&msg)
	if err != nil {
		return nil, fmt.Errorf("wait for the monitor: %w", err)
	}
	var undo cleanup.Stack
	defer undo.Run(&err)
	undo.Add(func() error { packet.CloseAll(files); return nil })
	needed := 1
	if msg.Keep {
		needed = 2
	}
	if len(files) < needed {
		return nil, fmt.Errorf("boot message has %d fds, want %d", len(files), needed)
	}
	if err := makeMounts(msg.StateDir, msg.Mount); err != nil {
		return nil, err
	}
	if err := becomeRoot(msg.SetGroups); err != nil {
		return nil, err
	}
	payload, err := loadPayload(c, msg.Mount, files[0])
	if err != nil {
		return nil, err
	}
	undo.Add(payload.close)
	kids := newChildren()
	l := &launcher{server: newServer(payload, kids), children: kids, keep: msg.Keep, held: files}
	if msg.Keep {
		if l.monitors, err = listen(files[1]); err != nil {
			return nil, err
		}
	}
	undo.Release()
	return l, nil
}

// makeMounts prepares the mount namespace while this process still has the
// caller's kernel uid, which may be the only one that can walk to stateDir.
func makeMounts(stateDir, mount string) error {
	// Slave: what the host mounts later appears here, nothing made here appears on
	// the host. Mounts of a less privileged mount namespace are slaves already, but
	// mount_namespaces(7) promises that only for shared ones.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slaves of the host's: %w", err)
	}
	tree, err := sys.CloneTree(stateDir)
	if err != nil {
		return api.Errorf(api.FailedPrecondition, "open state folder: %w", err).
			WithHint("the state folder must exist, and the user who starts hutch must be able to walk to it")
	}
	defer tree.Close()
	if err := sys.AttachTree(tree, mount); err != nil {
		return api.Errorf(api.FailedPrecondition, "mount state folder: %w", err).
			WithHint("the runtime folder must exist, and the user who starts hutch must be able to walk to it")
	}
	return nil
}

// becomeRoot makes all threads uid and gid 0 of the user namespace, without
// supplementary groups where that is allowed.
func becomeRoot(setGroups bool) error {
	if setGroups {
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("drop supplementary groups: %w", err)
		}
	}
	if err := syscall.Setresgid(0, 0, 0); err != nil {
		return fmt.Errorf("become gid 0: %w", err)
	}
	if err := syscall.Setresuid(0, 0, 0); err != nil {
		return fmt.Errorf("become uid 0: %w", err)
	}
	// A change of the kernel uid makes a process non-dumpable, and its /proc/PID/fd
	// the host root's, where libcontainer's child must open the network namespace.
	// Nobody gains by it: other processes of this kernel uid are in nested user
	// namespaces, and ptrace(2) needs CAP_SYS_PTRACE in this one.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set dumpable: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// listen accepts the monitors that come after this one, on a socket which is only
// for its user: the state root is theirs alone.
func listen(bound *os.File) (<-chan *packet.Conn, error) {
	fd, err := unix.FcntlInt(bound.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		// The one who listens is whose credentials a client sees (unix(7)).
		err = errors.Join(unix.SetNonblock(fd, true), unix.Listen(fd, 4))
	}
	if err != nil {
		return nil, fmt.Errorf("listen for monitors: %w", err)
	}
	listener := os.NewFile(uintptr(fd), "monitors")
	rc, err := listener.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("listen for monitors: %w", err)
	}
	came := make(chan *packet.Conn)
	go func() { // for the life of the process
		for {
			var nfd int
			var aerr error
			err := rc.Read(func(fd uintptr) bool {
				nfd, _, aerr = unix.Accept4(int(fd), unix.SOCK_CLOEXEC)
				return aerr != unix.EAGAIN
			})
			if err != nil {
				return
			}
			if aerr != nil {
				continue // it has gone again
			}
			if conn, err := packet.New(os.NewFile(uintptr(nfd), "monitor")); err == nil {
				came <- conn
			}
		}
	}()
	return came, nil
}

// readAll returns f's content, whatever its offset.
func readAll(f *os.File) (io.Reader, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New(f.Name() + " is not a regular file")
	}
	return io.NewSectionReader(f, 0, st.Size()), nil
}
