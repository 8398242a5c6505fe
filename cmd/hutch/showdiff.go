package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/hutch-sh/hutch/internal/cli"
)

// showDiff writes the text of a diff, which is a sandbox's. On a terminal it has colours, nothing in it that the
// terminal obeys, and a pager where it is longer than the screen.
func showDiff(out io.Writer, text string) error {
	f, ok := out.(*os.File)
	if !ok || !cli.IsTerminal(f) {
		_, err := io.WriteString(out, text)
		return err
	}
	shown := colouredDiff(cli.StyleFor(f), text)
	if strings.Count(shown, "\n") < int(cli.TerminalSize(f).Rows) {
		_, err := io.WriteString(f, shown)
		return err
	}
	return page(f, shown)
}

// colouredDiff is a diff for a terminal, with nothing in it that the terminal obeys.
func colouredDiff(style cli.Style, text string) string {
	var b strings.Builder
	hunk := false // in a hunk "--- " is a line that was taken away
	for line := range strings.Lines(text) {
		line, end := strings.CutSuffix(line, "\n")
		switch line := cli.Visible(line); {
		case strings.HasPrefix(line, "diff --git "):
			hunk = false
			b.WriteString(style.Bold(line))
		case strings.HasPrefix(line, "@@"):
			hunk = true
			b.WriteString(style.Yellow(line))
		case hunk && strings.HasPrefix(line, "+"):
			b.WriteString(style.Green(line))
		case hunk && strings.HasPrefix(line, "-"):
			b.WriteString(style.Red(line))
		default:
			b.WriteString(line)
		}
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// page gives a text to the user's pager. Without one it is written as it is.
func page(f *os.File, text string) error {
	words := strings.Fields(cmp.Or(os.Getenv("HUTCH_PAGER"), os.Getenv("PAGER"), "less"))
	if len(words) > 0 && words[0] != "cat" {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), f, os.Stderr
		// As git has it: it ends where one screen is enough, shows colours and leaves the text there. Of what it is
		// asked to do while it shows a sandbox's text it writes no file and runs no command.
		cmd.Env = append(os.Environ(), "LESS="+cmp.Or(os.Getenv("LESS"), "FRX"), "LESSSECURE=1", "LV="+
			cmp.Or(os.Getenv("LV"), "-c"))
		err := cmd.Run()
		if !errors.Is(err, exec.ErrNotFound) {
			if errors.Is(err, syscall.EPIPE) {
				return nil // it was left before the end
			}
			return err
		}
	}
	_, err := io.WriteString(f, text)
	return err
}

// fileStat is what a diff does to one file.
type fileStat struct {
	name       string
	note       string // such as a new mode
	binary     bool
	plus, less int
}

// statsOf counts the lines of a diff that git would write.
func statsOf(text string) (list []fileStat) {
	var s *fileStat
	hunk := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if names, ok := strings.CutPrefix(line, "diff --git "); ok {
			list, hunk = append(list, fileStat{name: diffName(names)}), false
			s = &list[len(list)-1]
			continue
		}
		if s == nil {
			continue
		}
		switch {
		case hunk && strings.HasPrefix(line, "+"):
			s.plus++
		case hunk && strings.HasPrefix(line, "-"):
			s.less++
		case strings.HasPrefix(line, "@@"):
			hunk = true
		case hunk:
		case strings.HasPrefix(line, "Binary files "), line == "GIT binary patch":
			s.binary = true
		case strings.HasPrefix(line, "rename from "):
			s.name = line[len("rename from "):] + " => " + s.name
		case strings.HasPrefix(line, "new mode "):
			s.note = "mode " + line[len("new mode "):]
		case strings.HasPrefix(line, "new file mode "):
			s.note = "new"
		case strings.HasPrefix(line, "deleted file mode "):
			s.note = "deleted"
		}
	}
	return list
}

// diffName is the name of the new file of "a/X b/Y", where X and Y are mostly the same; quoted names stay quoted.
func diffName(names string) string {
	if n := len(names); n%2 == 1 && names[n/2] == ' ' && strings.HasPrefix(names, "a/") &&
		names[2:n/2] == names[min(n, n/2+3):] {
		return names[2 : n/2]
	}
	if i := strings.LastIndex(names, " b/"); i >= 0 {
		return names[i+3:]
	}
	return names
}

// printDiffStat prints how many lines of each file were added and taken away, as git diff --stat does.
func printDiffStat(w io.Writer, style cli.Style, list []fileStat, truncated bool) error {
	const bar = 40
	most, plus, less := 1, 0, 0
	for _, s := range list {
		most = max(most, s.plus+s.less)
		plus, less = plus+s.plus, less+s.less
	}
	t := cli.Table{}
	for _, s := range list {
		count := fmt.Sprint(s.plus + s.less)
		if s.binary {
			count = "Bin"
		}
		p, l := s.plus, s.less
		if most > bar {
			p, l = (p*bar+most-1)/most, (l*bar+most-1)/most
		}
		t.Row(cli.Visible(s.name), "|", count, strings.Repeat("+", p)+strings.Repeat("-", l), s.note)
	}
	t.Print(w, "", func(_, col int, cell string) string {
		if col != 3 {
			return cell
		}
		p := strings.Count(cell, "+")
		return style.Green(cell[:p]) + style.Red(cell[p:])
	})
	_, err := fmt.Fprintf(w, "%s changed, %s added, %s removed\n", counted(len(list), "file"), counted(plus, "line"),
		counted(less, "line"))
	if truncated && err == nil {
		_, err = fmt.Fprintln(os.Stderr, "hutch: the diff is longer; choose paths, or list the names with --names")
	}
	return err
}

// counted is a number with its word: 1 file, 2 files.
func counted(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
