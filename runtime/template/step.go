package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// maxStepOutput is how much of the output of a step that fails goes into the error.
const maxStepOutput = 8 << 10

// step runs one step, the number i from 0.
func (s *Set) step(ctx context.Context, j *job, i int) error {
	st := &j.d.Spec.Steps[i]
	where := fmt.Sprintf("step %d of template %s", i+1, j.d.Spec.Name)
	if st.Line > 0 {
		where += fmt.Sprintf(" (line %d)", st.Line)
	}
	var err error
	switch {
	case st.Copy != nil:
		err = s.copy(ctx, j, i)
	case st.Folder != "":
		err = s.folder(ctx, j, st.Folder)
	default:
		return s.command(ctx, j, i, where)
	}
	if err != nil && context.Cause(ctx) == nil {
		return fmt.Errorf("%s, %s: %w", where, st.String(), err)
	}
	return err
}

// folder makes a folder as root of the sandbox.
func (s *Set) folder(ctx context.Context, j *job, path string) error {
	_, err := s.cfg.Boxes.Files.MakeFolder(ctx,
		api.FileMkdirParams{FileParams: api.FileParams{Sandbox: j.box, Path: path, User: "0"}, Parents: true})
	return err
}

// copy unpacks the files of a step, by the sandbox's own worker: no path of it is walked here.
func (s *Set) copy(ctx context.Context, j *job, i int) error {
	st := &j.d.Spec.Steps[i]
	if err := s.folder(ctx, j, st.Copy.Target); err != nil {
		return err
	}
	archive, err := s.context(j.d)
	if err != nil {
		return fmt.Errorf("the files of the template: %w", err)
	}
	defer archive.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- errors.Join(sendContext(w, archive, i), w.Close()) }()
	user := st.User
	if user == "" {
		user = "0"
	}
	zero := 0
	_, err = s.cfg.Boxes.Files.Unpack(ctx,
		api.FileUnpackParams{FileParams: api.FileParams{Sandbox: j.box, Path: st.Copy.Target, User: user}, FD: &zero,
			FDs: 1}, &given{r})
	_ = r.Close() // where it was not taken
	if serr := <-sent; err == nil && !errors.Is(serr, unix.EPIPE) {
		err = serr
	}
	return err
}

// given hands one file over.
type given struct{ f *os.File }

// Take implements packet.Taker.
func (g *given) Take(int) (*os.File, error) {
	fd, err := unix.FcntlInt(g.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate a pipe: %w", err)
	}
	return os.NewFile(uintptr(fd), "context"), nil
}

// command runs a command, and tells of its output as it comes.
func (s *Set) command(ctx context.Context, j *job, i int, where string) error {
	st := &j.d.Spec.Steps[i]
	if st.Cwd != "" {
		if err := s.folder(ctx, j, st.Cwd); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	timeout := st.TimeoutS
	if timeout == 0 {
		timeout = api.DefaultStepS
	}
	output := &tail{}
	res, err := s.exec(ctx, api.ExecParams{
		Sandbox: j.box, Argv: st.Argv, Command: st.Run, Env: environment(j.t, st), Cwd: st.Cwd, User: st.User,
		TimeoutS: &timeout, Background: true,
	}, func(data []byte) {
		output.write(data)
		j.tell(i+1, api.StepProgress{Output: strings.ToValidUTF8(string(data), "?")})
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("%s, %q: %w", where, st.String(), err)
	}
	if res.Verdict == api.VerdictOK {
		return nil
	}
	f := api.FailedStep{What: "step", Step: i + 1, Line: st.Line, Text: st.String(), ExitCode: res.ExitCode,
		Verdict: res.Verdict, Output: output.String()}
	why := fmt.Sprintf("exit code %d", res.ExitCode)
	if res.Verdict != api.VerdictNonzero {
		why = fmt.Sprintf("%s, exit code %d", res.Verdict, res.ExitCode)
	}
	text := ""
	if f.Output != "" {
		text = ":\n" + f.Output
	}
	correct := "correct the step in its file: hutch template create --replace -f FILE; or "
	if j.d.shipped {
		correct = ""
	}
	return api.Errorf(api.FailedPrecondition, "%s failed, %q: %s%s", where, f.Text, why, text).WithFailed(f).
		WithHint("nothing was kept; %stry this one again: hutch template build %s%s", correct, j.d.Spec.Name, denied(&res))
}

// denied says what was refused, or has failed, which may be why a step has failed.
func denied(res *api.ExecResult) string {
	for _, d := range res.Denials {
		if d.Kind == "net" {
			return fmt.Sprintf("; %s was refused (%s): build.network of the template decides", d.Target, d.Why)
		}
	}
	for _, f := range res.Failures {
		return "; " + f.Text()
	}
	return ""
}

// exec runs a command in the background and follows it to its end.
func (s *Set) exec(ctx context.Context, p api.ExecParams, write func([]byte)) (res api.ExecResult, err error) {
	started, err := s.cfg.Boxes.Execs.Start(ctx, exec.Request{Params: p, Started: func(string, int) {}})
	if err != nil {
		return res, err
	}
	a, err := s.cfg.Boxes.Execs.Attach(api.AttachParams{Exec: started.Exec})
	if err != nil {
		return res, err
	}
	buf := make([]byte, 32<<10)
	for {
		if err := a.Await(ctx, true, nil); err != nil {
			return res, err
		}
		for {
			piece, ok := a.Next(buf)
			if !ok {
				break
			}
			if piece.Exited != nil {
				return *piece.Exited, nil
			}
			if len(piece.Data) > 0 {
				write(piece.Data)
			}
		}
	}
}

// tail keeps the end of an output.
type tail struct {
	data []byte
	cut  bool
}

func (t *tail) write(data []byte) {
	t.data = append(t.data, data...)
	if over := len(t.data) - maxStepOutput; over > 0 {
		t.data, t.cut = append([]byte{}, t.data[over:]...), true
	}
}

func (t *tail) String() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.data), "?"))
	if t.cut {
		text = "[...]\n" + text
	}
	return text
}
