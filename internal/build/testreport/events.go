// Package testreport reads what tests print as the go command's events, and says in
// the end what ran, what failed, and what could not run and why.
package testreport

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds, of a test that has ended
	Key     string  // of an attribute (testing.T.Attr)
	Value   string
}

// Outcome is how one test ended for one kind of user.
type Outcome struct {
	Name    string // mustrun.Name
	Action  string // pass, fail, skip, or unstable: see MarkUnstable
	Reason  string // of a skip: what the test said; of a failure: what it logged, shortened, a line each
	Elapsed time.Duration
	// Late says of a failure that nothing is wrong but a wait that ran out (testenv.Late): it may have been the
	// machine.
	Late   bool
	Output string // of a late failure: all that it printed; of an unstable test, what its further runs printed, too
}

// Reader turns event streams into what a person wants to read: the lines plain
// `go test` prints, plus the outcome of every test.
type Reader struct {
	out      io.Writer
	module   string // import path that is cut off package names
	label    string // kind of user, shown behind a package's line
	Outcomes []Outcome
	// pending holds the output of tests that have not ended, by package and test:
	// shown when they fail, dropped when they pass.
	pending map[[2]string]*strings.Builder
	// late and wrong are the tests that said so of themselves (testenv.Late, testenv.Wrong), by package and test.
	late, wrong map[[2]string]bool
	Failed      bool
	exited      int // outcomes that Exit has seen
}

// NewReader makes one that prints to out. label, when there is one, is shown behind
// the line of each package.
func NewReader(out io.Writer, module, label string) *Reader {
	return &Reader{out: out, module: module, label: label, pending: map[[2]string]*strings.Builder{},
		late: map[[2]string]bool{}, wrong: map[[2]string]bool{}}
}

// Read consumes one stream until its end. Lines that are not events come from
// the go command itself (an invalid flag, say) and are passed on.
func (r *Reader) Read(stream io.Reader) error {
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

func (r *Reader) handle(e event) {
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
	case "attr":
		switch e.Key {
		case testenv.LateAttr:
			r.late[key] = true
		case testenv.WrongAttr:
			r.wrong[key] = true
		}
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.Failed = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(key, e)
		}
	}
}

// packageLine shows what a package itself prints, but for the noise.
func (r *Reader) packageLine(e event) {
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

func (r *Reader) endTest(key [2]string, e event) {
	o := Outcome{Name: r.name(e), Action: e.Action, Elapsed: time.Duration(e.Elapsed * float64(time.Second))}
	output := ""
	if b := r.pending[key]; b != nil {
		output = b.String()
	}
	delete(r.pending, key)
	switch e.Action {
	case "fail":
		r.Failed = true
		fmt.Fprint(r.out, withoutProgress(output))
		o.Reason = logged(output)
		if o.Late = r.isLate(key, o.Reason); o.Late {
			o.Output = withoutProgress(output)
		}
	case "skip":
		o.Reason = skipReason(output)
	}
	r.Outcomes = append(r.Outcomes, o)
}

// isLate reports whether a failed test failed for a wait that ran out, and nothing else: it said so, or it said nothing
// at all and each of its failed subtests did. A panic, a race or any other word of its own is not late.
func (r *Reader) isLate(key [2]string, logged string) bool {
	if r.wrong[key] || strings.Contains(logged, "race detected during execution") {
		return false
	}
	if r.late[key] {
		return true
	}
	below := false
	for _, o := range r.Outcomes {
		if o.Action == "fail" && strings.HasPrefix(o.Name, r.name(event{Package: key[0], Test: key[1]})+"/") {
			if !o.Late {
				return false
			}
			below = true
		}
	}
	return below && logged == ""
}

// endPackage shows the tests that a panic, a time-out or os.Exit cut short: they
// never report an end of their own.
func (r *Reader) endPackage(e event) {
	for key, b := range r.pending {
		if key[0] != e.Package {
			continue
		}
		delete(r.pending, key)
		if e.Action == "fail" {
			fmt.Fprint(r.out, withoutProgress(b.String()))
			r.Outcomes = append(r.Outcomes, Outcome{Name: r.name(event{Package: key[0], Test: key[1]}), Action: "fail",
				Reason: logged(b.String())})
		}
	}
	if e.Action == "fail" {
		r.Failed = true
	}
}

// CutShort ends a package, an import path, whose tests went away without a word.
func (r *Reader) CutShort(pkg string) { r.endPackage(event{Action: "fail", Package: pkg}) }

// Exit ends a run of the compiled tests of pkg, an import path, that ended with code, of which test2json is not told.
// What no failed test of that run explains is a failure of its own, and final: a leak that was found behind the tests,
// a race, a signal.
func (r *Reader) Exit(pkg string, code int) {
	if code != 0 {
		r.CutShort(pkg)
		if code != 1 || !slices.ContainsFunc(r.Outcomes[r.exited:],
			func(o Outcome) bool { return o.Action == "fail" }) {
			name := r.name(event{Package: pkg, Test: fmt.Sprintf("exit status %d", code)})
			r.Outcomes = append(r.Outcomes,
				Outcome{Name: name, Action: "fail", Reason: "the tests end so, whatever they say of themselves"})
		}
	}
	r.exited = len(r.Outcomes)
}

func (r *Reader) name(e event) string {
	pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, r.module), "/")
	return pkg + "." + e.Test
}

var progress = regexp.MustCompile(`(?m)^=== (RUN|PAUSE|CONT|NAME|ATTR) .*\n`)

// withoutProgress drops the lines that only -v prints.
func withoutProgress(output string) string {
	return progress.ReplaceAllString(output, "")
}

var logLine = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// What the summary repeats of a failure: who reads the end of a long log has the cause there.
const (
	maxLogged = 6   // lines, the last ones
	maxLine   = 300 // bytes
)

// logged is what a test has logged, the begin of each of the last lines.
func logged(output string) string {
	var list []string
	for line := range strings.Lines(withoutProgress(output)) {
		if line = strings.TrimSpace(line); logLine.MatchString(" " + line) {
			list = append(list, strings.ToValidUTF8(line[:min(len(line), maxLine)], ""))
		}
	}
	return strings.Join(list[max(0, len(list)-maxLogged):], "\n")
}

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
