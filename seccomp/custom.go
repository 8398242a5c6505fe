package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Custom is a profile of the caller's own, in the form of the OCI runtime specification
// (config-linux.md, "Seccomp"). It is installed on top of PID 1's filter, so that it can
// take away and not give.
type Custom struct {
	action customAction // of calls without a rule
	rules  []customRule
}

// customRule is what a profile says about one call.
type customRule struct {
	line   int // where its entry begins in the text, from 1
	name   string
	action customAction
	args   []customArg // all must be true; at most one of each argument
}

// customAction is an action with its errno, where it has one.
type customAction struct {
	name  string
	errno uint
}

// customArg is one comparison of an argument.
type customArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// customEntry is an element of "syscalls".
type customEntry struct {
	Names    []string    `json:"names"`
	Action   string      `json:"action"`
	ErrnoRet *uint       `json:"errnoRet"`
	Args     []customArg `json:"args"`
	Comment  string      `json:"comment"` // not in the specification, but in everybody's files
}

// Actions and comparisons that a custom profile may have.
var (
	customActions = []string{
		"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_LOG", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS",
		"SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP",
	}
	customOps = []string{
		"SCMP_CMP_NE", "SCMP_CMP_LT", "SCMP_CMP_LE", "SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_MASKED_EQ",
	}
)

// maxCustomRules bounds the calls of all entries together, maxCustomPerCall the rules of one call: each is compared
// with the others.
const (
	maxCustomRules   = 4096
	maxCustomPerCall = 256
)

// ParseCustom reads a profile. What is wrong with it is an invalid_argument that names the
// line. Names of calls are looked at by CompileCustom, which knows them.
func ParseCustom(text string) (*Custom, error) {
	if len(text) > api.MaxSeccompProfile {
		return nil, customError("it has %d bytes, more than %d", len(text), api.MaxSeccompProfile)
	}
	r := customReader{text: text, dec: json.NewDecoder(strings.NewReader(text))}
	c, err := r.read()
	if err != nil {
		return nil, customError("line %d: %w", r.line, err)
	}
	return c, nil
}

// customError says what is wrong with a profile.
func customError(format string, args ...any) error {
	return api.Errorf(api.InvalidArgument, "seccomp_profile: "+format, args...).WithField("seccomp_profile").
		WithHint("the form is that of the OCI runtime specification: defaultAction, and syscalls with names, action and args")
}

// customReader reads a profile token by token, because encoding/json forgets where a value stood.
type customReader struct {
	text string
	dec  *json.Decoder
	line int // of what is being read
}

// mark notes the line of the next token.
func (r *customReader) mark() {
	at := int(r.dec.InputOffset())
	for at < len(r.text) && strings.ContainsRune(" \t\r\n,:", rune(r.text[at])) {
		at++
	}
	r.line = 1 + strings.Count(r.text[:at], "\n")
}

// value reads a value without unknown fields.
func (r *customReader) value(into any) error {
	r.mark()
	begin := r.line
	var raw json.RawMessage
	if err := r.dec.Decode(&raw); err != nil {
		return r.syntax(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
		r.line = begin + bytes.Count(raw[:min(int(bad.Offset), len(raw))], []byte("\n"))
		return fmt.Errorf("%s cannot be a %s", orThis(bad.Field), bad.Value)
	}
	return err
}

func orThis(field string) string {
	if field == "" {
		return "this"
	}
	return field
}

// syntax finds the line of an error in the JSON itself.
func (r *customReader) syntax(err error) error {
	at := int64(len(r.text))
	if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
		at = min(bad.Offset, at)
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends in the middle")
	}
	r.line = 1 + strings.Count(r.text[:at], "\n")
	return err
}

// open wants the delimiter d.
func (r *customReader) open(d json.Delim, what string) error {
	r.mark()
	t, err := r.dec.Token()
	if err != nil {
		return r.syntax(err)
	}
	if t != d {
		return fmt.Errorf("%s begins with %v, not with %v", what, t, d)
	}
	return nil
}

