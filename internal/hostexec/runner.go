package hostexec

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// IsRunner says that this process is a runner: its main is Main then, and nothing else.
func IsRunner() bool { return len(os.Args) == 1 && os.Args[0] == role }

// runner holds one command.
type runner struct {
	status  *os.File
	group   bool
	release func() // of the thread that the command dies with

	mu     sync.Mutex // guards what follows, and that no pid below is reaped meanwhile
	leader int        // pid of the command; 0 once it is reaped
	dying  bool       // all that there is, is to be killed
}

// Main is the runner. It returns its exit status.
func Main() int {
	sys.SetComm(role)
	unix.CloseOnExec(ctlFD)
	unix.CloseOnExec(statusFD)
	r := &runner{status: os.NewFile(statusFD, "status"), release: func() {}}
	if err := r.run(bufio.NewReader(os.NewFile(ctlFD, "ctl"))); err != nil {
		r.say(news{Ended: true, Code: 125, Error: err.Error()})
		return 1
	}
	return 0
}

func (r *runner) run(ctl *bufio.Reader) error {
	// What a terminal sends to the whole group is the command's; it would be inherited if it were ignored.
	caught := make(chan os.Signal, 1)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	// Orphans of the command's become this process's children.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	var j job
	line, err := ctl.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &j)
	}
	if err != nil {
		return fmt.Errorf("read what to run: %w", err)
	}
	r.group = j.Group
	path, err := find(&j)
	if err == nil {
		err = r.start(path, &j)
	}
	if err != nil {
		n := news{Ended: true, Code: 126, Error: fmt.Sprintf("run %s on the host: %v", j.Argv[0], err)}
		if errors.Is(err, fs.ErrNotExist) {
			n.Code = 127
		}
		r.say(n)
		return nil
	}
	defer func() { r.release() }()
	r.say(news{PID: r.leader})
	go r.listen(ctl)
	r.reap()
	return nil
}

func (r *runner) say(n news) {
	if line, err := json.Marshal(n); err == nil {
		_, _ = r.status.Write(append(line, '\n')) // to a client that is gone
	}
}

// find is the program that argv[0] names, as execvp(3) finds it, but in no folder of PATH that is not absolute: those
// would be the working folder, whose files may be a sandbox's.
func find(j *job) (string, error) {
	name := j.Argv[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(j.Dir, name)
		}
		return name, nil
	}
	var list string
	for _, v := range j.Env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			list = p
		}
	}
	found := fs.ErrNotExist
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		st, err := os.Stat(path)
		switch {
		case err != nil || st.IsDir():
		case st.Mode()&0o111 == 0:
			found = fs.ErrPermission
		default:
			return path, nil
		}
	}
	return "", found
}

// start starts the command. It dies with this process, whatever kills that.
func (r *runner) start(path string, j *job) error {
	attr := &os.ProcAttr{Dir: j.Dir, Env: j.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: j.Group, Pdeathsig: unix.SIGKILL}}
	release, err := sys.StartHeld(func() error { // on a thread that only this command comes from
		if j.ReadOnly {
			if err := confine(j.Dir); err != nil {
				return err
			}
		}
		p, err := os.StartProcess(path, j.Argv, attr)
		if err != nil {
			return err
		}
		r.leader = p.Pid
		return p.Release() // reap waits for it
	})
	r.release = release
	return err
}

// listen does what the client says, and kills everything when it is gone.
func (r *runner) listen(ctl *bufio.Reader) {
	for {
		line, err := ctl.ReadString('\n')
		if err != nil {
			break
		}
		n, err := strconv.Atoi(strings.TrimSpace(line))
		r.mu.Lock()
		if err == nil && r.leader > 0 {
			to := r.leader
			if r.group {
				to = -to
			}
			_ = unix.Kill(to, unix.Signal(n))
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dying = true
	r.killChildren()
}

// reap waits for all children, until there is none. What the command leaves behind is killed.
func (r *runner) reap() {
	for {
		// Left to be reaped under the lock, so that its pid is nobody else's while somebody signals it.
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil { // ECHILD
			return
		}
		r.reapOne()
	}
}

func (r *runner) reapOne() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if err != nil || pid <= 0 {
		return
	}
	if pid == r.leader {
		r.leader, r.dying = 0, true
		n := news{Ended: true, Code: status.ExitStatus()}
		if status.Signaled() {
			n.Code, n.Signal = 128+int(status.Signal()), unix.SignalName(status.Signal())
			if n.Signal == "" { // a real-time signal
				n.Signal = fmt.Sprintf("SIG%d", int(status.Signal()))
			}
		}
		r.say(n)
	}
	if r.dying {
		r.killChildren()
	}
}

// killChildren kills the children there are, r.mu held: no pid of theirs can be another's. Their own children become
// this process's, and their turn comes when it reaps.
func (r *runner) killChildren() {
	names, err := readNames("/proc")
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err == nil && parentOf(text) == self {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// parentOf is the parent in a line of /proc/pid/stat (proc_pid_stat(5)), 0 where there is none. The name in parentheses
// may hold anything.
func parentOf(stat []byte) int {
	text := string(stat)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.Atoi(f[1])
	if err != nil || n < 0 {
		return 0
	}
	return n
}
