package guest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// execution is one exec, from its request until nothing of it can be left.
// Everything is guarded by server.mu.
//
//	new --fork--> starting --execve--> started --exit--> over
//	 |               |
//	 +-----failed----+
//
// The reaper may see the exit before the error pipe has told whether execve
// succeeded, so "started" and "exit" are independent and announce sends what is
// due, in order.
type execution struct {
	id   uint64
	pid  int    // of the leader, also its session's id; 0 until forked
	born uint64 // just before the fork, clock ticks since boot

	// grouped says that a kill is for the leader alone: hutchd finds the rest in the
	// exec's cgroup, or it is a worker, which starts nothing.
	grouped bool
	worker  bool         // hutchd's own; its end needs no record
	started bool         // execve succeeded, and hutchd knows
	exit    *processExit // set by the reaper

	killWanted bool  // kill came before fork
	killing    bool  // killTree is at work; it announces the exit
	killed     []int // what it killed, leader first
	announced  bool  // hutchd knows of the exit
}

// origin is where e's processes come from; e has been forked.
func (e *execution) origin() origin { return origin{e.pid, e.born} }

// processExit is how a leader ended.
type processExit struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// exec accepts a request and starts it beside the others.
func (s *server) exec(req *guestapi.Request, fds []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acknowledge(req.Acks)
	if len(s.execs) >= maxExecs {
		s.dropEnded()
	}
	var err error
	switch {
	case s.filter < 0:
		err = errors.New("exec before setup")
	case s.cgroups < 0 && req.Cgroup != "":
		err = errors.New("exec in a cgroup without a mount of cgroups")
	case s.execs[req.Exec] != nil:
		err = fmt.Errorf("exec id %d is in use", req.Exec)
	case len(s.execs) >= maxExecs:
		err = fmt.Errorf("%d execs are alive, the most that hutch-init handles: %w", maxExecs, unix.EAGAIN)
	}
	if err != nil {
		closeAll(fds)
		reason := guestapi.ReasonInternal
		if errors.Is(err, unix.EAGAIN) {
			reason = guestapi.ReasonNoProcess
		}
		s.postEnd(&execution{worker: req.Worker == guestapi.WorkerFiles}, failure(req.Exec, reason, err, "exec"))
		return
	}
	e := &execution{id: req.Exec, worker: req.Worker == guestapi.WorkerFiles, grouped: req.Cgroup != "" ||
		req.Worker == guestapi.WorkerFiles}
	s.execs[e.id] = e
	go s.start(e, req, fds)
}

// start runs the exec up to execve. It may wait for a slow filesystem; each
// exec has its own goroutine for that.
func (s *server) start(e *execution, req *guestapi.Request, fds []int) {
	report, fail := s.prepare(e, req, fds)
	closeAll(fds)
	if fail == nil {
		fail = awaitExecve(report, req)
	}
	s.settle(e, fail)
}

// settle reports that e has started, or why it has not.
func (s *server) settle(e *execution, fail *guestapi.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fail != nil {
		fail.Exec = e.id
		s.postEnd(e, *fail)
		s.forget(e)
		return
	}
	e.started = true
	s.ch.post(guestapi.Event{Ev: guestapi.EvStarted, Exec: e.id, PID: e.pid})
	s.announce(e)
	if e.announced && !e.grouped {
		s.sweep([]*execution{e})
	}
}

// prepare resolves the request and forks the stub. It returns the read end of
// the stub's error pipe.
func (s *server) prepare(e *execution, req *guestapi.Request, fds []int) (*os.File, *guestapi.Event) {
	conf, fail := s.configure(req)
	if fail != nil {
		return nil, fail
	}
	if req.MkCwd && conf.cwd != "" {
		if err := makeCwd(conf.cwd, conf.cred, s.asked.Rules()); err != nil {
			return nil, failed(guestapi.ReasonBadCwd, err, "create working directory")
		}
	}
	stdio := fds
	if req.TTY {
		stdio = []int{fds[0], fds[0], fds[0]}
	}
	if !conf.cred.emulated {
		giveStdio(fds, req.TTY, conf.cred.uid)
	}

	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	return s.fork(e, conf, stdio, req)
}

