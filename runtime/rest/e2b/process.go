package e2b

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/rest"
)

const (
	bash = "/bin/bash"
	sh   = "/bin/sh"
	// maxWatched is the longest time, in seconds, that a process whose stdin is open may have.
	maxWatched = 1800
)

// envd is what E2B's daemon in a sandbox serves: processes and files.
type envd struct{ *Server }

func (s envd) routes() map[string]boxHandler {
	const process, files = "/process.Process/", "/filesystem.Filesystem/"
	return map[string]boxHandler{
		"POST " + process + "List":        unary(process+"List", s.list),
		"POST " + process + "Start":       stream(process+"Start", s.start),
		"POST " + process + "Connect":     stream(process+"Connect", s.connect),
		"POST " + process + "Update":      unary(process+"Update", s.resize),
		"POST " + process + "SendInput":   unary(process+"SendInput", s.sendInput),
		"POST " + process + "StreamInput": input(process+"StreamInput", s.streamInput),
		"POST " + process + "CloseStdin":  unary(process+"CloseStdin", s.closeStdin),
		"POST " + process + "SendSignal":  unary(process+"SendSignal", s.signal),

		"POST " + files + "Stat":             unary(files+"Stat", s.stat),
		"POST " + files + "MakeDir":          unary(files+"MakeDir", s.makeDir),
		"POST " + files + "Move":             unary(files+"Move", s.move),
		"POST " + files + "ListDir":          unary(files+"ListDir", s.listDir),
		"POST " + files + "Remove":           unary(files+"Remove", s.remove),
		"POST " + files + "WatchDir":         stream(files+"WatchDir", s.watchDir),
		"POST " + files + "CreateWatcher":    unary(files+"CreateWatcher", s.createWatcher),
		"POST " + files + "GetWatcherEvents": unary(files+"GetWatcherEvents", s.watcherEvents),
		"POST " + files + "RemoveWatcher":    unary(files+"RemoveWatcher", s.removeWatcher),
	}
}

// list lists what runs. Interpreters, shells that are kept and programs that watch are hutch's.
func (s envd) list(ctx context.Context, c *call, _ *empty) (*listResponse, error) {
	running, err := s.running(ctx, c)
	if err != nil {
		return nil, err
	}
	res := &listResponse{Processes: []processInfo{}}
	for _, e := range running {
		info := processInfo{PID: uint32(e.PID)} //nolint:gosec // of Linux: at most 22 bits
		if len(e.Argv) > 0 {
			info.Config = processConfig{Cmd: e.Argv[0], Args: e.Argv[1:]}
		} else {
			info.Config = processConfig{Cmd: sh, Args: []string{"-c", e.Command}}
		}
		res.Processes = append(res.Processes, info)
	}
	return res, nil
}

func (s envd) running(ctx context.Context, c *call) ([]api.Exec, error) {
	all, err := rest.Do(ctx, s.rest, api.CallExecList, api.SandboxParams{Sandbox: c.sb.ID})
	return slices.DeleteFunc(all.Execs, func(e api.Exec) bool {
		return e.Kept || e.State != api.ExecRunning || slices.Contains(e.Argv, watchProgram)
	}), err
}

// find finds the process that a request names, among those that run.
func (s envd) find(ctx context.Context, c *call, sel selector) (api.Exec, error) {
	if sel.PID == nil {
		return api.Exec{}, api.Errorf(api.InvalidArgument, "the process is not named by its pid").
			WithHint("tags are not kept")
	}
	running, err := s.running(ctx, c)
	if err != nil {
		return api.Exec{}, err
	}
	for _, e := range slices.Backward(running) { // a pid may come again
		if e.PID == int(*sel.PID) {
			return e, nil
		}
	}
	return api.Exec{}, api.Errorf(api.NotFound, "process with pid %d not found", *sel.PID)
}

