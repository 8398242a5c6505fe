// Package scan has code looked through by hutch-scan, a process for each piece of code: code.scan. What reads code is third-party parsers that
// recurse, so their end must not be hutchd's, and what the code makes of them must have nothing.
//
// What is found is a hint, not a wall: see DESIGN.md.
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
	timeout  = 20 * time.Second
	atOnce   = 2       // workers: the others wait
	maxReply = 4 << 20 // of a worker, which is not trusted
	// refused is the exit status of a worker that has not begun (worker.ExitRefused; that package is C).
	refused = 3
)

// Scanner starts workers.
type Scanner struct {
	binary *os.File
	slots  chan struct{}
}

// New makes a Scanner whose workers are binary, hutch-scan, which it keeps; nil says that it is not installed.
func New(binary *os.File) *Scanner {
	return &Scanner{binary: binary, slots: make(chan struct{}, atOnce)}
}

// Scan looks through code. A worker that does not come back with a result says that the code can not be read, which is a finding.
func (s *Scanner) Scan(ctx context.Context, p api.ScanParams) (api.ScanResult, error) {
	if s.binary == nil {
		return api.ScanResult{}, api.Errorf(api.FailedPrecondition, "hutch-scan is not installed, so no code can be looked through").
			WithOp(api.MethodCodeScan).WithHint("install hutch again: its binaries belong in one folder")
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return api.ScanResult{}, context.Cause(ctx)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return api.ScanResult{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := s.run(bounded, text)
	switch {
	case ctx.Err() != nil:
		return api.ScanResult{}, context.Cause(ctx)
	case bounded.Err() != nil:
		return unreadable(p.Language, fmt.Sprintf("the parser takes longer than %s", timeout)), nil
	case errors.Is(err, errNotBegun):
		return api.ScanResult{}, err
	case err != nil:
		return unreadable(p.Language, "the parser was ended by it"), nil
	}
	return checked(p.Language, out), nil
}

// errNotBegun is behind failures that the code has no part in.
var errNotBegun = errors.New("the scanning worker did not begin")

// run starts a worker and waits for its end, which the end of ctx brings.
func (s *Scanner) run(ctx context.Context, request []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", s.binary.Fd()))
	cmd.Args = []string{"hutch-scan"}
	cmd.Env = []string{"GOMAXPROCS=2", "GOTRACEBACK=none"}
	cmd.SysProcAttr = alone()
	out, log := &limited{max: maxReply}, &limited{max: 4096}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), out, log
	release, err := sys.StartHeld(cmd.Start)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotBegun, err)
	}
	defer release()
	err = cmd.Wait()
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() == refused {
		return nil, fmt.Errorf("%w: %s", errNotBegun, strings.TrimSpace(string(log.data)))
	}
	return out.data, err
}

// alone are namespaces of every kind. In its user namespace the worker is nobody, and so loses every capability when it is executed.
func alone() *syscall.SysProcAttr {
	const nobody = 65534
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
}

// unreadable is the result where there is none: nothing is known of the code.
func unreadable(language, text string) api.ScanResult {
	return api.ScanResult{
		Language: language, Risky: true, Imports: []api.ScanImport{},
		Findings: []api.Finding{{
			Rule: api.RuleUnreadable, Category: api.CategoryUnparsable, Severity: api.SeverityHigh, Line: 1, Column: 1, Text: text,
			Why: "it can not be read within the bounds of time and memory: nothing is known of it",
		}},
	}
}

// checked is a worker's answer, as far as it can be one: the code may have taken the worker over.
func checked(language string, out []byte) api.ScanResult {
	var r api.ScanResult
	if err := json.Unmarshal(out, &r); err != nil || len(r.Findings) > api.MaxFindings || len(r.Imports) > api.MaxScanImports {
		return unreadable(language, "the parser gives no result")
	}
	r.Language = language
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Line < 1 || f.Column < 1 || !utf8.ValidString(f.Text) {
			return unreadable(language, "the parser gives no result")
		}
		r.Risky = r.Risky || f.Severity != api.SeverityLow
	}
	if r.Findings == nil {
		r.Findings = []api.Finding{}
	}
	if r.Imports == nil {
		r.Imports = []api.ScanImport{}
	}
	return r
}

// limited keeps the first max bytes and drops the rest.
type limited struct {
	data []byte
	max  int
}

func (b *limited) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), b.max-len(b.data))]...)
	return len(p), nil
}
