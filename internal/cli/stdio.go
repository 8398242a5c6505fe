package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// StdioOptions say which of the caller's files a command gets.
type StdioOptions struct {
	Stdin, Stdout, Stderr *os.File
	// Interactive connects a terminal on stdin. Any other stdin is connected
	// without being asked for: it cannot be there by accident.
	Interactive bool
	// TTY gives the command a terminal of its own; the caller's terminal is
	// connected to that.
	TTY bool
	// Detach are the keys that are not passed on from a terminal; nil is none.
	Detach *DetachKeys
	// Owner is the kernel uid of uid 0 in the sandbox.
	Owner uint32
}

// Stdio connects the caller's standard files with those of one command:
//
//	pipe, FIFO, /dev/null and the like              passed as they are
//	regular file, socket, terminal, other devices   a fresh pipe, pumped
//	directory, O_PATH fd, block device              refused
//
// A pipe that belongs to another user than the sandbox's is pumped too. Where
// stdout and stderr are the same file they share one pipe, which keeps the order
// of what is written through both.
type Stdio struct {
	// Stdin, Stdout and Stderr are what the command gets; nil is /dev/null. They
	// stay Stdio's.
	Stdin, Stdout, Stderr *os.File

	opts StdioOptions
	ours []*os.File // the command's ends of pipes that were made for it
	out  []*outPump
	in   *inPump
}

// OpenStdio classifies the caller's files and starts the pumps they need. The
// caller must call Close, after Finish if the command ran.
func OpenStdio(opts StdioOptions) (_ *Stdio, err error) {
	s := &Stdio{opts: opts}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.openOutput(); err != nil {
		return nil, err
	}
	if err := s.openInput(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Stdio) openOutput() error {
	stdout, err := classify("standard output", s.opts.Stdout, s.opts.Owner)
	if err != nil {
		return err
	}
	if s.Stdout, err = s.output("standard output", stdout); err != nil || s.opts.TTY {
		return err // a terminal has one stream
	}
	stderr, err := classify("standard error", s.opts.Stderr, s.opts.Owner)
	if err != nil {
		return err
	}
	if stderr.same == stdout.same && stdout.kind != direct {
		s.Stderr = s.Stdout
		return nil
	}
	s.Stderr, err = s.output("standard error", stderr)
	return err
}

func (s *Stdio) output(name string, e endpoint) (*os.File, error) {
	if e.kind == direct {
		return e.file, nil
	}
	kept, passed, err := newPipe(s.opts.Owner, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.ours = append(s.ours, passed)
	s.out = append(s.out, startOut(name, kept, e.file))
	return passed, nil
}

func (s *Stdio) openInput() error {
	e, err := classify("standard input", s.opts.Stdin, s.opts.Owner)
	if err != nil {
		return err
	}
	if e.kind == direct {
		s.Stdin = e.file
		return nil
	}
	if e.kind == terminal && !s.opts.Interactive && !s.opts.TTY {
		return nil // nothing: the command reads /dev/null
	}
	kept, passed, err := newPipe(s.opts.Owner, false)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	s.ours = append(s.ours, passed)
	if s.in, err = startIn(e.file, kept, s.opts.Detach); err != nil {
		return errors.Join(fmt.Errorf("standard input: %w", err), kept.Close())
	}
	s.Stdin = passed
	return nil
}

// Sent closes hutch's copies of the command's ends. To be called once the
// request is with the daemon, so that the command's closing its stdin is noticed.
func (s *Stdio) Sent() {
	for _, f := range s.ours {
		f.Close()
	}
	s.ours = nil
}

// Finish hands the rest of an ended command's output to the caller and returns
// when the last byte is written. A done ctx gives up on a caller that does not
// read. The error is that of an output the caller cannot have noticed: a reader
// that went away is none.
func (s *Stdio) Finish(ctx context.Context) error {
	s.Sent()
	for _, p := range s.out {
		p.finish()
	}
	var errs []error
	for _, p := range s.out {
		select {
		case <-p.done:
			if !readerGone(p.err) {
				errs = append(errs, p.err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.Join(append(errs, s.finishInput())...)
}

func (s *Stdio) finishInput() error {
	if s.in == nil {
		return nil
	}
	s.in.finish()
	<-s.in.done
	return s.in.err
}

// Close ends the pumps without waiting for a caller that does not read. It may
// be called at any time, also twice.
func (s *Stdio) Close() {
	s.Sent()
	for _, p := range s.out {
		p.finish()
	}
	_ = s.finishInput() // Finish reported it, or there is no command to report about
}
