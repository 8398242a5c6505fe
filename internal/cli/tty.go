package cli

import (
	"fmt"
	"os"

	"golang.org/x/term"

	"github.com/hutch-sh/hutch/runtime/api"
)

// RawTerminal puts the terminal behind f into raw mode, so that keys such as
// Ctrl-C reach the command's terminal as bytes. restore must be called before
// hutch ends, by whatever way; it may be called twice. A file that is no terminal
// is left alone.
func RawTerminal(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return func() {}, nil
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("set terminal to raw mode: %w", err)
	}
	// A terminal that went away meanwhile needs no restoring.
	return func() { _ = term.Restore(fd, old) }, nil
}

// TerminalSize is the size of the first terminal among files, 24 rows of 80
// columns when there is none.
func TerminalSize(files ...*os.File) api.Pty {
	for _, f := range files {
		if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 && rows > 0 {
			return api.Pty{Rows: uint16(rows), Cols: uint16(cols)}
		}
	}
	return api.Pty{Rows: 24, Cols: 80}
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
