package api

import (
	"errors"
	"fmt"
	"slices"
)

// Code names the class of an application error. The names are gRPC's, which
// the field knows.
type Code string

// The codes, with the JSON-RPC number each has on the wire. The numbers never
// change meaning.
const (
	NotFound           Code = "not_found"           // -32001
	AlreadyExists      Code = "already_exists"      // -32002
	InvalidArgument    Code = "invalid_argument"    // -32003
	FailedPrecondition Code = "failed_precondition" // -32004
	PermissionDenied   Code = "permission_denied"   // -32005
	ResourceExhausted  Code = "resource_exhausted"  // -32006
	DeadlineExceeded   Code = "deadline_exceeded"   // -32007
	Unavailable        Code = "unavailable"         // -32008
	Unimplemented      Code = "unimplemented"       // -32009
	Canceled           Code = "canceled"            // -32010
	Internal           Code = "internal"            // -32011
)

var codeNumbers = map[Code]int{
	NotFound: -32001, AlreadyExists: -32002, InvalidArgument: -32003,
	FailedPrecondition: -32004, PermissionDenied: -32005, ResourceExhausted: -32006,
	DeadlineExceeded: -32007, Unavailable: -32008, Unimplemented: -32009,
	Canceled: -32010, Internal: -32011,
}

// Number is the JSON-RPC error number of c; an unknown code is Internal's.
func (c Code) Number() int {
	if n, ok := codeNumbers[c]; ok {
		return n
	}
	return codeNumbers[Internal]
}

// CodeOf is the inverse of Number. ok is false for numbers that are not ours,
// such as JSON-RPC's own -32700..-32600.
func CodeOf(number int) (c Code, ok bool) {
	for c, n := range codeNumbers {
		if n == number {
			return c, true
		}
	}
	return "", false
}

// Error is an application error as users meet it: what was tried, why it
// failed and what to do.
type Error struct {
	Code Code   // class, decides the number on the wire
	Op   string // what was tried, e.g. "pull image" (may be empty)
	Msg  string // why it failed, with the values involved
	Hint string // what the user can do about it, one sentence or command
	// Field is the request field at fault, dotted, e.g. "limits.cpus".
	Field string
	// Failed is the command that failed in a sandbox on the caller's behalf; nil of most errors.
	Failed *FailedStep
	// Owner is as whom the owner of root's folders must appear, when they appear as somebody else; nil of most errors.
	Owner *FolderOwner
	// Err is the cause. Its text does not cross the wire except as part of Msg.
	Err error
}

func (e *Error) Error() string {
	s := e.Msg
	if e.Err != nil {
		if cause := e.Err.Error(); cause != "" {
			if s != "" {
				s += ": "
			}
			s += cause
		}
	}
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &Error{Code: c}) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Msg == "" && t.Err == nil
}

// Errorf makes an Error; format may use %w to keep a cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Msg: err.Error()}
	if cause := errors.Unwrap(err); cause != nil {
		e.Err = causeOnly{cause}
	}
	return e
}

// causeOnly keeps a cause for errors.Is and errors.As whose text is already
// part of the message.
type causeOnly struct{ error }

func (c causeOnly) Error() string { return "" }
func (c causeOnly) Unwrap() error { return c.error }

// WithHint sets the hint and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// WithOp sets what was tried and returns e.
func (e *Error) WithOp(op string) *Error { e.Op = op; return e }

// WithField sets the request field at fault and returns e.
func (e *Error) WithField(field string) *Error { e.Field = field; return e }

// WithFailed sets the command that failed and returns e.
func (e *Error) WithFailed(f FailedStep) *Error { e.Failed = &f; return e }

// ErrorCode is err's code: Internal for errors that are not ours.
func ErrorCode(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// FolderOwner is as whom the owner and group of a folder appear in a sandbox: those of the user that its commands run
// as.
type FolderOwner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// ErrorData is the `data` member of a JSON-RPC error.
type ErrorData struct {
	Code  Code   `json:"code,omitempty"`
	Op    string `json:"op,omitempty"`
	Field string `json:"field,omitempty"`
	Hint  string `json:"hint"`
	// Failed is the command that failed in a sandbox.
	Failed *FailedStep  `json:"failed,omitempty"`
	Owner  *FolderOwner `json:"owner,omitempty"`
}

// Codes are all codes, in the order of their numbers: -32001 first.
func Codes() []Code {
	codes := make([]Code, 0, len(codeNumbers))
	for c := range codeNumbers {
		codes = append(codes, c)
	}
	slices.SortFunc(codes, func(a, b Code) int { return codeNumbers[b] - codeNumbers[a] })
	return codes
}
