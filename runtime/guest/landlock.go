package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/supervisor"
)

// starter is the thread of PID 1 that forks all commands when they are to be in a Landlock
// domain. A domain is a thread's, and what that forks inherits it: so the commands of a sandbox
// share one, in which they trace and signal each other as without, and PID 1's other threads
// are in none.
type starter struct {
	abi  int
	jobs chan startJob
	// in says that the thread is in the domain, or about to be.
	in atomic.Bool
	// makes, if it is there, is where the domain has no right to make names.
	makes atomic.Pointer[supervisor.Rules]
}

// guard changes where that is. It must come before the first command.
func (st *starter) guard(makes *supervisor.Rules) error {
	if st.in.Load() {
		return errors.New("a command has run")
	}
	st.makes.Store(makes)
	return nil
}

type startJob struct {
	do   func() error
	done chan<- error
}

// newStarter starts the thread. The domain waits for the first command: its rules are made of
// the files that are the sandbox's then, behind a claim, and nothing hostile has run before.
func newStarter(abi int, makes *supervisor.Rules) (*starter, error) {
	switch have, err := sys.LandlockABI(); {
	case err != nil:
		return nil, err
	case abi > have || abi < sys.MinLandlock:
		return nil, fmt.Errorf("Landlock ABI %d: this kernel's is %d, and at least %d is needed", abi, have,
			sys.MinLandlock)
	}
	st := &starter{abi: abi, jobs: make(chan startJob)}
	st.makes.Store(makes)
	ready := make(chan struct{})
	go st.serve(ready)
	<-ready
	return st, nil
}

// run calls f on the thread, in the domain, and waits for it. Without a domain f is not called.
func (st *starter) run(f func() error) error {
	done := make(chan error, 1)
	st.jobs <- startJob{f, done}
	return <-done
}

// serve is the life of the thread, which never ends: a command may have asked to die with it
// (PR_SET_PDEATHSIG means the thread that forked).
func (st *starter) serve(ready chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // by its main thread a process is judged
		go st.serve(ready)
		<-ready // it has another thread, as this one is taken
		runtime.UnlockOSThread()
		return
	}
	close(ready)
	in := false
	for job := range st.jobs {
		var err error
		if !in {
			st.in.Store(true)
			err = restrict(st.abi, st.makes.Load())
			in = err == nil
		}
		if err == nil {
			err = job.do()
		}
		job.done <- err
	}
}

// What a domain of an ABI restricts: everything about files that it knows, but not sockets'
// names (ABI 9), which the network namespace and the mounts decide.
const (
	landlockFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_FILE
	landlockNames = unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	landlockRest = landlockFile | landlockNames | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// landlockMakes are the rights to make names, but sockets': see makeCalls.
const landlockMakes = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
	unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM

const landlockDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE

// landlockRule is a path that is a rule if it is there and what it should be.
type landlockRule struct {
	path    string
	allowed uint64
	mode    uint32 // S_IFDIR, S_IFCHR
	fs      int64  // magic number of its file system; 0 is any
}

// restrict puts the calling thread in the sandbox's domain:
//
//	/                 everything but ioctl(2) of devices
//	/dev              that, too
//	/dev/null, ...    by themselves: stdio may be the same device, opened outside
//	/dev/pts          the same
//
// What is beneath none of these, whatever path or fd leads there, cannot be opened, made, moved or removed.
//
// With makes the right to make names is that of the folders in / but for the guarded one, and not of / itself: a rule
// holds for all that is beneath, and nothing takes it away there.
func restrict(abi int, makes *supervisor.Rules) error {
	set := unix.LandlockRulesetAttr{Handled_access_fs: landlockRest}
	var ioctl uint64
	if abi >= 5 {
		ioctl = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
		set.Handled_access_fs |= ioctl
	}
	if abi >= 6 {
		set.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	rules := []landlockRule{
		{path: "/", allowed: landlockRest, mode: unix.S_IFDIR},
		{path: "/dev", allowed: ioctl, mode: unix.S_IFDIR, fs: unix.TMPFS_MAGIC},
		{path: "/dev/pts", allowed: landlockDevice | unix.LANDLOCK_ACCESS_FS_READ_DIR | ioctl, mode: unix.S_IFDIR,
			fs: unix.DEVPTS_SUPER_MAGIC},
	}
	if makes != nil {
		rules[0].allowed &^= landlockMakes
		free, names, err := freeFolders(makes.Tops()...)
		if err != nil {
			return err
		}
		rules = append(rules, free...)
		if err := makes.Begin(names); err != nil {
			return err
		}
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		rules = append(rules, landlockRule{path: "/dev/" + name, allowed: landlockDevice | ioctl, mode: unix.S_IFCHR})
	}
	var attrs []unix.LandlockPathBeneathAttr
	defer func() {
		for _, a := range attrs {
			_ = unix.Close(int(a.Parent_fd))
		}
	}()
	for _, r := range rules {
		fd, err := r.open()
		if err != nil {
			return fmt.Errorf("open %s for Landlock: %w", r.path, err)
		}
		if fd >= 0 {
			attrs = append(attrs, unix.LandlockPathBeneathAttr{Allowed_access: r.allowed, Parent_fd: int32(fd)})
		}
	}
	return sys.LandlockRestrict(&set, attrs)
}

// open opens the file; -1 where there is no such one.
func (r *landlockRule) open() (int, error) {
	if r.allowed == 0 {
		return -1, nil
	}
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && r.path != "/" {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err = errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err == nil && st.Mode&unix.S_IFMT == r.mode &&
		(r.fs == 0 || fs.Type == r.fs) {
		return fd, nil
	}
	_ = unix.Close(fd)
	return -1, err
}

// freeFolders are the folders of / but some, as rules for a domain.
func freeFolders(except ...string) (rules []landlockRule, names []string, err error) {
	list, err := os.ReadDir("/")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range list {
		if e.IsDir() && !slices.Contains(except, e.Name()) {
			rules = append(rules, landlockRule{path: "/" + e.Name(), allowed: landlockRest, mode: unix.S_IFDIR})
			names = append(names, e.Name())
		}
	}
	return rules, names, nil
}
