package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

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
	var unreachable <-chan struct{}
	if msg.Keep {
		if unreachable, err = watchRemoval(msg.Socket); err != nil {
			return nil, err
		}
	}
	if err := makeMounts(msg.StateDir, msg.Mount); err != nil {
		return nil, err
	}
	if err := becomeRoot(msg.SetGroups); err != nil {
		return nil, err
	}
	if err := shareInotify(); err != nil {
		return nil, err
	}
	payload, err := loadPayload(c, msg.Mount, files[0])
	if err != nil {
		return nil, err
	}
	undo.Add(payload.close)
	kids := newChildren()
	l := &launcher{server: newServer(payload, kids), children: kids, keep: msg.Keep, unreachable: unreachable,
		held: files}
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

// shareInotify leaves the caller's own programs a quarter of its inotify instances: what
// this user namespace and those below it have, sandboxes included, counts as the caller's
// (namespaces(7), /proc/sys/user).
func shareInotify() error {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return nil // a kernel without inotify
	}
	var all int
	if _, err := fmt.Sscan(string(text), &all); err != nil {
		return fmt.Errorf("limit of inotify instances: %w", err)
	}
	fd, err := unix.Open("/proc/sys/user/max_inotify_instances", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("limit inotify instances: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(strconv.Itoa(all-all/4))); err != nil {
		return fmt.Errorf("limit inotify instances: %w", err)
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
			switch aerr {
			case nil:
			case unix.ECONNABORTED, unix.EINTR:
				continue // it has gone again
			default: // no fd is free
				<-time.After(acceptPause)
				continue
			}
			if conn, err := packet.New(os.NewFile(uintptr(nfd), "monitor")); err == nil {
				came <- conn
			}
		}
	}()
	return came, nil
}

// acceptPause is how long a monitor waits when this process has run out of fds.
const acceptPause = 50 * time.Millisecond

// watchRemoval returns a channel that is closed when the file at path, or its folder, has
// been removed. It is called while this process may walk there. Where the user's inotify
// instances are used up, the channel never closes: sandboxes that nobody can come back to
// then have to be killed by hand.
func watchRemoval(path string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	watch := os.NewFile(uintptr(fd), "inotify")
	const gone = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), gone|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", path, err), watch.Close())
	}
	removed := make(chan struct{})
	go func() { // for the life of the process
		defer watch.Close()
		buf := make([]byte, 16*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
		for {
			n, err := watch.Read(buf)
			if err != nil {
				return
			}
			if removes(buf[:n], filepath.Base(path)) {
				close(removed)
				return
			}
		}
	}()
	return removed, nil
}

// removes looks for the end of name, or of its folder, in inotify(7) events: wd, mask,
// cookie and len, of 4 bytes each, and the name, padded with zeros.
func removes(events []byte, name string) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if size > len(events) {
			return false
		}
		which, _, _ := strings.Cut(string(events[unix.SizeofInotifyEvent:size]), "\x00")
		if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0 || which == name {
			return true
		}
		events = events[size:]
	}
	return false
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
