package rest

import (
	"net/http"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// runCode answers with what code has come to, or with a stream of what it writes before that.
func runCode(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	var c Code
	if err := body(w, r, &c); err != nil {
		return nil, err
	}
	p := api.CodeParams{Sandbox: ref(r), Language: c.Language, Code: c.Code, Context: c.Context, Fresh: c.Fresh}
	if p.Language == "" {
		p.Language = "python"
	}
	if c.Timeout != nil {
		p.TimeoutS = *c.Timeout
	}
	if !accepts(r, sse) {
		return answered(do(r.Context(), s, api.CallCodeRun, p))
	}
	return nil, s.streamCode(w, r, p)
}

// streamCode runs code and sends what it writes. Until it has written something, a failure is a problem as without.
func (s *Server) streamCode(w http.ResponseWriter, r *http.Request, p api.CodeParams) error {
	type end struct {
		res api.CodeResult
		err error
	}
	ctx := r.Context()
	news, ended := make(chan api.Progress), make(chan end, 1)
	p.Progress = true
	go func() {
		res, err := do(ctx, s, api.CallCodeRun, p, client.WithProgress(func(n api.Progress) {
			select {
			case news <- n:
			case <-ctx.Done(): // the call ends by it, too
			}
		}))
		ended <- end{res, err}
	}()
	var out *events
	at := place{}
	begin := func() {
		if out == nil {
			out = stream(w)
		}
	}
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	for {
		select {
		case n := <-news:
			if n.Kind != api.ProgressOutput {
				continue
			}
			begin()
			offset := &at.Stdout
			if n.Stream == api.Stderr {
				offset = &at.Stderr
			}
			o := Output{Data: n.Text, Encoding: api.Text, Offset: *offset}
			*offset += int64(len(n.Text))
			_ = out.send(at.String(), string(n.Stream), o) // or the client is gone, and with it the call
		case <-quiet.C:
			begin()
			_ = out.still()
		case e := <-ended:
			switch {
			case e.err == nil:
				begin()
				return out.send(at.String(), "end", e.res)
			case out == nil:
				return e.err
			}
			return out.send(at.String(), "error", ProblemOf(e.err))
		}
	}
}
