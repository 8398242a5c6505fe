package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// chooseChanges asks at the terminal which changes are to be applied, and puts them into p; none are no paths.
func chooseChanges(ctx context.Context, c *client.Client, p *api.WorkspaceApplyParams) error {
	if !cli.IsTerminal(os.Stdin) || !cli.IsTerminal(os.Stdout) {
		return errors.New("-i asks at a terminal, and this is none: name the paths to apply, or leave -i out")
	}
	d, err := c.AllChanges(ctx, api.WorkspaceDiffParams{WorkspaceParams: p.WorkspaceParams})
	if err != nil {
		return err
	}
	if p.Digest != "" && p.Digest != d.Digest {
		return errChangedMeanwhile
	}
	ch := &chooser{
		in: bufio.NewReader(os.Stdin), out: os.Stdout, style: cli.StyleFor(os.Stdout),
		rows: int(cli.TerminalSize(os.Stdout).Rows), cols: int(cli.TerminalSize(os.Stdout).Cols),
		force: p.Force, chosen: map[string]bool{}, hunks: map[string][]int{},
		diff: func(name string) (string, error) {
			w := api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: p.Sandbox, Paths: []string{name},
				Exact: true}, Unified: true}
			one, err := c.DiffWorkspace(ctx, w)
			if err == nil && one.Digest != d.Digest {
				err = errChangedMeanwhile
			}
			if one.Truncated {
				one.Diff += "(the diff is longer)\n"
			}
			return one.Diff, err
		},
	}
	if err := ch.choose(d.Changes); err != nil {
		return err
	}
	p.Paths, p.Exact, p.Hunks, p.Digest = ch.paths(d.Changes), true, ch.hunks, d.Digest
	if len(p.Paths) == 0 {
		fmt.Fprintln(os.Stderr, "hutch: nothing was applied")
	}
	return nil
}

var errChangedMeanwhile = errors.New("the sandbox has changed something meanwhile, so nothing was applied: look at it again")

// chooser asks about one change after the other.
type chooser struct {
	in    *bufio.Reader
	out   io.Writer
	style cli.Style
	rows  int // of the terminal
	cols  int
	diff  func(string) (string, error) // of one path
	force bool

	chosen map[string]bool
	hunks  map[string][]int // of those files of which not all is chosen
}

// choose goes through the changes. Folders that are new come with what is chosen in them.
func (ch *chooser) choose(list []api.WorkspaceChange) error {
	full := map[string]bool{} // new folders with something in them
	for _, c := range list {
		for dir := path.Dir(c.Path); dir != "."; dir = path.Dir(dir) {
			full[dir] = true
		}
	}
	var asked []api.WorkspaceChange
	for i, c := range list {
		if i > 0 && list[i-1].Path == c.Path { // what a name was and what it is now is one change
			if last := len(asked) - 1; last >= 0 && asked[last].Path == c.Path {
				asked[last].Conflict, asked[last].Mode = cmp.Or(asked[last].Conflict, c.Conflict),
					cmp.Or(asked[last].Mode, c.Mode)
				asked[last].Guarded = cmp.Or(asked[last].Guarded, c.Guarded)
			}
			continue
		}
		if c.Type != "d" || c.Kind != "added" || !full[c.Path] {
			asked = append(asked, c)
		}
	}
	all := false
	for i, c := range asked {
		switch {
		case c.Conflict != "" && !ch.force:
			fmt.Fprintf(ch.out, "%s %s: %s; -f applies it, and the other change is lost\n",
				ch.style.Yellow("left alone:"), plain(c.Path), cli.Line(c.Conflict))
			continue
		case all && (c.Guarded != "" || c.Conflict != ""): // by force as well: it is asked about alone, or named
			why := cmp.Or(c.Conflict, "your own programs take instructions from it")
			fmt.Fprintf(ch.out, "%s %s: %s\n", ch.style.Yellow("left alone:"), plain(c.Path), cli.Line(why))
			continue
		case all:
			ch.chosen[c.Path] = true
			continue
		}
		answer, err := ch.change(fmt.Sprintf("[%d/%d]", i+1, len(asked)), &c)
		if err != nil || answer == 'q' {
			return err
		}
		all = answer == 'a'
	}
	return nil
}