// start starts a process and sends what it does. It outlives its client, but not the timeout that this names.
func (s envd) start(ctx context.Context, c *call, req *startRequest, send func(*eventResponse) error) error {
	p := api.ExecParams{Sandbox: c.sb.ID, Argv: append([]string{req.Process.Cmd}, req.Process.Args...),
		Env: req.Process.Envs, User: c.user, Background: req.PTY == nil && req.Stdin != nil && !*req.Stdin}
	if req.Process.Cwd != nil && *req.Process.Cwd != "" {
		p.Cwd = pathOf(c, *req.Process.Cwd)
	}
	if req.PTY != nil {
		p.Pty = &api.Pty{Rows: 24, Cols: 80}
		if size := req.PTY.Size; size != nil {
			p.Pty = size.api()
		}
	}
	p.TimeoutS = timeoutOf(ctx, p.Background || p.Pty != nil)
	started, err := rest.Do(ctx, s.rest, api.CallExecStart, p)
	if api.ErrorCode(err) == api.NotFound && p.Argv[0] == bash { // which small images do not have
		p.Argv[0] = sh
		if other, oerr := rest.Do(ctx, s.rest, api.CallExecStart, p); oerr == nil {
			started, err = other, nil
		}
	}
	if err != nil {
		return startError(err)
	}
	if err := send(&eventResponse{processEvent{Start: &startEvent{uint32(started.PID)}}}); err != nil { //nolint:gosec // as above
		return err
	}
	return s.follow(ctx, c, started.Exec, p.Pty != nil, api.Offsets{}, send)
}

// startError makes what keeps a process from being started the request's fault.
func startError(err error) error {
	p := rest.ProblemOf(err)
	if p.Field == "argv" || p.Field == "cwd" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New(messageOf(&p)))
	}
	if p.Field == "user" {
		return connect.NewError(connect.CodeUnauthenticated, errors.New(messageOf(&p)))
	}
	return err
}

// timeoutOf is what is left until a request's deadline, in seconds. A process whose stdin is open has one always.
func timeoutOf(ctx context.Context, free bool) *float64 {
	left := 0.0
	if end, ok := ctx.Deadline(); ok {
		left = max(math.Ceil(time.Until(end).Seconds()*1000)/1000, 0.001)
	}
	if !free && (left == 0 || left > maxWatched) {
		left = maxWatched
	}
	return &left
}

// api is a size that a terminal can have.
func (p *ptySize) api() *api.Pty {
	return &api.Pty{Rows: uint16(min(p.Rows, math.MaxUint16)), Cols: uint16(min(p.Cols, math.MaxUint16))} //nolint:gosec // bounded
}

// connect follows a process that runs, from now on.
func (s envd) connect(ctx context.Context, c *call, req *connectRequest, send func(*eventResponse) error) error {
	e, err := s.find(ctx, c, req.Process)
	if err != nil {
		return err
	}
	if err := send(&eventResponse{processEvent{Start: &startEvent{uint32(e.PID)}}}); err != nil { //nolint:gosec // as above
		return err
	}
	return s.follow(ctx, c, e.Exec, e.TTY, api.Offsets{Stdout: e.StdoutBytes, Stderr: e.StderrBytes}, send)
}

// follow sends what a process writes, and how it ends. A daemon that is replaced meanwhile has its output still.
func (s envd) follow(ctx context.Context, c *call, exec string, tty bool, from api.Offsets,
	send func(*eventResponse) error) error {
	for {
		a, err := s.rest.Attach(ctx, exec, from)
		if err != nil {
			return err
		}
		err = pass(ctx, c, a, tty, send)
		from = a.Offsets()
		_ = a.Close() // of a connection that may be lost
		switch {
		case errors.Is(err, io.EOF):
			res, _ := a.Result()
			end, err := ended(&res)
			if err != nil {
				return err
			}
			return send(&eventResponse{processEvent{End: end}})
		case !errors.Is(err, client.ErrLost) || ctx.Err() != nil:
			return err
		}
	}
}

// pass sends pieces until the end, or until somebody is gone.
func pass(ctx context.Context, c *call, a *client.Attachment, tty bool, send func(*eventResponse) error) error {
	for {
		quiet, cancel := context.WithTimeout(ctx, c.ping)
		o, err := a.Next(quiet)
		cancel()
		ev := processEvent{}
		switch {
		case err == nil && tty:
			ev.Data = &dataEvent{PTY: o.Data}
		case err == nil && o.Stream == api.Stderr:
			ev.Data = &dataEvent{Stderr: o.Data}
		case err == nil:
			ev.Data = &dataEvent{Stdout: o.Data}
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			ev.Keepalive = &empty{}
		default:
			return err
		}
		if err := send(&eventResponse{ev}); err != nil {
			return err
		}
	}
}

