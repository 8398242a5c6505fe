// Package scan looks through code for what reaches beyond the program: code.scan. The parsers run in a process of their
// own for each scan (hutch-scan), because what they read is hostile: with no file system, no network, a few system
// calls, and bounds of memory and time.
package scan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Bounds of a scan.
const (
	// limit is how long one may take; 1 MiB of usual code takes well below a second.
	limit = 10 * time.Second
	// maxAnswer bounds what a worker may answer, in bytes.
	maxAnswer = 4 << 20
	// atOnce is how many run at a time: each may take what worker.MaxMemory says.
	atOnce = 2
)

// Scanner looks through code.
type Scanner struct {
	program *os.File // hutch-scan
	slots   chan struct{}
}

// New makes a Scanner that runs program, which becomes its own.
func New(program *os.File) *Scanner {
	return &Scanner{program: program, slots: make(chan struct{}, atOnce)}
}

// Close lets go of the program.
func (s *Scanner) Close() error { return s.program.Close() }

// errDied is why a worker gave no answer.
var errDied = errors.New("the scanning worker ended without an answer")

// request is what a worker is asked: engine.Request, which this package does not import.
type request struct {
	api.ScanParams
	Argv []string `json:"argv,omitempty"`
}

// Scan looks through code. Code that makes the parser fail is risky: that is a finding and no error.
func (s *Scanner) Scan(ctx context.Context, p api.ScanParams) (api.ScanResult, error) {
	return s.scan(ctx, request{ScanParams: p})
}

// Command looks through a command that no shell reads.
func (s *Scanner) Command(ctx context.Context, argv []string) (api.ScanResult, error) {
	return s.scan(ctx, request{ScanParams: api.ScanParams{Language: "command"}, Argv: argv})
}

func (s *Scanner) scan(ctx context.Context, p request) (api.ScanResult, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return api.ScanResult{}, context.Cause(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := s.work(bounded, p)
	switch {
	case ctx.Err() != nil:
		return api.ScanResult{}, context.Cause(ctx)
	case bounded.Err() != nil:
		return failed(p, fmt.Sprintf("the parser took longer than %s", limit)), nil
	case errors.Is(err, errDied):
		return failed(p, err.Error()), nil
	case err != nil:
		return api.ScanResult{}, err
	}
	return res, nil
}

// failed is the result of code that the parser cannot take.
func failed(p request, why string) api.ScanResult {
	return api.ScanResult{
		Language: p.Language, Risky: true, Imports: []api.ScanImport{},
		Findings: []api.Finding{{
			Rule: api.RuleUnreadable, Category: api.CategoryUnparsable, Severity: api.SeverityHigh, Line: 1, Column: 1,
			Why: "it cannot be looked at: " + why,
		}},
	}
}

// work has a worker look through code.
func (s *Scanner) work(ctx context.Context, p request) (api.ScanResult, error) {
	question, err := json.Marshal(p)
	if err != nil {
		return api.ScanResult{}, err
	}
	var out, log limitedBuffer
	out.max, log.max = maxAnswer, 2048
	// Not above the fds of standard input, output and error, which are all that the worker gets.
	program, path, err := sys.ForExec(s.program, []*os.File{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		return api.ScanResult{}, err
	}
	defer program.Close()
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Env, cmd.Dir = []string{"hutch-scan"}, []string{"GOMAXPROCS=2", "GOTRACEBACK=none"}, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), &out, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// Without id maps: it owns nothing, and has no capabilities once it runs the program.
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Pdeathsig: unix.SIGKILL,
	}
	release, err := sys.StartHeld(cmd.Start)
	if err != nil {
		return api.ScanResult{}, fmt.Errorf("start the scanning worker: %w", err)
	}
	defer release()
	end := cmd.Wait()
	// the code has no part in that
	if status := (*exec.ExitError)(nil); errors.As(end, &status) && status.ExitCode() == api.ScanNotBegun {
		return api.ScanResult{}, fmt.Errorf("confine the scanning worker: %s", oneLine(string(log.data)))
	}
	var res api.ScanResult
	if end == nil {
		d := json.NewDecoder(bytes.NewReader(out.data))
		d.DisallowUnknownFields()
		end = d.Decode(&res)
	}
	if end != nil {
		return api.ScanResult{}, fmt.Errorf("%w: %w: %s", errDied, end, oneLine(string(log.data)))
	}
	return bounded(p, res), nil
}

// bounded is an answer within the bounds that it should have anyway: the worker may have been taken over.
func bounded(p request, res api.ScanResult) api.ScanResult {
	res.Language = p.Language
	res.Truncated = res.Truncated || len(res.Findings) > api.MaxFindings || len(res.Imports) > api.MaxScanImports
	res.Findings = res.Findings[:min(len(res.Findings), api.MaxFindings)]
	res.Imports = res.Imports[:min(len(res.Imports), api.MaxScanImports)]
	for i := range res.Findings {
		f := &res.Findings[i]
		f.Text, f.Why, f.Rule = oneLine(f.Text), oneLine(f.Why), oneLine(f.Rule)
		f.Line, f.Column = max(f.Line, 1), max(f.Column, 1)
		res.Risky = res.Risky || f.Severity != api.SeverityLow
	}
	for i := range res.Imports {
		res.Imports[i].Module = oneLine(res.Imports[i].Module)
		res.Imports[i].Line = max(res.Imports[i].Line, 1)
	}
	if res.Findings == nil {
		res.Findings = []api.Finding{}
	}
	if res.Imports == nil {
		res.Imports = []api.ScanImport{}
	}
	return res
}

// oneLine is the beginning of a text, without what moves a terminal.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) > 240 {
		s = strings.ToValidUTF8(s[:240], "") + " ..."
	}
	return strings.TrimSpace(s)
}

// limitedBuffer keeps the first max bytes and drops the rest.
type limitedBuffer struct {
	data []byte
	max  int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), b.max-len(b.data))]...)
	return len(p), nil
}
