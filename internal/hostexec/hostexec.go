// Package hostexec runs a command on the host for a client: as the user that it is, outside of any sandbox. DESIGN.md
// of runtime/mode says when.
//
//	client            hutch or hutch-mcp
//	  runner          the same program in another role: subreaper, holds the command, kills all of it when its client
//	                  is gone
//	    command       and whatever it starts
//
// The runner is there for a client that is killed: nothing that it had started goes on then. It is no wall; the command
// may kill it.
package hostexec

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Command is what to run.
type Command struct {
	Argv []string
	Dir  string
	Env  []string // NAME=VALUE; PATH is where Argv[0] is looked for
	// Stdin, Stdout and Stderr stay the caller's; nil is /dev/null.
	Stdin, Stdout, Stderr *os.File
	// Terminal leaves the command in the caller's process group, so that it may read the caller's terminal, which sends
	// its signals to all of the group. Otherwise the command has a group of its own.
	Terminal bool
	// ReadOnly has Landlock keep it from writing files, and from reading others than the system's programs and those
	// below Dir: Confines must have said yes.
	ReadOnly bool
}

// job is a Command on the way to the runner.
type job struct {
	Argv     []string `json:"argv"`
	Dir      string   `json:"dir"`
	Env      []string `json:"env"`
	Group    bool     `json:"group"`
	ReadOnly bool     `json:"read_only"`
}

// news is a line of the runner's: that the command runs, that it cannot, or its end.
type news struct {
	PID    int    `json:"pid,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	Error  string `json:"error,omitempty"`
}

// End is how a command ended.
type End struct {
	ExitCode int
	Signal   string // "SIGKILL"; ExitCode is then 128+n
	Error    string // why it never ran, or that nothing is known of its end
	NotRun   bool   // ExitCode is 126 or 127
}

// Process is a command that runs.
type Process struct {
	PID    int // of the command; 0 of one that could not be started
	runner *exec.Cmd
	status *os.File
	lines  *bufio.Reader

	mu   sync.Mutex // guards ctl
	ctl  *os.File   // nil once closed
	over End        // of one that could not be started
}

// The fds of the runner beside stdio.
const (
	ctlFD    = 3
	statusFD = 4
)

// role is what the runner is called: argv[0] of the client's own program.
const role = "hutch-host"

// Start starts c. A command that cannot be started is no error: Wait tells of it.
func Start(c *Command) (_ *Process, err error) {
	ctlRead, ctl, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the host runner: %w", err)
	}
	status, statusWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pipe from the host runner: %w", err), ctlRead.Close(), ctl.Close())
	}
	p := &Process{status: status, lines: bufio.NewReader(status), ctl: ctl}
	p.runner = exec.Command("/proc/self/exe")
	p.runner.Args = []string{role}
	p.runner.ExtraFiles = []*os.File{ctlRead, statusWrite}
	for _, f := range []struct {
		file *os.File
		to   func(*os.File)
	}{{c.Stdin, func(f *os.File) { p.runner.Stdin = f }}, {c.Stdout, func(f *os.File) { p.runner.Stdout = f }},
		{c.Stderr, func(f *os.File) { p.runner.Stderr = f }}} {
		if f.file != nil { // and no typed nil
			f.to(f.file)
		}
	}
	err = p.runner.Start()
	_ = ctlRead.Close()
	_ = statusWrite.Close()
	if err != nil {
		p.close()
		return nil, fmt.Errorf("start the host runner: %w", err)
	}
	line, err := json.Marshal(job{Argv: c.Argv, Dir: c.Dir, Env: c.Env, Group: !c.Terminal, ReadOnly: c.ReadOnly})
	if err == nil {
		_, err = ctl.Write(append(line, '\n'))
	}
	if err != nil {
		p.close()
		return nil, errors.Join(fmt.Errorf("tell the host runner what to run: %w", err), p.runner.Wait())
	}
	n, err := p.next()
	switch {
	case err != nil:
		p.close()
		return nil, errors.Join(fmt.Errorf("the host runner has ended before it ran anything: %w", err),
			p.runner.Wait())
	case n.Ended:
		p.over = End{ExitCode: n.Code, Error: n.Error, NotRun: true}
	default:
		p.PID = n.PID
	}
	return p, nil
}

func (p *Process) next() (n news, err error) {
	line, err := p.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &n)
	}
	return n, err
}

// close lets go of the runner, which then kills the command.
func (p *Process) close() {
	p.kill()
	_ = p.status.Close()
}

// kill has the runner kill the command with all that it has started.
func (p *Process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctl != nil {
		_ = p.ctl.Close()
		p.ctl = nil
	}
}

// Signal sends a signal, by its name, to the command: to its group where it has one of its own.
func (p *Process) Signal(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sig := unix.SignalNum(name); sig != 0 && p.ctl != nil {
		_, _ = fmt.Fprintf(p.ctl, "%d\n", int(sig)) // to one that has ended
	}
}

// Wait returns when the command has ended, and whatever it has left behind is killed. When ctx ends first, all of it is
// killed.
func (p *Process) Wait(ctx context.Context) End {
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	defer p.close()
	end := p.over
	if p.PID > 0 {
		n, err := p.next()
		if end = (End{ExitCode: n.Code, Signal: n.Signal, Error: n.Error}); err != nil {
			end = End{ExitCode: 128 + int(unix.SIGKILL), Signal: "SIGKILL",
				Error: "the process that held the command was killed: how the command ended is not known"}
		}
	}
	_, _ = io.Copy(io.Discard, p.status) // until the runner has killed what was left
	// It says all there is to say by its lines.
	_ = p.runner.Wait()
	return end
}

// Outcome is an end as exec.run's result has it.
func (e *End) Outcome(timedOut bool) api.ExecResult {
	r := api.ExecResult{ExitCode: e.ExitCode, Signal: e.Signal, TimedOut: timedOut, Error: e.Error, Killed: []int{},
		Denials: []api.Denial{}}
	switch {
	case e.NotRun:
		r.Verdict = api.VerdictNotRun
	case timedOut:
		r.Verdict = api.VerdictTimeoutWall
	case e.Signal != "":
		r.Verdict = api.VerdictSignal
	case e.ExitCode != 0:
		r.Verdict = api.VerdictNonzero
	default:
		r.Verdict = api.VerdictOK
	}
	return r
}