// paths are what was chosen, with the new folders that it is in.
func (ch *chooser) paths(list []api.WorkspaceChange) []string {
	needed := map[string]bool{}
	for p := range ch.chosen {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			needed[dir] = true
		}
	}
	paths := []string{}
	for i, c := range list {
		again := i > 0 && list[i-1].Path == c.Path
		if !again && (ch.chosen[c.Path] || needed[c.Path] && c.Kind == "added" && c.Type == "d") {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// change shows a change and asks about it.
func (ch *chooser) change(number string, c *api.WorkspaceChange) (answer byte, err error) {
	text, err := ch.diff(c.Path)
	if err != nil {
		return 0, err
	}
	name := plain(c.Path)
	if c.From != "" {
		name = plain(c.From) + " -> " + name
	}
	if c.Type == "d" {
		name += "/"
	}
	fmt.Fprintln(ch.out, ch.style.Bold(number+" "+c.Kind+" "+name))
	mode := ""
	if c.Mode != "" {
		mode = "its mode is " + c.Mode
	}
	for _, note := range []string{mode, c.Conflict,
		map[bool]string{true: "your own programs take instructions from it"}[c.Guarded != ""]} {
		if note != "" {
			fmt.Fprintf(ch.out, "%s %s\n", ch.style.Yellow("note:"), cli.Line(note))
		}
	}
	shown := colouredDiff(ch.style, text)
	rows := 0
	for line := range strings.Lines(text) {
		rows += 1 + utf8.RuneCountInString(line)/max(1, ch.cols)
	}
	if rows+4 < ch.rows {
		fmt.Fprint(ch.out, shown)
	} else {
		fmt.Fprintf(ch.out, "(%d lines: v shows them)\n", strings.Count(shown, "\n"))
	}
	_, hunks := hunksOf(text)
	keys := "ynvaq"
	if len(hunks) > 1 && c.Kind == "modified" && c.Type == "-" {
		keys = "ynhvaq"
	}
	for {
		answer, err = ch.ask("apply it?", keys)
		switch {
		case err != nil:
			return 0, err
		case answer == 'v':
			if err := ch.view(shown); err != nil {
				return 0, err
			}
			continue
		case answer == 'h':
			return ch.parts(c.Path, hunks)
		case answer == 'y', answer == 'a':
			ch.chosen[c.Path] = true
		}
		return answer, nil
	}
}

// view shows a long text.
func (ch *chooser) view(text string) error {
	if f, ok := ch.out.(*os.File); ok {
		return page(f, text)
	}
	_, err := io.WriteString(ch.out, text)
	return err
}

// parts asks about the hunks of a file.
func (ch *chooser) parts(name string, hunks []string) (answer byte, err error) {
	var chosen []int
	rest := byte(0) // what becomes of those that are not asked about
	for i, h := range hunks {
		if rest == 0 {
			fmt.Fprint(ch.out, colouredDiff(ch.style, h))
			answer, err := ch.ask(fmt.Sprintf("apply part %d of %d?", i+1, len(hunks)), "ynadq")
			switch {
			case err != nil:
				return 0, err
			case answer == 'a':
				rest = 'y'
			case answer == 'd', answer == 'q':
				rest = answer
			case answer == 'y':
				chosen = append(chosen, i+1)
			}
		}
		if rest == 'y' {
			chosen = append(chosen, i+1)
		}
	}
	if len(chosen) > 0 {
		ch.chosen[name] = true
	}
	if len(chosen) < len(hunks) && len(chosen) > 0 {
		ch.hunks[name] = chosen
	}
	if rest == 'q' {
		return 'q', nil
	}
	return 'h', nil
}

var answerHelp = map[byte]string{
	'y': "apply it", 'n': "leave it in the sandbox", 'h': "choose parts of it", 'v': "show all of it",
	'q': "ask about nothing more, and apply what was chosen",
	'a': "apply it and all that follows, but for what somebody else has changed and what your own programs take instructions from",
	'd': "leave this part and the rest of the file in the sandbox",
}

// ask asks until the answer is one of the keys. The end of the input is q.
func (ch *chooser) ask(question, keys string) (byte, error) {
	for {
		fmt.Fprintf(ch.out, "%s ",
			ch.style.Bold(fmt.Sprintf("%s [%s,?]", question, strings.Join(strings.Split(keys, ""), ","))))
		line, err := ch.in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(ch.out)
			return 'q', nil
		}
		if err != nil {
			return 0, err
		}
		if line = strings.ToLower(strings.TrimSpace(line)); len(line) == 1 && strings.Contains(keys, line) {
			return line[0], nil
		}
		for i := range len(keys) {
			help := answerHelp[keys[i]]
			if strings.HasPrefix(question, "apply part") && keys[i] == 'a' {
				help = "apply this part and the rest of the file"
			}
			fmt.Fprintf(ch.out, "  %c  %s\n", keys[i], help)
		}
	}
}

// hunksOf splits the diff of one file. In a hunk each line begins with a space, a sign or a backslash.
func hunksOf(text string) (head string, hunks []string) {
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "@@"):
			hunks = append(hunks, line)
		case len(hunks) > 0:
			hunks[len(hunks)-1] += line
		default:
			head += line
		}
	}
	return head, hunks
}
