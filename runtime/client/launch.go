package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	// leaseWait is how long a private daemon may take to remove its sandboxes
	// after its lease ended.
	leaseWait = 30 * time.Second
	// tailBytes of the log are shown when a daemon dies while it starts.
	tailBytes = 4 << 10
)

// launch is one start of `hutchd serve`. The daemon gets
//
//	fd 0     /dev/null
//	fd 1, 2  the log, appended to
//	fd 3     a shared daemon: the ready pipe     --ready-fd 3
//	         a private daemon: its lease         --private-fd 3
//	fd 4     a private daemon: the ready pipe    --ready-fd 4
//
// On the ready pipe it writes one line and closes it:
//
//	{"ready":true,"pid":N}  or  {"error":{"code":..., "op":..., "msg":..., "hint":...}}
type launch struct {
	binary string
	env    []string
	log    string
	lease  *os.File // nil for a shared daemon; stays the caller's
}

// daemon is a hutchd that this process started.
type daemon struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has been reaped
	err    error         // how it ended, once exited is closed
}

// start returns when the daemon is ready, or with the reason why it is not; then
// nothing of it is left.
func (l launch) start(ctx context.Context) (*daemon, error) {
	binary, err := l.binary, error(nil)
	if binary == "" {
		if binary, err = paths.Sibling("hutchd"); err != nil && version.BuildID == version.Foreign {
			binary, err = paths.Installed("hutchd", getter(l.env)("PATH"))
		}
		if err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(l.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, api.Errorf(api.FailedPrecondition, "open the daemon's log: %w", err).WithOp("start hutchd").
			WithHint("Make the folder writable, or set HUTCH_ROOT to another.")
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("start hutchd: log %s: %w", l.log, err)
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start hutchd: %w", err)
	}
	defer ready.Close()
	d, err := l.spawn(binary, log, theirs)
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	if err := awaitReady(ctx, ready); err != nil {
		// Not ready is as good as dead: there is nobody to talk to it.
		_ = d.cmd.Process.Kill()
		<-d.exited
		if errors.Is(err, errNoWord) {
			err = l.died(d, before)
		}
		return nil, err
	}
	return d, nil
}

func (l launch) spawn(binary string, log, ready *os.File) (*daemon, error) {
	cmd := exec.Command(binary, "serve")
	if l.lease != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, l.lease)
		cmd.Args = append(cmd.Args, "--private-fd", "3")
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, ready)
	cmd.Args = append(cmd.Args, "--ready-fd", strconv.Itoa(2+len(cmd.ExtraFiles)))
	cmd.Env = withoutToken(l.env)
	cmd.Dir = "/" // keep no file system busy
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: a Ctrl-C at the caller's terminal is not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, api.Errorf(api.FailedPrecondition, "start %s: %w", binary, err).WithOp("start hutchd").
			WithHint("Install hutch again: its binaries belong in one folder.")
	}
	d := &daemon{cmd: cmd, exited: make(chan struct{})}
	// Reaps the daemon whenever it ends, so that a long-lived caller keeps no
	// zombie of a shared daemon that it once started.
	go func() {
		d.err = cmd.Wait()
		close(d.exited)
	}()
	return d, nil
}

// errNoWord means that the ready pipe was closed without a line.
var errNoWord = errors.New("hutchd ended before it was ready")

func awaitReady(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(ready, 64<<10)).ReadBytes('\n')
	if ctx.Err() != nil {
		return fmt.Errorf("wait for hutchd to start: %w", context.Cause(ctx))
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return errNoWord
	}
	var word struct {
		Ready bool `json:"ready"`
		Error *struct {
			Code api.Code `json:"code"`
			Op   string   `json:"op"`
			Msg  string   `json:"msg"`
			Hint string   `json:"hint"`
		} `json:"error"`
	}
	if jerr := json.Unmarshal(line, &word); jerr != nil {
		return fmt.Errorf("start hutchd: its answer %q is not JSON: %w", line, errors.Join(jerr, err))
	}
	if e := word.Error; e != nil {
		return &api.Error{Code: e.Code, Op: e.Op, Msg: e.Msg, Hint: e.Hint}
	}
	if !word.Ready {
		return fmt.Errorf("start hutchd: its answer %q is neither ready nor an error", line)
	}
	return nil
}

// died describes a daemon that ended without a word by the end of its log.
func (l launch) died(d *daemon, logged int64) error {
	how := "exit status 0"
	if d.err != nil {
		how = d.err.Error()
	}
	msg := fmt.Sprintf("%v (%s)", errNoWord, how)
	if tail := logTail(l.log, logged); tail != "" {
		msg += ":\n" + tail
	}
	return (&api.Error{Code: api.Unavailable, Op: "start hutchd", Msg: msg}).
		WithHint("Run `hutch doctor`; the daemon's log is %s.", l.log)
}

// logTail is the end of what the log has gained since it had from bytes.
func logTail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size <= from {
		return ""
	}
	cut := size-from > tailBytes
	if cut {
		from = size - tailBytes
	}
	data, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return ""
	}
	tail := string(data)
	if _, rest, ok := strings.Cut(tail, "\n"); cut && ok {
		tail = rest // the first line is not whole
	}
	return strings.TrimSpace(tail)
}

// wait waits for a private daemon whose lease has ended.
func (d *daemon) wait() error {
	timer := time.NewTimer(leaseWait)
	defer timer.Stop()
	select {
	case <-d.exited:
	case <-timer.C:
		_ = d.cmd.Process.Kill()
		<-d.exited
		return api.Errorf(api.DeadlineExceeded, "the private daemon did not end within %v and was killed", leaseWait).
			WithOp("close").WithHint("Run `hutch gc` to sweep what it left.")
	}
	if d.err != nil {
		return fmt.Errorf("private daemon: %w", d.err)
	}
	return nil
}
