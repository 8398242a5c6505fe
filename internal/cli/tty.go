package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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

// settle ends what a program may have left a terminal in: a sequence that is not whole, another screen, margins, other
// characters, hidden or coloured text, other colours, the mouse (ECMA-48; xterm's ctlseqs).
const settle = "\x18\x1b\\\x1b[!p" +
	"\x1b[?1049l\x1b[?1047l\x1b[?47l\x1b[?2026l\x1b[?69l\x1b[?6l\x1b[?5l\x1b[?7h\x1b[?25h" +
	"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[r\x1b[4l\x1b[20l\x1b(B\x1b)B\x0f\x1b[0m" +
	"\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\"

// Regain makes a terminal hutch's own again, after the output of a program that nobody trusts: what that has drawn,
// such as a question of hutch's, leaves the screen upwards, and what follows is seen as it is. A file that is no
// terminal is left alone.
func Regain(f *os.File) {
	if !IsTerminal(f) {
		return
	}
	rows := max(1, int(TerminalSize(f).Rows))
	fmt.Fprintf(f, "%s\x1b[%d;1H%s\x1b[1;1H", settle, rows, strings.Repeat("\n", rows))
}

// DropInput drops what was typed at a terminal and not read yet: before a question it is no answer to that.
func DropInput(f *os.File) { _ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }

// Ask reads a line from a terminal after a prompt. What is typed as a secret is not shown.
// The end of ctx, a signal say, gives the terminal back as it was.
func Ask(ctx context.Context, f *os.File, prompt string, secret bool) (string, error) {
	if secret {
		fd := int(f.Fd())
		old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return "", fmt.Errorf("read without showing: %w", err)
		}
		quiet := *old
		quiet.Lflag &^= unix.ECHO
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, &quiet); err != nil {
			return "", fmt.Errorf("read without showing: %w", err)
		}
		defer func() {
			_ = unix.IoctlSetTermios(fd, unix.TCSETS, old) // one that went away needs no restoring
			fmt.Fprintln(os.Stderr)                        // the line's end was not shown either
		}()
	}
	fmt.Fprint(os.Stderr, prompt)
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // nothing else ends a read of a terminal: it may last as long as the process
		line, err := bufio.NewReader(f).ReadString('\n')
		got <- answer{strings.TrimRight(line, "\r\n"), err}
	}()
	select {
	case a := <-got:
		return a.line, a.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
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
