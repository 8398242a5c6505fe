package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runLimit ends a run that hangs. It is far above any time worth comparing.
const runLimit = 20 * time.Second

// process is a command that is measured as a whole: from before the fork to the
// exit status. os.StartProcess forks with CLONE_VM|CLONE_VFORK, as posix_spawn
// does, so that the size of this process is not part of the result.
//
// stdin and stdout are /dev/null and stderr is a pipe: all three are what any
// sandbox can be handed directly, so nobody measures a copy loop.
type process struct {
	argv []string // argv[0] is a path
	attr os.ProcAttr
	null *os.File
	errR *os.File // our end of its stderr, non-blocking
	errW *os.File
	// limit ends a run that hangs.
	limit time.Duration
}

// newProcess prepares argv, whose first element may be a name in PATH. extra
// environment variables (NAME=value) win over h's.
func (h *Host) newProcess(extra []string, argv ...string) (*process, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	p := &process{argv: slices.Concat([]string{path}, argv[1:]), limit: runLimit}
	if p.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	h.undo.Add(p.null.Close)
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe for stderr: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	p.errR, p.errW = os.NewFile(uintptr(fds[0]), "stderr"), os.NewFile(uintptr(fds[1]), "stderr")
	h.undo.Add(p.errR.Close)
	h.undo.Add(p.errW.Close)
	p.attr = os.ProcAttr{
		Dir:   h.dir,
		Env:   h.environ(extra...),
		Files: []*os.File{p.null, p.null, p.errW},
		Sys:   h.sysProcAttr(),
	}
	return p, nil
}

// run starts the process once and waits for it.
func (p *process) run(ctx context.Context) (Sample, error) {
	if err := ctx.Err(); err != nil {
		return Sample{}, err
	}
	start := time.Now()
	proc, err := os.StartProcess(p.argv[0], p.argv, &p.attr)
	if err != nil {
		return Sample{}, err
	}
	// The group, because the process is only the first of several. A run that is
	// interrupted ends by itself in milliseconds, so ctx does not kill it.
	limit := time.AfterFunc(p.limit, func() { _ = unix.Kill(-proc.Pid, unix.SIGKILL) })
	state, err := proc.Wait()
	wall := time.Since(start)
	if !limit.Stop() {
		return Sample{}, fmt.Errorf("%s: killed after %v", p.line(), p.limit)
	}
	stderr := p.stderr()
	if err != nil {
		return Sample{}, fmt.Errorf("wait for %s: %w", p.line(), err)
	}
	if !state.Success() {
		return Sample{}, fmt.Errorf("%s: %v: %s", p.line(), state, stderr)
	}
	return Sample{Wall: wall, User: state.UserTime(), Sys: state.SystemTime()}, nil
}

// stderr empties the pipe and returns the end of what was in it.
func (p *process) stderr() string {
	const keep = 2 << 10
	var all []byte
	buf := make([]byte, 64<<10)
	conn, err := p.errR.SyscallConn()
	if err != nil {
		return err.Error()
	}
	// Read without waiting: whoever outlives the process may hold the other end.
	_ = conn.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buf)
			if n <= 0 || err != nil {
				return true
			}
			all = append(all, buf[:n]...)
		}
	})
	if len(all) > keep {
		all = all[len(all)-keep:]
	}
	return strings.TrimSpace(string(all))
}

// line is the process as a line for the shell.
func (p *process) line() string { return shellLine(p.argv) }

// prepared wraps p for the rounds.
func (p *process) prepared() *Prepared { return &Prepared{Command: p.line(), Run: p.run} }

// shellLine quotes argv for sh.
func shellLine(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = shellWord(a)
	}
	return strings.Join(words, " ")
}

func shellWord(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("_-./:=,@%+", r)
	}
	if s != "" && strings.TrimFunc(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// output runs a command that is not measured, as the user of the subjects, and
// returns its standard output without the last newline.
func (h *Host) output(ctx context.Context, extra []string, argv ...string) (string, error) {
	return h.outputWithin(ctx, 2*runLimit, extra, argv...)
}

// outputWithin is output with another limit.
func (h *Host) outputWithin(ctx context.Context, limit time.Duration, extra []string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = h.dir, h.environ(extra...), h.sysProcAttr()
	// A daemon that the command started may hold its output open.
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", shellLine(argv), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

// version is the first line that a program prints about itself.
func (h *Host) version(ctx context.Context, argv ...string) string {
	out, err := h.output(ctx, nil, argv...)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(out, "\n")
	return line
}

// sysProcAttr gives every process a group of its own, so that a terminal's
// Ctrl-C meets this process only, and the user that was asked for.
func (h *Host) sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: h.cred}
}
