// Package netd is hutch-netd: it puts the eBPF programs of netfilter/bpf/program in force in
// one cgroup of its caller's, hands back their maps, and ends. It is the only part of hutch
// with rights that its caller lacks (CAP_BPF and CAP_NET_ADMIN, of its file), so all that
// the caller controls (arguments, environment, fds, what is sent) is hostile.
// DESIGN.md has the argument for each step.
package netd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/netfilter/bpf/program"
	"github.com/hutch-sh/hutch/netfilter/netd/netdapi"
)

// Exit statuses; what went wrong is in the reply.
const (
	exitDone    = 0
	exitRefused = 1
	exitAlone   = 2 // there is nobody to answer
)

// Main serves the request on fd 3. It returns the exit status.
func Main() int {
	if err := checkSocket(netdapi.Socket); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-netd is started by hutch, for eBPF:", err)
		return exitAlone
	}
	set, err := serve(netdapi.Socket)
	reply := replyTo(err)
	var maps []*os.File
	if err == nil {
		reply.Errnos = set.Errnos
		if maps, err = set.Files(); err != nil {
			reply = replyTo(err)
		}
	}
	if err := send(netdapi.Socket, reply, maps); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-netd:", err)
		return exitAlone
	}
	if reply.Code != netdapi.OK {
		return exitRefused
	}
	return exitDone // all fds close
}

// serve does the one thing there is to do.
func serve(socket int) (*program.Set, error) {
	if err := confine(); err != nil {
		discard(socket)
		return nil, err
	}
	cgroup, err := receive(socket)
	if err != nil {
		return nil, err
	}
	level, err := check(cgroup)
	if err != nil {
		return nil, err
	}
	set, err := program.Load(level + 1) // sandboxes are one below
	if err != nil {
		return nil, err
	}
	if err := usable(set); err != nil { // before anything is in force that nobody could then allow
		return nil, err
	}
	return set, set.Attach(cgroup)
}

// usable says whether the maps are of use to somebody without any right, on a thread that
// has none.
func usable(set *program.Set) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			result <- fmt.Errorf("give up all capabilities of a thread: %w", err)
			return
		}
		result <- set.TryMaps()
	}()
	err := <-result
	if errors.Is(err, unix.EPERM) {
		return refuse(netdapi.MapsClosed, err)
	}
	return err
}

// initialUserNamespace is the inode of that namespace in /proc (PROC_USER_INIT_INO,
// linux/proc_ns.h).
const initialUserNamespace = 0xEFFFFFFD

// confine gives up what is not needed, which is all when started by root, and explains
// what is missing.
func confine() error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &st); err != nil {
		return fmt.Errorf("find out the user namespace: %w", err)
	}
	if st.Ino != initialUserNamespace {
		return refuse(netdapi.UserNamespace, nil)
	}
	err := sys.KeepCapabilities(unix.CAP_BPF, unix.CAP_NET_ADMIN)
	if err == nil {
		return nil
	}
	if on, perr := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); perr == nil && on == 1 {
		return refuse(netdapi.NoNewPrivs, err)
	}
	return refuse(netdapi.NoRights, err)
}

// check says how deep a cgroup is, if the caller may have programs in it.
func check(cgroup *os.File) (level uint32, err error) {
	fd := int(cgroup.Fd())
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("look at the file system of the cgroup: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("look at the cgroup: %w", err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, refuse(netdapi.NotCgroup, nil)
	}
	level, err = program.Level(cgroup)
	switch caller := uint32(unix.Getuid()); {
	case errors.Is(err, program.ErrHidden):
		return 0, refuse(netdapi.Hidden, nil)
	case err != nil:
		return 0, err
	case level == 0:
		return 0, refuse(netdapi.Root, nil)
	case caller != 0 && st.Uid != caller: // root's monitor made it for the daemon's uid
		return 0, refuse(netdapi.NotOwner, nil)
	case st.Mode&0o022 != 0:
		return 0, refuse(netdapi.Writable, nil)
	}
	return level, nil
}

// refusal carries a code through errors.
type refusal struct {
	code netdapi.Code
	why  error // may be nil
}

func refuse(code netdapi.Code, why error) error { return &refusal{code, why} }

func (r *refusal) Error() string { return fmt.Sprintf("refused with code %d: %v", r.code, r.why) }

// replyTo makes a reply of an error.
func replyTo(err error) netdapi.Reply {
	var reply netdapi.Reply
	if err == nil {
		return reply
	}
	reply.Code, reply.Text = netdapi.Kernel, err.Error()
	var r *refusal
	switch {
	case errors.As(err, &r):
		reply.Code, reply.Text, err = r.code, "", r.why
		if r.why != nil {
			reply.Text = r.why.Error()
		}
	case errors.Is(err, program.ErrAttached):
		reply.Code, reply.Text = netdapi.Attached, ""
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		reply.Errno = errno
	}
	return reply
}
