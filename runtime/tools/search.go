package tools

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/files"
)

// on says in which sandbox, and with whose rights.
func (c *call) on() files.On { return files.On{Sandbox: c.sandbox, User: c.user} }

func readFile() (*tool, error) {
	return define[api.ToolReadFile, api.ToolFileText](api.Tool{
		Name: api.ToolNameReadFile, Title: "Read file",
		Description: "Reads lines of a text file in the sandbox, each with its number. A long file is read in pieces: start_line goes on. " +
			"A PNG, JPEG, GIF or WebP image is shown; of other binary files only the size is told.",
		ReadOnly: true, Idempotent: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolReadFile) (answer, error) {
		r, err := c.set.cfg.Sandboxes.Files.ReadLines(ctx, c.on(), a)
		if err != nil {
			return answer{}, err
		}
		images, err := c.image(ctx, &r)
		if err != nil {
			return answer{}, err
		}
		return answer{text: fileText(&r), result: r, more: images}, nil
	})
}

// fileText is a file as a model reads it: with line numbers, and what is missing.
func fileText(r *api.ToolFileText) string {
	var text strings.Builder
	n := r.StartLine
	for line := range strings.Lines(r.Text) {
		fmt.Fprintf(&text, "%6d\t%s", n, line)
		n++
	}
	newline(&text)
	switch {
	case r.Image != nil:
		fmt.Fprintf(&text, "[%s, %d x %d pixels, %d bytes", r.Image.MIMEType, r.Image.Width, r.Image.Height, r.Size)
		if !r.Image.Shown {
			fmt.Fprintf(&text, ": not shown, it has %s; make a smaller copy and read that", r.Image.Why)
		}
		text.WriteByte(']')
	case r.Binary:
		fmt.Fprintf(&text, "[binary file, %d bytes; sandbox_download_url gives the user a link to it]", r.Size)
	case r.NextLine > 0 && r.TotalLines > 0:
		fmt.Fprintf(&text, "[%d lines in all: start_line %d goes on]", r.TotalLines, r.NextLine)
	case r.NextLine > 0:
		fmt.Fprintf(&text, "[start_line %d goes on]", r.NextLine)
	case r.Text == "" && r.TotalLines > 0:
		fmt.Fprintf(&text, "[it has %d lines only]", r.TotalLines)
	case r.Text == "":
		text.WriteString("[empty]")
	}
	return text.String()
}

func grepFiles() (*tool, error) {
	return define[api.ToolGrepFiles, api.ToolGrepResult](api.Tool{
		Name: api.ToolNameGrepFiles, Title: "Search in files",
		Description: "Searches the lines of a file, or of all files below a folder, for a regular expression or a text. What .gitignore leaves out, " +
			"hidden and binary files are not searched unless asked for.",
		ReadOnly: true, Idempotent: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolGrepFiles) (answer, error) {
		r, err := c.set.cfg.Sandboxes.Files.Grep(ctx, c.on(), a)
		if err != nil {
			return answer{}, err
		}
		return answer{text: grepText(&r), result: r}, nil
	})
}

// grepText is what grep -n shows.
func grepText(r *api.ToolGrepResult) string {
	var text strings.Builder
	for _, f := range r.Files {
		text.WriteString(shown(f) + "\n")
	}
	for i, m := range r.Matches {
		if i > 0 && (len(m.Before) > 0 || len(m.After) > 0) {
			text.WriteString("--\n")
		}
		for j, l := range m.Before {
			fmt.Fprintf(&text, "%s-%d-%s\n", shown(m.Path), m.Line-int64(len(m.Before)-j), l)
		}
		fmt.Fprintf(&text, "%s:%d:%s\n", shown(m.Path), m.Line, m.Text)
		for j, l := range m.After {
			fmt.Fprintf(&text, "%s-%d-%s\n", shown(m.Path), m.Line+int64(j)+1, l)
		}
	}
	switch {
	case r.NextOffset > 0:
		fmt.Fprintf(&text, "[more: offset %d goes on]", r.NextOffset)
	case r.Truncated:
		text.WriteString("[more: narrow the search down]")
	case len(r.Files)+len(r.Matches) == 0:
		fmt.Fprintf(&text, "[nothing in %d files]", r.Searched)
	}
	if r.Skipped > 0 {
		newline(&text)
		fmt.Fprintf(&text, "[%d files and folders could not be read]", r.Skipped)
	}
	return text.String()
}

func findFiles() (*tool, error) {
	return define[api.ToolFindFiles, api.ToolFindResult](api.Tool{
		Name: api.ToolNameFindFiles, Title: "Find files",
		Description: "Finds files below a folder by a part of their path, fuzzily, the best first. What .gitignore leaves out and hidden files are not found unless asked for.",
		ReadOnly:    true, Idempotent: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolFindFiles) (answer, error) {
		r, err := c.set.cfg.Sandboxes.Files.Find(ctx, c.on(), a)
		if err != nil {
			return answer{}, err
		}
		var text strings.Builder
		for _, f := range r.Found {
			text.WriteString(shown(f.Path))
			if f.Type == api.TypeFolder {
				text.WriteByte('/')
			}
			text.WriteByte('\n')
		}
		switch {
		case len(r.Found) == 0:
			text.WriteString("[nothing]")
		case r.Truncated:
			fmt.Fprintf(&text, "[the best of %d: give more letters, or a folder further down]", r.Total)
		}
		return answer{text: text.String(), result: r}, nil
	})
}

func findReplace() (*tool, error) {
	return define[api.ToolFindReplace, api.ToolReplaced](api.Tool{
		Name: api.ToolNameFindReplace, Title: "Edit file",
		Description: "Replaces text in a file: find must occur exactly once, unless all or expected says otherwise. The file is changed in a single step; the result shows the change.",
		Destructive: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolFindReplace) (answer, error) {
		r, err := c.set.cfg.Sandboxes.Files.Replace(ctx, c.on(), a)
		if err != nil {
			return answer{}, err
		}
		verb := "replaced"
		if r.DryRun {
			verb = "would replace"
		}
		text := fmt.Sprintf("%s %s in %s\n%s", verb, counted(r.Replacements, "occurrence"), r.Path, r.Diff)
		if r.Truncated {
			text += "\n[the change is longer]"
		}
		return answer{text: text, result: r}, nil
	})
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}
