package guest

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
)

//go:embed shell.sh
var shellScript string

// shellWorker is hutch-init's binary as the keeper of one stateful shell: PID 1 starts
// it as an ordinary exec of one user. It has that user's rights, and its sandbox may do
// to it what it likes: hutchd takes what it says for what any command says.
//
//	worker --- shell --- commands
//	   |   \-- backup    the shell as it was before the run
//	   \------ what runs have left in the background: it is their subreaper
//
// All fields are the loop's.
type shellWorker struct {
	out     *json.Encoder
	talk    *os.File // to the shell and from it
	spare   *os.File // to the backup
	command *os.File // what the shell reads a command from
	traps   *os.File // what a backup reads its traps from; held open

	main   process // the shell
	backup process // pid 0 when there is none, or none any more

	run    uint64         // under way; 0 without
	known  []process      // what is not the run's
	backed bool           // the run has had its backup
	hurry  bool           // it is to be aborted then
	last   shellapi.Event // how the run before has ended; for a hutchd that did not hear of it
	rising bool           // it is aborted, and the backup is to become the shell
	killed []int
}

// RunShell serves until the shell ends, and ends as it did.
func RunShell() error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	startThreads(spareThreads)
	nameSelf("hutch-shell")
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, unix.SIGCHLD)
	in, err := ownFile(shellapi.ChannelFD, "channel")
	if err != nil {
		return err
	}
	w := &shellWorker{out: json.NewEncoder(in)}
	if err := w.start(); err != nil {
		return err
	}
	status, err := w.loop(readRequests(in), readLines(w.talk), chld)
	if err != nil {
		return err
	}
	if status.Signaled() { // as its exec's end is all that is known where nobody hears the event
		runtime.LockOSThread() // a signal for this very thread comes before the call returns
		_ = sys.DefaultSignals()
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), status.Signal())
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
	return nil
}

// ownFile is an inherited fd as a file of the runtime's poller, out of the way of the
// fds that a child gets.
func ownFile(fd int, name string) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minMemfd)
	if err == nil {
		err = unix.SetNonblock(own, true)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(own), name), nil
}