// configure turns a request into the stub's config.
func (s *server) configure(req *guestapi.Request) (*stubConfig, *guestapi.Event) {
	conf := &stubConfig{
		oomScoreAdj: s.oomScoreAdj, rlimits: req.Rlimits, cpus: req.CPUs, capDrop: req.CapDrop, argv: req.Argv,
		env: req.Env, cwd: req.Cwd,
	}
	var err error
	if conf.cred, err = readAccounts(s.ids).resolve(req.User); err != nil {
		return nil, failed(guestapi.ReasonBadUser, err, fmt.Sprintf("user %q", req.User))
	}
	if conf.cred.emulated {
		limit, err := s.asked.Become(conf.cred.uid, conf.cred.gid, conf.cred.groups)
		if err != nil {
			return nil, failed(guestapi.ReasonBadUser, err, fmt.Sprintf("user %q", req.User))
		}
		conf.rlimits, conf.cred.groups = append(slices.Clone(conf.rlimits), limit), nil
	}
	if _, ok := lookup(conf.env, "GIT_CONFIG_COUNT"); !ok && s.ids.emulated && conf.cred.uid != 0 {
		// git takes a repository of another user's for a trap, and here all files are root's, whoever the command takes
		// itself for.
		conf.env = append(conf.env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	}
	if _, ok := lookup(conf.env, "HOME"); !ok {
		conf.env = append(conf.env, "HOME="+s.home(conf.cred, req.Worker == "" || req.Worker == guestapi.WorkerShell))
	}
	if req.Worker == guestapi.WorkerShell && unix.Access(shell(), unix.X_OK) != nil {
		return nil, failed(guestapi.ReasonNotFound, unix.ENOENT, "execute "+shell())
	}
	if req.Worker != "" {
		conf.argv = []string{fmt.Sprintf("/proc/self/fd/%d", workerFD), req.Worker}
	}
	if req.Command != "" {
		conf.argv = shellArgv(shell(), req.Command)
	}
	if conf.argv[0] == "" {
		return nil, failed(guestapi.ReasonNotFound, unix.ENOENT, `execute ""`)
	}
	if !strings.Contains(conf.argv[0], "/") {
		path, ok := lookup(conf.env, "PATH")
		if !ok {
			path = defaultPath
		}
		conf.path = path
	}
	return conf, nil
}

// home is the home of a user. Who has none in the account files gets one, /home/UID, where commands are run: programs
// keep their settings and caches there. It stays / where none can be made, such as on a read-only root, or where /home
// is a folder of the host's.
func (s *server) home(c *credentials, commands bool) string {
	if c.home != "" || c.uid == 0 || !commands {
		return cmp.Or(c.home, "/")
	}
	const above = "/home"
	dir := fmt.Sprintf("%s/%d", above, c.uid)
	err := makeCwd(above, &credentials{}, s.asked.Rules()) // stays root's, like others' homes in it
	if err == nil && !onRoot(above) {
		return "/"
	}
	if err == nil {
		err = makeCwd(dir, c, s.asked.Rules())
	}
	if err != nil {
		return "/"
	}
	return dir
}

// onRoot reports whether a path leads to the file system that / is on.
func onRoot(path string) bool {
	var root, at unix.Statx_t
	const mask = unix.STATX_MNT_ID
	if unix.Statx(unix.AT_FDCWD, "/", 0, mask, &root) != nil || unix.Statx(unix.AT_FDCWD, path, 0, mask, &at) != nil {
		return false
	}
	return root.Mask&at.Mask&mask != 0 && root.Mnt_id == at.Mnt_id
}

// maxArg is how long one argument can be, without the NUL at its end: MAX_ARG_STRLEN of the kernel, 32 pages
// (binfmts.h).
const maxArg = 128<<10 - 1

// shellArgv has a shell run command. One that does not fit into an argument comes in parts, which the shell joins: it
// is then the only thing that it runs, in the same shell, without arguments of its own.
func shellArgv(shell, command string) []string {
	if len(command) <= maxArg {
		return []string{shell, "-c", command}
	}
	join := &strings.Builder{}
	join.WriteString("eval \"set --\n")
	argv := []string{shell, "-c", "", shell}
	for len(command) > 0 {
		n := min(maxArg, len(command))
		argv, command = append(argv, command[:n]), command[n:]
		fmt.Fprintf(join, "${%d}", len(argv)-4)
	}
	join.WriteString("\"")
	argv[2] = join.String()
	return argv
}

// workerFD is where the stub finds hutch-init's binary, for a worker: behind its
// own fds.
const workerFD = 6

// defaultPath is what execvp(3) searches when the environment has no PATH.
const defaultPath = "/bin:/usr/bin"

// shell is what runs a command string.
func shell() string {
	if unix.Access("/bin/bash", unix.X_OK) == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// giveStdio lets a user other than root reopen its own stdio (/dev/stderr),
// which belongs to whoever made it. Only what no name on the host leads to is
// given: anonymous pipes and the pty. It is a courtesy: where the owner is no
// user of the sandbox the kernel refuses, and the fds work all the same.
func giveStdio(fds []int, tty bool, uid uint32) {
	if uid == 0 {
		return
	}
	for _, fd := range fds {
		var fs unix.Statfs_t
		if tty || unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PIPEFS_MAGIC {
			_ = unix.Fchown(fd, int(uid), -1)
		}
	}
}

// fork starts the stub as a session leader on stdio. The slot it runs in bounds
// how many fds execs hold that are about to start.
func (s *server) fork(e *execution, conf *stubConfig, stdio []int, req *guestapi.Request) (*os.File, *guestapi.Event) {
	data, err := conf.encode()
	if err != nil {
		return nil, failed(guestapi.ReasonTooBig, err, "execute "+conf.argv[0])
	}
	config, err := memfd("hutch-exec", data, memfdData)
	if err != nil {
		return nil, failed(guestapi.ReasonNoProcess, err, "execute "+conf.argv[0])
	}
	defer unix.Close(config)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, failed(guestapi.ReasonNoProcess, err, "pipe")
	}
	defer unix.Close(pipe[1])
	cgroup, err := s.openCgroup(req.Cgroup)
	if err != nil {
		return nil, failed(guestapi.ReasonInternal, err, "open cgroup")
	}
	defer func() { _ = unix.Close(cgroup) }()
	attr := &syscall.ProcAttr{
		Dir: "/",
		Env: []string{},
		Files: []uintptr{uintptr(stdio[0]), uintptr(stdio[1]), uintptr(stdio[2]),
			uintptr(config), uintptr(s.filter), uintptr(pipe[1])},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: req.TTY, UseCgroupFD: cgroup >= 0, CgroupFD: cgroup},
	}
	if req.Worker != "" {
		attr.Files = append(attr.Files, uintptr(s.self))
	}
	if err := s.forkWalled(e, attr); err != nil {
		_ = unix.Close(pipe[0])
		reason := guestapi.ReasonInternal
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) {
			reason = guestapi.ReasonNoProcess
		}
		what := conf.argv[0]
		if req.Worker != "" {
			what = "the " + req.Worker + " worker"
		}
		return nil, failed(reason, err, "start a process for "+what)
	}
	_ = unix.SetNonblock(pipe[0], true) // for the poller: waiting takes no thread
	return os.NewFile(uintptr(pipe[0]), "exec report"), nil
}

