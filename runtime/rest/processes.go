package rest

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

func processRoutes() []route {
	return []route{
		{method: "POST", path: oneSandbox + "/processes", name: "runProcess", tag: "processes", body: of[NewProcess](),
			answer: of[Result](), media: []string{sse}, headers: []parameter{lastEventID},
			summary: "Runs a process and answers when it has ended.",
			notes: "A process that fails is no failed request: see exitCode and verdict. It is killed when the client " +
				"goes. With Accept: text/event-stream output comes as it is written: events start, stdout, stderr and " +
				"end; the process then goes on when the client goes, and the stream goes on with a GET of its events. " +
				"With background the answer is 201 and its record, as soon as it runs.",
			also:  map[int]string{http.StatusCreated: "It runs in the background; the body is its record."},
			serve: (*Server).run},
		{method: "GET", path: oneSandbox + "/processes", name: "listProcesses", tag: "processes",
			answer: of[Processes](), summary: "Lists the processes that were started here and run, or ended lately.",
			paged: true,
			serve: func(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
				all, err := do(r.Context(), s, api.CallExecList, api.SandboxParams{Sandbox: ref(r)})
				if err != nil {
					return nil, err
				}
				mine := slices.DeleteFunc(all.Execs, func(e api.Exec) bool { return e.Kept }) // interpreters and shells
				page, err := Paged(w, r, mine, true, func(e *api.Exec) (time.Time, string) { return e.Started, e.Exec })
				return Processes{Processes: list(page, processOf)}, err
			}},
		{method: "GET", path: oneProcess, name: "getProcess", tag: "processes", answer: of[Process](),
			summary: "Returns the record of a process.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				e, err := s.process(r)
				return processOf(&e), err
			})},
		{method: "GET", path: oneProcess + "/result", name: "getResult", tag: "processes", answer: of[Result](),
			summary: "Waits until a process has ended, and returns how.",
			notes:   "It never kills it. When the wait is over the answer is 504.",
			query: []parameter{{name: "wait", kind: "number", doc: "seconds; default until it ends"},
				{name: "outputMax", kind: "integer", doc: "bytes of each stream; default 1 MiB"}},
			serve: plain((*Server).result)},
		{method: "GET", path: oneProcess + "/events", name: "streamProcess", tag: "processes", media: []string{sse},
			code: http.StatusOK, headers: []parameter{lastEventID},
			summary: "Streams the output of a process, from its beginning or from the event after Last-Event-ID, and its end.",
			serve:   (*Server).follow},
		{method: "POST", path: oneProcess + "/stdin", name: "writeStdin", tag: "processes", body: of[Input](),
			summary: "Writes to the stdin of a process that was started with background, and closes it if asked to.",
			notes:   "It answers when all of it is in the pipe.", serve: asked((*Server).write)},
		{method: "POST", path: oneProcess + "/signal", name: "signalProcess", tag: "processes", body: of[Signal](),
			summary: "Sends a signal to a process.",
			serve: asked(func(s *Server, r *http.Request, b *Signal) (any, error) {
				e, err := s.process(r)
				if err == nil {
					_, err = do(r.Context(), s, api.CallExecSignal, api.SignalParams{Exec: e.Exec, Signal: b.Signal})
				}
				return nil, err
			})},
		{method: "PATCH", path: oneProcess, name: "updateProcess", tag: "processes", body: of[ProcessUpdate](),
			summary: "Sets the size of the terminal of a process.",
			serve: asked(func(s *Server, r *http.Request, b *ProcessUpdate) (any, error) {
				e, err := s.process(r)
				if err == nil && !e.TTY {
					err = api.Errorf(api.FailedPrecondition, "process %s has no terminal", e.Exec).WithField("tty").
						WithHint("start it with tty")
				}
				if err == nil {
					_, err = do(r.Context(), s, api.CallExecResize, api.ResizeParams{Exec: e.Exec, Pty: b.TTY.pty()})
				}
				return nil, err
			})},
		{method: "DELETE", path: oneProcess, name: "killProcess", tag: "processes", answer: of[Result](),
			summary: "Kills a process with all that it has started, and returns how it ended.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				e, err := s.process(r)
				if err != nil {
					return nil, err
				}
				return resulted(do(r.Context(), s, api.CallExecKill, api.ExecRef{Exec: e.Exec}))
			})},
	}
}

