package cli

import (
	"os"

	"golang.org/x/term"
)

// Style colours text on terminals. The zero value leaves text as it is.
type Style struct{ on bool }

// StyleFor is the style for f: plain unless f is a terminal that understands
// colours and the user did not ask for none (no-color.org).
func StyleFor(f *os.File) Style {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return Style{}
	}
	return Style{on: term.IsTerminal(int(f.Fd()))}
}

// The colours are the terminal's own sixteen, which people have made readable.

// Red marks failures.
func (s Style) Red(text string) string { return s.sgr("31", text) }

// Green marks what holds.
func (s Style) Green(text string) string { return s.sgr("32", text) }

// Yellow marks what is weaker than it could be.
func (s Style) Yellow(text string) string { return s.sgr("33", text) }

// Bold marks headings.
func (s Style) Bold(text string) string { return s.sgr("1", text) }

// Dim marks what may be skipped.
func (s Style) Dim(text string) string { return s.sgr("2", text) }

func (s Style) sgr(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