// openCgroup opens the cgroup that clone3(2) is to start an exec in; -1 without.
func (s *server) openCgroup(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	return unix.Openat2(s.cgroups, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

// forkWalled forks the stub in the sandbox's Landlock domain, if it has one.
func (s *server) forkWalled(e *execution, attr *syscall.ProcAttr) error {
	s.mu.Lock()
	s.reap() // an exec does not see what has died before it as a zombie
	s.mu.Unlock()
	if s.starter == nil {
		return s.forkLocked(e, attr)
	}
	return s.starter.run(func() error { return s.forkLocked(e, attr) })
}

func (s *server) forkLocked(e *execution, attr *syscall.ProcAttr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.killWanted {
		return errors.New("killed before it was started")
	}
	e.born = bootTicks()
	// The stub runs from its memfd, so nothing in the image can replace it.
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", s.stub), []string{"hutch-stub"}, attr)
	if err != nil {
		return err
	}
	e.pid = pid
	s.byPID[pid] = e
	return nil
}

// awaitExecve reads the stub's verdict: nothing when the command runs.
func awaitExecve(report *os.File, req *guestapi.Request) *guestapi.Event {
	defer report.Close()
	var raw [8]byte
	n, err := io.ReadFull(report, raw[:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return failed(guestapi.ReasonInternal, err, fmt.Sprintf("exec report of %d bytes", n))
	}
	at := stage(binary.LittleEndian.Uint32(raw[:]))
	return explain(at, unix.Errno(binary.LittleEndian.Uint32(raw[4:])), req)
}

// announce sends the exit of a started exec, once it is known and no kill is
// still at work on what the exec left behind.
func (s *server) announce(e *execution) {
	if !e.started || e.exit == nil || e.killing || e.announced {
		return
	}
	e.announced = true
	if e.grouped {
		s.forget(e) // what it has left behind is hutchd's to find
	}
	u := &e.exit.usage
	s.postEnd(e, guestapi.Event{
		Ev: guestapi.EvExited, Exec: e.id, PID: e.pid, Status: int(e.exit.status), Killed: e.killed,
		Usage: &guestapi.Usage{
			UserUS:   u.Utime.Nano() / 1000,
			SystemUS: u.Stime.Nano() / 1000,
			MaxRSSKB: u.Maxrss,
		},
	})
}

// forget drops an exec of which nothing is left to reap or to kill. A failed one
// stays in byPID until the stub is reaped.
func (s *server) forget(e *execution) { delete(s.execs, e.id) }

// bootTicks is now on the clock of starttime in /proc/pid/stat: USER_HZ ticks of
// 10 ms since boot.
func bootTicks() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano() / 10_000_000)
}
