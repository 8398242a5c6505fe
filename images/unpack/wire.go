package unpack

import (
	"errors"
	"syscall"
)

// wireError is an error of Unpack on its way out of a worker: its text, and
// what errors.Is finds in it.
type wireError struct {
	Text  string
	Kind  string        // a key of sentinels, or empty
	Errno syscall.Errno // 0 when there is none
	// Entry is set when it is an *EntryError.
	Entry   string
	IsEntry bool
}

var sentinels = map[string]error{
	"unsafe": ErrUnsafe, "limit": ErrLimit, "unmapped": ErrUnmapped, "attributes": ErrAttributes, "damaged": ErrDamaged,
	"changed": ErrChanged, "window": ErrWindow,
}

func toWire(err error) *wireError {
	w := &wireError{Text: err.Error()}
	for kind, s := range sentinels {
		if errors.Is(err, s) {
			w.Kind = kind
		}
	}
	_ = errors.As(err, &w.Errno)
	var e *EntryError
	if errors.As(err, &e) {
		w.Entry, w.IsEntry, w.Text = e.Entry, true, e.Err.Error()
	}
	return w
}

func (w *wireError) error() error {
	var err error = &remoteError{text: w.Text, kind: sentinels[w.Kind], errno: w.Errno}
	if w.IsEntry {
		err = &EntryError{Entry: w.Entry, Err: err}
	}
	return err
}

// remoteError is an error that happened in a worker.
type remoteError struct {
	text  string
	kind  error // may be nil
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() []error {
	var all []error
	if e.kind != nil {
		all = append(all, e.kind)
	}
	if e.errno != 0 {
		all = append(all, e.errno)
	}
	return all
}
