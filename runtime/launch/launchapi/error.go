package launchapi

import (
	"errors"

	"github.com/hutch-sh/hutch/runtime/api"
)

// API is e as an error of runtime/api.
func (e *Error) API() *api.Error {
	return &api.Error{Code: api.Code(e.Code), Op: e.Op, Msg: e.Msg, Field: e.Field, Hint: e.Hint}
}

// FromError makes the wire form of err: its own code, operation and hint where
// it is an api.Error, internal otherwise.
func FromError(err error) *Error {
	var e *api.Error
	if !errors.As(err, &e) {
		return &Error{Code: string(api.Internal), Msg: err.Error()}
	}
	if err.Error() == e.Error() { // e itself, not something around it
		msg := *e
		msg.Op = ""
		return &Error{Code: string(e.Code), Op: e.Op, Msg: msg.Error(), Field: e.Field, Hint: e.Hint}
	}
	// Wrapped or joined: keep all of the text.
	return &Error{Code: string(e.Code), Msg: err.Error(), Field: e.Field, Hint: e.Hint}
}