func (r *customReader) read() (*Custom, error) {
	if err := r.open('{', "the profile"); err != nil {
		return nil, err
	}
	var c Custom
	var action string
	var errno *uint
	actionLine := 1
	seen := map[string]bool{}
	for r.dec.More() {
		r.mark()
		key, err := r.dec.Token()
		if err != nil {
			return nil, r.syntax(err)
		}
		name, _ := key.(string)
		if seen[name] {
			return nil, fmt.Errorf("%q stands here a second time", name)
		}
		seen[name] = true
		switch name {
		case "defaultAction":
			if err = r.value(&action); err == nil {
				actionLine = r.line
			}
		case "defaultErrnoRet":
			err = r.value(&errno)
		case "architectures":
			err = r.architectures()
		case "flags":
			err = r.flags()
		case "syscalls":
			err = r.syscalls(&c)
		default:
			err = fmt.Errorf("%q is no field that hutch honours", name)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := r.dec.Token(); err != nil {
		return nil, r.syntax(err)
	}
	if r.mark(); strings.TrimSpace(r.text[r.dec.InputOffset():]) != "" {
		return nil, errors.New("something follows the profile")
	}
	r.line = actionLine
	var err error
	if c.action, err = parseAction("defaultAction", action, errno); err != nil {
		return nil, err
	}
	r.line, err = c.contradiction()
	return &c, err
}

// architectures must name the one that there is: commands of others are killed.
func (r *customReader) architectures() error {
	var list []string
	if err := r.value(&list); err != nil {
		return err
	}
	if len(list) > 0 && !slices.ContainsFunc(list, nativeArch) {
		return fmt.Errorf("architectures %v: this machine's is not among them", list)
	}
	return nil
}

// nativeArch reports whether an OCI name of an architecture is this machine's.
func nativeArch(name string) bool {
	return name == map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}[runtime.GOARCH]
}

// flags may be those that are in force anyway.
func (r *customReader) flags() error {
	var list []string
	if err := r.value(&list); err != nil {
		return err
	}
	for _, f := range list {
		if f != "SECCOMP_FILTER_FLAG_TSYNC" {
			return fmt.Errorf("the flag %q cannot be honoured", f)
		}
	}
	return nil
}

func (r *customReader) syscalls(c *Custom) error {
	if err := r.open('[', "syscalls"); err != nil {
		return err
	}
	for r.dec.More() {
		r.mark()
		line := r.line
		var e customEntry
		if err := r.value(&e); err != nil {
			return err
		}
		if err := c.add(line, &e); err != nil {
			r.line = line
			return err
		}
	}
	if _, err := r.dec.Token(); err != nil {
		return r.syntax(err)
	}
	return nil
}

// add adds an entry that begins at line.
func (c *Custom) add(line int, e *customEntry) error {
	action, err := parseAction("action", e.Action, e.ErrnoRet)
	if err != nil {
		return err
	}
	if len(e.Names) == 0 {
		return errors.New("an entry without names")
	}
	for _, a := range e.Args {
		if err := a.validate(); err != nil {
			return err
		}
	}
	names := slices.Compact(slices.Sorted(slices.Values(e.Names)))
	whens := alternatives(e.Args)
	if len(c.rules)+len(names)*len(whens) > maxCustomRules {
		return fmt.Errorf("more than %d calls", maxCustomRules)
	}
	for _, name := range names {
		if name == "" {
			return errors.New("a call without a name")
		}
		for _, args := range whens {
			c.rules = append(c.rules, customRule{line: line, name: name, action: action, args: args})
		}
	}
	return nil
}

func parseAction(field, name string, errno *uint) (customAction, error) {
	switch {
	case name == "":
		return customAction{}, fmt.Errorf("%s is missing", field)
	case name == "SCMP_ACT_NOTIFY" || name == "SCMP_ACT_TRACE":
		return customAction{}, fmt.Errorf("%s %s asks another process, and a sandbox has none to ask", field, name)
	case !slices.Contains(customActions, name):
		return customAction{}, fmt.Errorf("%s %q is no action: use one of %s", field, name,
			strings.Join(customActions, ", "))
	case errno != nil && name != "SCMP_ACT_ERRNO":
		return customAction{}, fmt.Errorf("%s %s has no errno", field, name)
	case errno != nil && (*errno == 0 || *errno > maxErrno):
		return customAction{}, fmt.Errorf("errno %d is not 1 to %d", *errno, uint(maxErrno))
	}
	if name == "SCMP_ACT_KILL" { // its old name
		name = "SCMP_ACT_KILL_THREAD"
	}
	a := customAction{name: name}
	if name == "SCMP_ACT_ERRNO" {
		if a.errno = uint(unix.EPERM); errno != nil { // the specification's default
			a.errno = *errno
		}
	}
	return a, nil
}