// ended is how a process ended, in the words that Go has for it.
func ended(res *api.ExecResult) (*endEvent, error) {
	switch res.Verdict {
	case api.VerdictTimeoutWall:
		return nil, connect.NewError(connect.CodeDeadlineExceeded, errors.New("the timeout of the process is over"))
	case api.VerdictSandbox:
		// Not by a lost connection, as E2B's proxy does: over HTTP/1.1 older SDKs know nothing of that.
		return nil, connect.NewError(connect.CodeUnavailable, errGone)
	}
	e := &endEvent{ExitCode: res.ExitCode, Exited: true, Status: "exit status " + strconv.Itoa(res.ExitCode)}
	if res.Signal != "" {
		e.ExitCode, e.Exited, e.Status = -1, false, "signal: "+res.Signal
	}
	if e.ExitCode != 0 {
		e.Error = &e.Status
		if res.Verdict != api.VerdictNonzero && res.Verdict != api.VerdictSignal {
			why := fmt.Sprintf("%s (%s)", e.Status, res.Verdict)
			e.Error = &why
		}
	}
	return e, nil
}

func (s envd) resize(ctx context.Context, c *call, req *updateRequest) (*empty, error) {
	e, err := s.find(ctx, c, req.Process)
	if err == nil && req.PTY != nil && req.PTY.Size != nil {
		_, err = rest.Do(ctx, s.rest, api.CallExecResize, api.ResizeParams{Exec: e.Exec, Pty: *req.PTY.Size.api()})
	}
	return &empty{}, err
}

func (s envd) sendInput(ctx context.Context, c *call, req *sendInputRequest) (*empty, error) {
	e, err := s.find(ctx, c, req.Process)
	if err == nil {
		err = s.write(ctx, &e, req.Input)
	}
	return &empty{}, err
}

// maxPiece bounds what is written by one call of the daemon's.
const maxPiece = 1 << 20

func (s envd) write(ctx context.Context, e *api.Exec, in processInput) error {
	if len(in.Stdin) > 0 && e.TTY || len(in.PTY) > 0 && !e.TTY {
		return api.Errorf(api.FailedPrecondition, "process %d takes input of the other kind", e.PID).
			WithHint("a terminal takes pty, another process stdin")
	}
	for piece := range slices.Chunk(append(in.Stdin, in.PTY...), maxPiece) {
		if _, err := rest.Do(ctx, s.rest, api.CallExecWrite, api.WriteParams{Exec: e.Exec, Encoding: api.Base64,
			Data: base64.StdEncoding.EncodeToString(piece)}); err != nil {
			return err
		}
	}
	return nil
}

// streamInput writes what comes to the process that the first message names.
func (s envd) streamInput(ctx context.Context, c *call, next func() (*streamInputRequest, error)) (*empty, error) {
	var e *api.Exec
	for {
		req, err := next()
		switch {
		case err == nil && req == nil && e == nil:
			return nil, api.Errorf(api.InvalidArgument, "the stream does not say for which process it is")
		case err != nil || req == nil:
			return &empty{}, err
		case req.Start != nil:
			found, err := s.find(ctx, c, req.Start.Process)
			if err != nil {
				return nil, err
			}
			e = &found
		case req.Data != nil && e == nil:
			return nil, api.Errorf(api.InvalidArgument, "data came before it was said for which process")
		case req.Data != nil:
			if err := s.write(ctx, e, req.Data.Input); err != nil {
				return nil, err
			}
		}
	}
}

func (s envd) closeStdin(ctx context.Context, c *call, req *connectRequest) (*empty, error) {
	e, err := s.find(ctx, c, req.Process)
	if err == nil && e.TTY {
		err = api.Errorf(api.FailedPrecondition, "process %d has a terminal", e.PID).WithHint("send it Ctrl-D: 0x04")
	}
	if err == nil {
		_, err = rest.Do(ctx, s.rest, api.CallExecEOF, api.ExecRef{Exec: e.Exec})
	}
	return &empty{}, err
}

func (s envd) signal(ctx context.Context, c *call, req *signalRequest) (*empty, error) {
	e, err := s.find(ctx, c, req.Process)
	if err != nil {
		return nil, err
	}
	if req.Signal == 9 { // with all that it has started
		_, err = rest.Do(ctx, s.rest, api.CallExecKill, api.ExecRef{Exec: e.Exec})
		return &empty{}, err
	}
	_, err = rest.Do(ctx, s.rest, api.CallExecSignal, api.SignalParams{Exec: e.Exec, Signal: "SIGTERM"})
	return &empty{}, err
}
