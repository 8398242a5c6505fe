package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// outcome is how one test ended for one kind of user.
type outcome struct {
	name   string // mustrun.Name
	action string // pass, fail or skip
	reason string // of a skip: what the test said
}

// reader turns event streams into what a person wants to read: the lines plain
// `go test` prints, plus the outcome of every test.
type reader struct {
	out      io.Writer
	module   string // import path that is cut off package names
	label    string // kind of user, shown behind a package's line
	outcomes []outcome
	// pending holds the output of tests that have not ended, by package and test:
	// shown when they fail, dropped when they pass.
	pending map[[2]string]*strings.Builder
	failed  bool
}

func newReader(out io.Writer, module, label string) *reader {
	return &reader{out: out, module: module, label: label, pending: map[[2]string]*strings.Builder{}}
}

// read consumes one stream until its end. Lines that are not events come from
// the go command itself (an invalid flag, say) and are passed on.
func (r *reader) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(r.out, line)
			} else {
				r.handle(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *reader) handle(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "output":
		if e.Test == "" {
			r.packageLine(e)
			return
		}
		b := r.pending[key]
		if b == nil {
			b = &strings.Builder{}
			r.pending[key] = b
		}
		b.WriteString(e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.failed = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(key, e)
		}
	}
}

// packageLine shows what a package itself prints, but for the noise.
func (r *reader) packageLine(e event) {
	line := strings.TrimSuffix(e.Output, "\n")
	switch {
	case line == "PASS", line == "FAIL", line == "testing: warning: no tests to run",
		strings.HasSuffix(line, "[no test files]"), strings.HasSuffix(line, "[no tests to run]"):
		return
	}
	if r.label != "" && (strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "FAIL\t")) {
		line += "\t(" + r.label + ")"
	}
	fmt.Fprintln(r.out, line)
}

func (r *reader) endTest(key [2]string, e event) {
	o := outcome{name: r.name(e), action: e.Action}
	output := ""
	if b := r.pending[key]; b != nil {
		output = b.String()
	}
	delete(r.pending, key)
	switch e.Action {
	case "fail":
		r.failed = true
		fmt.Fprint(r.out, withoutProgress(output))
	case "skip":
		o.reason = skipReason(output)
	}
	r.outcomes = append(r.outcomes, o)
}

// endPackage shows the tests that a panic, a time-out or os.Exit cut short: they
// never report an end of their own.
func (r *reader) endPackage(e event) {
	for key, b := range r.pending {
		if key[0] != e.Package {
			continue
		}
		delete(r.pending, key)
		if e.Action == "fail" {
			fmt.Fprint(r.out, withoutProgress(b.String()))
			r.outcomes = append(r.outcomes, outcome{name: r.name(event{Package: key[0], Test: key[1]}), action: "fail"})
		}
	}
	if e.Action == "fail" {
		r.failed = true
	}
}

func (r *reader) name(e event) string {
	pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, r.module), "/")
	return pkg + "." + e.Test
}

var progress = regexp.MustCompile(`(?m)^=== (RUN|PAUSE|CONT|NAME) .*\n`)

// withoutProgress drops the lines that only -v prints.
func withoutProgress(output string) string {
	return progress.ReplaceAllString(output, "")
}

var logLine = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// skipReason is what a skipped test logged last: testing prints the arguments of
// Skip as a log line, further lines of it indented by eight spaces.
func skipReason(output string) string {
	var reason []string
	for line := range strings.Lines(withoutProgress(output)) {
		line = strings.TrimSuffix(line, "\n")
		if at := logLine.FindString(line); at != "" {
			reason = []string{line[len(at):]}
		} else if rest, ok := strings.CutPrefix(line, "        "); ok && reason != nil {
			reason = append(reason, rest)
		}
	}
	if reason == nil {
		return "no reason given"
	}
	return strings.Join(reason, " ")
}
