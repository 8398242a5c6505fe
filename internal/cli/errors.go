package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Errors are failures that have nothing to do with each other: what failed for
// each of several arguments.
type Errors []error

func (e Errors) Error() string { return errors.Join(e...).Error() }

// Unwrap makes errors.Is and errors.As look at each.
func (e Errors) Unwrap() []error { return e }

// PrintError writes err as users meet it: one line that says what failed, and
// one that says what to do where the error knows; so for each of Errors. A
// silent Exit prints nothing.
func PrintError(w io.Writer, style Style, err error) {
	if list, ok := err.(Errors); ok { //nolint:errorlint // only as it was returned: a wrapped one is a message of its own
		for _, err := range list {
			PrintError(w, style, err)
		}
		return
	}
	var exit *Exit
	if errors.As(err, &exit) && exit.Err == nil {
		return
	}
	fmt.Fprintf(w, "%s %s\n", style.Red("hutch:"), Line(err.Error()))
	var known *api.Error
	if errors.As(err, &known) && known.Hint != "" {
		fmt.Fprintf(w, "  %s %s\n", style.Bold("try:"), strings.ReplaceAll(Printable(known.Hint), "\n", "\n       "))
	}
}

// Line makes one printable line of a message that may come from a registry, an
// image or a sandbox.
func Line(s string) string {
	return Printable(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

// Printable replaces control characters other than newline by a question mark: a name must not be able to write
// terminal escapes. So it does with those that change the direction of text (Unicode's Bidi_Control), by which a line
// of a diff is read as another one than a compiler sees.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ' || r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r):
			return '?'
		}
		return r
	}, s)
}

// Visible shows what Printable takes out: control characters as ^X, and others by their number in Unicode.
func Visible(s string) string {
	if Printable(s) == s {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < ' ':
			b.WriteString("^" + string('@'+r))
		case r == 0x7f:
			b.WriteString("^?")
		case r > 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&b, "<U+%04X>", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// formatMS writes milliseconds as a person reads a duration.
func formatMS(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond / 10).String()
	case d < time.Minute:
		return d.Round(time.Second / 10).String()
	}
	return d.Round(time.Second).String()
}