// params are the daemon's.
func (n *NewProcess) params(sandbox string) (api.ExecParams, error) {
	p := api.ExecParams{Sandbox: sandbox, Env: n.Env, Cwd: n.Cwd, User: n.User, Stdin: n.Stdin, Encoding: n.Encoding,
		TimeoutS: n.Timeout, OutputBytes: n.OutputMax}
	if n.Cmd == "" {
		return p, api.Errorf(api.InvalidArgument, "cmd: missing").WithField("cmd").
			WithHint(`give a program with args, or a command line: {"cmd": "python3", "args": ["-c", "print(6*7)"]}`)
	}
	if n.TTY != nil {
		if n.Stdin != "" {
			return p, api.Errorf(api.InvalidArgument, "stdin: given for a terminal").WithField("stdin").
				WithHint("POST to .../stdin what is to be typed")
		}
		pty := n.TTY.pty()
		p.Pty = &pty
	}
	if len(n.Args) == 0 {
		p.Command = n.Cmd
	} else {
		p.Argv = append([]string{n.Cmd}, n.Args...)
	}
	return p, checkSeconds("timeout", n.Timeout)
}

// run answers with the end of a process, with a stream of what it does, or with its record.
func (s *Server) run(w http.ResponseWriter, r *http.Request) (any, error) {
	var n NewProcess
	if err := body(w, r, &n); err != nil {
		return nil, err
	}
	p, err := n.params(ref(r))
	if err != nil {
		return nil, err
	}
	switch {
	case accepts(r, sse) && n.Background:
		return nil, api.Errorf(api.InvalidArgument, "background: given for a stream").WithField("background").
			WithHint("leave it out; or start it so and GET its events")
	case accepts(r, sse):
		return nil, s.runStream(w, r, p)
	case n.Background:
		p.Background = !n.OpenStdin && n.TTY == nil
		return nil, s.start(w, r, p)
	case n.TTY != nil:
		return nil, api.Errorf(api.InvalidArgument, "tty: given without a stream").WithField("tty").
			WithHint("ask for one with Accept: text/event-stream, or give background and GET its events")
	case n.OpenStdin:
		return nil, api.Errorf(api.InvalidArgument, "openStdin: given without background").WithField("openStdin").
			WithHint("give stdin; or start it with background and POST to its stdin")
	}
	return resulted(do(r.Context(), s, api.CallExecRun, p))
}

func resulted(res api.ExecResult, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return resultOf(&res), nil
}

// start starts a process whose stdin stays open, and answers with its record.
func (s *Server) start(w http.ResponseWriter, r *http.Request, p api.ExecParams) error {
	started, err := do(r.Context(), s, api.CallExecStart, p)
	if res, ok := notRun(err); ok {
		failed := problem(http.StatusUnprocessableEntity, string(api.FailedPrecondition), res.Hint, "%s", res.Error)
		failed.Field = "cmd"
		return failed
	}
	if err != nil {
		return err
	}
	e, err := do(r.Context(), s, api.CallExecGet, api.ExecRef{Exec: started.Exec})
	if err != nil {
		return err
	}
	w.Header().Set("Location", r.URL.Path+"/"+e.Exec)
	s.reply(w, r, http.StatusCreated, processOf(&e))
	return nil
}

// notRun is the result of a command that could not be run, as a plain run has it: with the exit code that shells use.
func notRun(err error) (Result, bool) {
	var e *api.Error
	if !errors.As(err, &e) || e.Field != "argv" {
		return Result{}, false
	}
	code := map[api.Code]int{api.NotFound: 127, api.FailedPrecondition: 126}[e.Code]
	return Result{ExitCode: code, Verdict: api.VerdictNotRun, Error: e.Error(), Hint: e.Hint,
		Encoding: Encodings{Stdout: api.Text, Stderr: api.Text}}, code != 0
}

// process finds the process of a request, which must be of its sandbox.
func (s *Server) process(r *http.Request) (api.Exec, error) {
	id := r.PathValue("process")
	e, err := do(r.Context(), s, api.CallExecGet, api.ExecRef{Exec: id})
	if err == nil && e.Sandbox != ref(r) {
		err = api.Errorf(api.NotFound, "no process %q in sandbox %s", id, ref(r)).
			WithHint("GET %s/processes lists them", r.URL.Path)
	}
	return e, err
}

func (s *Server) result(r *http.Request) (any, error) {
	e, err := s.process(r)
	if err != nil {
		return nil, err
	}
	p := api.WaitParams{Exec: e.Exec}
	if p.WaitS, err = number(r, "wait"); err != nil {
		return nil, err
	}
	if limit, err := number(r, "outputMax"); err != nil {
		return nil, err
	} else if limit != nil {
		p.OutputBytes = int64(*limit)
	}
	return resulted(do(r.Context(), s, api.CallExecWait, p))
}

func (s *Server) write(r *http.Request, in *Input) (any, error) {
	e, err := s.process(r)
	if err == nil && in.Data != "" {
		_, err = do(r.Context(), s, api.CallExecWrite,
			api.WriteParams{Exec: e.Exec, Data: in.Data, Encoding: in.Encoding})
	}
	if err == nil && in.Close {
		_, err = do(r.Context(), s, api.CallExecEOF, api.ExecRef{Exec: e.Exec})
	}
	return nil, err
}
