package tools

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

// file names a file of the call's sandbox.
func (c *call) file(path string) api.FileParams {
	return api.FileParams{Sandbox: c.sandbox, Path: path, User: c.user}
}

func writeFile() (*tool, error) {
	return define[api.ToolWriteFile, api.ToolWritten](api.Tool{
		Name: api.ToolNameWriteFile, Title: "Write file",
		Description: "Writes a file in the sandbox: makes a new one, or replaces all that is in an old one, in a single step. " +
			"To change a part of a file use sandbox_find_replace or sandbox_apply_patch. /run/hutch/policy.txt says which folders can be written.",
		Destructive: true, Idempotent: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolWriteFile) (answer, error) {
		w, err := c.set.cfg.Sandboxes.Files.Write(ctx, api.FileWriteParams{
			FileParams: c.file(a.Path), Data: a.Content, Encoding: a.Encoding, Append: a.Append, Mode: a.Mode,
			Parents: true,
		}, nil)
		if err != nil {
			return answer{}, err
		}
		verb := "replaced"
		switch {
		case w.Created:
			verb = "created"
		case a.Append:
			verb = "appended to"
		}
		return answer{
			text:   fmt.Sprintf("%s %s: %d bytes written, %d bytes now", verb, a.Path, w.Written, w.Size),
			result: api.ToolWritten{Path: a.Path, Bytes: w.Written, Size: w.Size, Created: w.Created},
		}, nil
	})
}

func deleteFile() (*tool, error) {
	return define[api.ToolDeleteFile, api.ToolDeleted](api.Tool{
		Name: api.ToolNameDeleteFile, Title: "Delete file or folder",
		Description: "Deletes a file, or a folder with all that is in it when recursive is true.",
		Destructive: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolDeleteFile) (answer, error) {
		r, err := c.set.cfg.Sandboxes.Files.Remove(ctx, api.FileRemoveParams{FileParams: c.file(a.Path),
			Recursive: a.Recursive})
		if err != nil {
			return answer{}, err
		}
		return answer{
			text:   fmt.Sprintf("deleted %s (%d files and folders)", a.Path, r.Removed),
			result: api.ToolDeleted{Path: a.Path, Removed: r.Removed},
		}, nil
	})
}

func listDirectory() (*tool, error) {
	return define[api.ToolListDirectory, api.ToolDirectory](api.Tool{
		Name: api.ToolNameListDirectory, Title: "List directory",
		Description: "Lists a folder of the sandbox with types and sizes, also with all that is below it. " +
			"To search for a name use sandbox_find_files.",
		ReadOnly: true, Idempotent: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolListDirectory) (answer, error) {
		if a.Path == "" {
			a.Path = "."
		}
		if a.Limit == 0 {
			a.Limit = api.DefaultToolListLimit
		}
		list, err := c.set.cfg.Sandboxes.Files.List(ctx, api.FileListParams{
			FileParams: c.file(a.Path), Recursive: a.Recursive, Depth: a.Depth, Limit: a.Limit, Offset: &a.Offset,
		})
		if err != nil {
			return answer{}, err
		}
		d := api.ToolDirectory{Path: a.Path, Entries: []api.ToolEntry{}}
		var text strings.Builder
		for _, f := range list.Entries {
			d.Entries = append(d.Entries, api.ToolEntry{Path: f.Path, Type: f.Type, Size: f.Size, Target: f.Target,
				Error: f.Error})
			line(&text, f)
		}
		switch {
		case list.Truncated && len(d.Entries) > 0:
			d.NextOffset = a.Offset + len(d.Entries)
			fmt.Fprintf(&text, "[more: offset %d goes on]\n", d.NextOffset)
		case list.Truncated:
			text.WriteString("[more, further down than a list goes]\n")
		case len(d.Entries) == 0:
			text.WriteString("[nothing]\n")
		}
		return answer{text: text.String(), result: d}, nil
	})
}

// shown is a path in a text: with its quotes, as strconv.Quote makes them, where it holds a line break, an escape
// sequence or what else is not seen as it is. Otherwise a name could pass for more lines of the answer. What is
// structured has it as it is.
func shown(path string) string {
	if utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return path
	}
	return strconv.Quote(path)
}

// line writes one entry as a model reads it: folders end in a slash.
func line(to *strings.Builder, f api.File) {
	switch f.Type {
	case api.TypeFolder:
		fmt.Fprintf(to, "%s/", shown(f.Path))
	case api.TypeSymlink:
		fmt.Fprintf(to, "%s -> %s", shown(f.Path), shown(f.Target))
	case api.TypeFile:
		fmt.Fprintf(to, "%s\t%d", shown(f.Path), f.Size)
	default:
		fmt.Fprintf(to, "%s\t%s", shown(f.Path), f.Type)
	}
	if f.Error != "" {
		fmt.Fprintf(to, "\t[not entered: %s]", f.Error)
	}
	to.WriteByte('\n')
}
