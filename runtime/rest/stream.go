package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// keepAlive is how often a stream on which nothing happens says that it is there: proxies end what is silent for long.
const keepAlive = 15 * time.Second

// events writes server-sent events.
type events struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// stream begins an answer of events.
func stream(w http.ResponseWriter) *events {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", sse+"; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	return &events{w, rc}
}

// send sends one event. Its data is one line, as JSON has it.
func (e *events) send(id, name string, data any) error {
	text, err := encode(data)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.w, "id: %s\nevent: %s\ndata: %s\n\n", id, name, text); err != nil {
		return err
	}
	return e.rc.Flush()
}

// still says that the stream is there.
func (e *events) still() error {
	if _, err := io.WriteString(e.w, ": still here\n\n"); err != nil {
		return err
	}
	return e.rc.Flush()
}

// Output is the data of the events stdout and stderr.
type Output struct {
	Data     string       `json:"data"`
	Encoding api.Encoding `json:"encoding"`
	Offset   int64        `json:"offset" doc:"of the first byte in its stream"`
	Dropped  int64        `json:"dropped,omitempty" doc:"bytes before it that are lost: the stream was read too late"`
}

// place is how much of a process' output a client has: the id of an event.
type place struct{ api.Offsets }

func (p place) String() string {
	return strconv.FormatInt(p.Stdout, 10) + "-" + strconv.FormatInt(p.Stderr, 10)
}

// placeOf reads Last-Event-ID. Without one a stream begins at its beginning.
func placeOf(r *http.Request) (p place, err error) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		return p, nil
	}
	out, errs, _ := strings.Cut(id, "-")
	var oerr, eerr error
	p.Stdout, oerr = strconv.ParseInt(out, 10, 64)
	p.Stderr, eerr = strconv.ParseInt(errs, 10, 64)
	if oerr != nil || eerr != nil || p.Stdout < 0 || p.Stderr < 0 {
		return p, api.Errorf(api.InvalidArgument, "Last-Event-ID: %q is not of this stream", id).
			WithField("Last-Event-ID").WithHint("send the id of the last event as it came")
	}
	return p, nil
}

// runStream starts a process and follows it. It goes on when the client goes.
func (s *Server) runStream(w http.ResponseWriter, r *http.Request, p api.ExecParams) error {
	started, err := do(r.Context(), s, api.CallExecStart, p)
	if res, ok := notRun(err); ok {
		return stream(w).send(place{}.String(), "end", res)
	}
	if err == nil && p.Stdin == "" && p.Pty == nil { // which is open, as of one that is fed
		_, err = do(r.Context(), s, api.CallExecEOF, api.ExecRef{Exec: started.Exec})
		if api.ErrorCode(err) == api.FailedPrecondition { // it has ended
			err = nil
		}
	}
	if err != nil {
		return err
	}
	e, err := do(r.Context(), s, api.CallExecGet, api.ExecRef{Exec: started.Exec})
	if err != nil {
		return err
	}
	w.Header().Set("Location", r.URL.Path+"/"+e.Exec)
	return s.output(w, r, &e, place{})
}

// follow streams a process that was started before.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) (any, error) {
	from, err := placeOf(r)
	if err != nil {
		return nil, err
	}
	e, err := s.process(r)
	if err != nil {
		return nil, err
	}
	return nil, s.output(w, r, &e, from)
}

// output sends what a process writes, from a place on, and how it ends. A daemon that is replaced meanwhile has its
// output still.
func (s *Server) output(w http.ResponseWriter, r *http.Request, e *api.Exec, at place) error {
	ctx := r.Context()
	a, err := s.Attach(ctx, e.Exec, at.Offsets)
	if err != nil {
		return err // as a problem: nothing is sent yet
	}
	f := follower{out: stream(w), at: at}
	if err := f.out.send(at.String(), "start", processOf(e)); err != nil {
		return nil //nolint:nilerror // the client is gone
	}
	for {
		err := f.pass(ctx, a)
		_ = a.Close() // of a connection that may be lost
		switch {
		case errors.Is(err, io.EOF):
			f.end(a)
			return nil
		case !errors.Is(err, client.ErrLost) || ctx.Err() != nil:
			return nil // the client is gone
		}
		f.rest = [2][]byte{} // it comes again
		if a, err = s.Attach(ctx, e.Exec, f.at.Offsets); err != nil {
			_ = f.out.send(f.at.String(), "error", ProblemOf(err))
			return nil
		}
	}
}

// Attach follows the output of a process from a place on.
func (s *Server) Attach(ctx context.Context, exec string, from api.Offsets) (*client.Attachment, error) {
	c, err := s.client(ctx)
	if err != nil {
		return nil, err
	}
	return c.Attach(ctx, exec, client.AttachOptions{From: from, Window: 256 << 10})
}

// follower sends a process' output to one client.
type follower struct {
	out *events
	at  place // what the client has
	// rest is, of each stream, the beginning of a character whose end has not come yet, so that text stays text.
	rest [2][]byte
}

// pass sends pieces until the end, or until somebody is gone.
func (f *follower) pass(ctx context.Context, a *client.Attachment) error {
	for {
		quiet, cancel := context.WithTimeout(ctx, keepAlive)
		o, err := a.Next(quiet)
		cancel()
		switch {
		case err == nil:
			err = f.piece(o)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			err = f.out.still()
		}
		if err != nil {
			return err
		}
	}
}

// piece sends what came, but for a character that is not whole.
func (f *follower) piece(o client.Output) error {
	i, at := 0, &f.at.Stdout
	if o.Stream == api.Stderr {
		i, at = 1, &f.at.Stderr
	}
	data, from := o.Data, o.Offset
	if o.Dropped == 0 {
		data, from = append(f.rest[i], o.Data...), o.Offset-int64(len(f.rest[i]))
	}
	cut := len(data) - partial(data)
	f.rest[i] = bytes.Clone(data[cut:])
	if cut == 0 {
		return nil
	}
	*at = from + int64(cut)
	return f.say(o.Stream, data[:cut], from, o.Dropped)
}

func (f *follower) say(stream api.Stream, data []byte, from, dropped int64) error {
	p := Output{Offset: from, Dropped: dropped, Encoding: api.Text, Data: string(data)}
	if !utf8.Valid(data) {
		p.Data, p.Encoding = base64.StdEncoding.EncodeToString(data), api.Base64
	}
	return f.out.send(f.at.String(), string(stream), p)
}

// end sends what is left, and how the process ended.
func (f *follower) end(a *client.Attachment) {
	f.at.Offsets = a.Offsets()
	for i, stream := range []api.Stream{api.Stdout, api.Stderr} {
		if n := int64(len(f.rest[i])); n > 0 {
			_ = f.say(stream, f.rest[i], []int64{f.at.Stdout, f.at.Stderr}[i]-n, 0)
		}
	}
	res, _ := a.Result()
	_ = f.out.send(f.at.String(), "end", resultOf(&res)) // or the client is gone
}

// partial is how many bytes at the end of data are the beginning of a character.
func partial(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if last := data[len(data)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// accepts reports whether a client asks for a media type by name.
func accepts(r *http.Request, want string) bool {
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			if t, _, err := mime.ParseMediaType(part); err == nil && t == want {
				return true
			}
		}
	}
	return false
}

// number reads a number of the query; nil is none.
func number(r *http.Request, name string) (*float64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%s: %q is no number", name, text).WithField(name).
			WithHint("give a number that is not negative")
	}
	return &v, checkSeconds(name, &v)
}
