// Package cleanup undoes the steps of an operation that failed half way.
package cleanup

import "errors"

// Stack holds undo functions. The zero value is ready. It is not safe for
// concurrent use: it belongs to the function that acquires.
//
//	var undo cleanup.Stack
//	defer undo.Run(&err)
//	... acquire a; undo.Add(release a) ...
//	undo.Release() // success: the caller owns everything now
type Stack struct {
	undo []func() error
}

// Add pushes an undo step; steps run in reverse order.
func (s *Stack) Add(undo func() error) { s.undo = append(s.undo, undo) }

// Release forgets all steps and returns them as one function that runs them in
// reverse, for an owner that will need them later.
func (s *Stack) Release() func() error {
	kept := Stack{undo: s.undo}
	s.undo = nil
	return func() error {
		var err error
		kept.Run(&err)
		return err
	}
}

// Run undoes every step that was not released and joins what fails to *errp,
// so that an undo error is never lost.
func (s *Stack) Run(errp *error) {
	for i := len(s.undo) - 1; i >= 0; i-- {
		if err := s.undo[i](); err != nil {
			*errp = errors.Join(*errp, err)
		}
	}
	s.undo = nil
}