// start starts the shell.
func (w *shellWorker) start() error {
	var err error
	if w.traps, err = emptyFile("traps"); err != nil {
		return err
	}
	if w.command, err = emptyFile("command"); err != nil {
		return err
	}
	var pair, spare [2]int
	if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	if err = unix.Pipe2(spare[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	if w.talk, err = ownFile(pair[0], "shell"); err != nil {
		return err
	}
	if w.spare, err = ownFile(spare[1], "backup"); err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, fd := range []int{pair[0], spare[1]} {
		_ = unix.Close(fd)
	}
	// By our own pid: in a shell, /proc/self is whoever opens it, but the backup's
	// parents are others.
	script := strings.NewReplacer("@FD@", fmt.Sprintf("/proc/%d/fd", os.Getpid()),
		"@COMMAND@", strconv.Itoa(int(w.command.Fd())), "@TRAPS@", strconv.Itoa(int(w.traps.Fd()))).Replace(shellScript)
	const none = ^uintptr(0)
	n := uintptr(null)
	name := shell()
	pid, err := syscall.ForkExec(name, []string{name, "-c", script, name}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{n, n, n, none, none, 1, 2, none, uintptr(spare[0]), uintptr(pair[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // kill 0 is not for the worker
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	_ = unix.Close(spare[0])
	_ = unix.Close(pair[1])
	w.main, err = readProcess(pid)
	return err
}

// emptyFile makes a file without a name. Whoever opens it by /proc/PID/fd starts at its
// beginning.
func emptyFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create %s: %w", name, err)
	}
	if fd, err = outOfTheWay(name, fd); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readRequests gives what hutchd sends until the end of the channel.
func readRequests(in *os.File) <-chan shellapi.Request {
	c := make(chan shellapi.Request)
	go func() {
		defer close(c)
		for lines := bufio.NewReader(in); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var req shellapi.Request
			if json.Unmarshal(line, &req) == nil { // else a hutchd was killed while it wrote
				c <- req
			}
		}
	}()
	return c
}

// maxLine bounds what the shell says at once.
const maxLine = 128

// readLines gives what the shell says.
func readLines(talk *os.File) <-chan []string {
	c := make(chan []string)
	go func() {
		in := bufio.NewScanner(talk)
		in.Buffer(make([]byte, maxLine), maxLine)
		for in.Scan() {
			c <- strings.Fields(in.Text())
		}
	}()
	return c
}

// loop runs until the shell has ended, and returns its wait status.
func (w *shellWorker) loop(requests <-chan shellapi.Request, lines <-chan []string,
	chld <-chan os.Signal) (syscall.WaitStatus, error) {
	for {
		var err error
		select {
		case req, ok := <-requests:
			if !ok { // hutchd has closed the shell, or is gone
				requests = nil
				w.backup = process{}
				_ = w.spare.Close()
				err = w.hangUp()
				break
			}
			err = w.handle(req)
		case words := <-lines:
			err = w.hear(words)
		case <-chld:
			status, over := w.reap()
			if over {
				// hutchd may be gone
				_ = w.out.Encode(shellapi.Event{Ev: shellapi.EvOver, Run: w.run, Status: int(status)})
				return status, nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// hangUp tells the shell that there are no more runs. What it says is still heard.
func (w *shellWorker) hangUp() error {
	rc, err := w.talk.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
}

func (w *shellWorker) handle(req shellapi.Request) error {
	switch {
	case req.Op == shellapi.OpRun && w.run == 0:
		return w.begin(req)
	case req.Op == shellapi.OpAbort && req.Run == w.run && w.backed:
		return w.abort()
	case req.Op == shellapi.OpAbort && req.Run == w.run:
		w.hurry = true
	case req.Op == shellapi.OpAsk && req.Run == w.run: // its end will be told
	case req.Op == shellapi.OpAsk && req.Run == w.last.Run:
		return w.out.Encode(w.last)
	case req.Op == shellapi.OpAsk:
		return w.out.Encode(shellapi.Event{Ev: shellapi.EvNever, Run: req.Run})
	}
	return nil
}

// begin starts a run.
func (w *shellWorker) begin(req shellapi.Request) error {
	if err := w.command.Truncate(0); err != nil {
		return err
	}
	if _, err := w.command.WriteAt([]byte(req.Command+"\n"), 0); err != nil {
		return err
	}
	procs, err := readProcesses()
	if err != nil {
		return err
	}
	w.known = slices.DeleteFunc(procs, func(p process) bool { return p.pid == w.main.pid })
	w.run, w.backed, w.hurry, w.killed = req.Run, false, false, nil
	_, err = fmt.Fprintln(w.talk, req.Run)
	return err
}

// hear handles what the shell or its backup says. Commands can say it as well, if they
// take pains to: it is their own result.
func (w *shellWorker) hear(words []string) error {
	switch {
	case len(words) == 1 && words[0] == "up" && w.rising:
		w.rising = false
		return w.end(shellapi.Event{Ev: shellapi.EvAborted, Killed: w.killed})
	case len(words) == 1 && words[0] == "up" && w.run == 0:
		return w.out.Encode(shellapi.Event{Ev: shellapi.EvUp})
	case len(words) == 2 && words[0] == "backup" && w.run != 0 && !w.backed:
		pid, err := strconv.Atoi(words[1])
		if err != nil {
			return nil
		}
		if w.backup, err = readProcess(pid); err != nil {
			return nil
		}
		w.known, w.backed = append(w.known, w.backup), true
		if w.hurry {
			return w.abort()
		}
	case len(words) == 3 && words[0] == "done" && words[1] == strconv.FormatUint(w.run, 10) && !w.rising:
		code, err := strconv.ParseUint(words[2], 10, 8)
		if err != nil {
			return nil
		}
		err = w.end(shellapi.Event{Ev: shellapi.EvDone, Status: int(code)})
		w.dropBackup()
		return err
	}
	return nil
}

// dropBackup ends a backup that is not needed. It waits for that, so that what is meant
// for the next one is not read by it. Only a child's pid is sure to be still its own.
func (w *shellWorker) dropBackup() {
	p, err := readProcess(w.backup.pid)
	if w.backup.pid != 0 && err == nil && p.ppid == os.Getpid() {
		_ = unix.Kill(p.pid, unix.SIGKILL)
		for errors.Is(reapOne(p.pid), unix.EINTR) {
		}
	}
	w.backup = process{}
}

func reapOne(pid int) error {
	_, err := syscall.Wait4(pid, nil, 0, nil)
	return err
}

// end reports the end of the run.
func (w *shellWorker) end(ev shellapi.Event) error {
	ev.Run, w.run = w.run, 0
	w.last = ev
	return w.out.Encode(ev)
}

// reap reaps what has ended. over says that the shell has, and nothing replaces it.
func (w *shellWorker) reap() (status syscall.WaitStatus, over bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid <= 0:
			return status, over
		case pid == w.main.pid:
			status, over = ws, true
		case pid == w.backup.pid:
			w.backup = process{}
		}
	}
}

// abort kills all that the run has started, and the shell itself, and lets the backup
// go on.
func (w *shellWorker) abort() error {
	for range killRounds {
		pids := w.freeze()
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if !slices.Contains(w.killed, pid) && pid != w.main.pid && len(w.killed) < shellapi.MaxKilled {
				w.killed = append(w.killed, pid)
			}
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		awaitDeath(pids, time.Now().Add(killPatience))
	}
	if w.backup.pid == 0 {
		return nil // somebody has killed it: the shell is over
	}
	w.main, w.backup, w.rising = w.backup, process{}, true
	_, err := fmt.Fprintln(w.spare, "go")
	return err
}

// freeze stops what belongs to the run until nothing new turns up: killing a parent
// first would orphan what it is about to fork.
func (w *shellWorker) freeze() (pids []int) {
	for range freezeRounds {
		fresh := false
		for _, pid := range w.started() {
			if !slices.Contains(pids, pid) {
				_ = unix.Kill(pid, unix.SIGSTOP)
				pids, fresh = append(pids, pid), true
			}
		}
		if !fresh {
			break
		}
	}
	return pids
}

// started lists the living processes that the run has started, and the shell: those
// below the worker whose next ancestor of before the run is the worker, not another.
// What an older background process has orphaned meanwhile is taken for the run's.
func (w *shellWorker) started() (pids []int) {
	procs, err := readProcesses()
	if err != nil {
		return nil
	}
	self := os.Getpid()
	parent, old := map[int]int{}, map[int]bool{}
	for _, p := range procs {
		parent[p.pid] = p.ppid
		old[p.pid] = slices.ContainsFunc(w.known, func(k process) bool { return k.pid == p.pid && k.start == p.start })
	}
	for _, p := range procs {
		at := p.pid
		for range procs { // pids are read one after the other: no loop may catch us
			if at == self || at <= 1 || old[at] {
				break
			}
			at = parent[at]
		}
		if at == self && p.pid != self && !p.dead() {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
