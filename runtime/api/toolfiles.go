package api

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// The arguments and results of the tools that read, search and change files. Each is done by the files worker in the
// sandbox, so that an image needs no program for it. Texts come from the sandbox: bytes that are no UTF-8 are replaced.

// Bounds of one sandbox_read_file.
const (
	DefaultToolLines = 2000
	MaxToolLines     = 20_000
	MaxToolLineBytes = 4096      // of a line; a longer one is cut
	MaxToolTextBytes = 256 << 10 // of all lines
	MaxLineNumber    = 1_000_000_000

	MaxToolImageBytes = MaxReadBytes // of an image that is shown
	MaxToolImageSide  = 8000         // pixels of it, as much as models take
)

// ToolReadFile are sandbox_read_file's arguments.
type ToolReadFile struct {
	Path      string `json:"path" doc:"Path of the file; a relative one starts at the sandbox's working directory."`
	StartLine int64  `json:"start_line,omitempty" doc:"First line to read, from 1 on; a negative number counts from the end, so that -20 reads the last 20 lines. 1 by default."`
	EndLine   int64  `json:"end_line,omitempty" doc:"Last line to read; by default 2000 lines are read."`
}

// Validate refuses impossible arguments.
func (a *ToolReadFile) Validate() error {
	switch {
	case a.StartLine > MaxLineNumber || a.StartLine < -MaxLineNumber:
		return invalid("start_line", "%d is not possible", a.StartLine).
			WithHint("lines are counted from 1 on, from the end with -1")
	case a.EndLine < 0 || a.EndLine > MaxLineNumber:
		return invalid("end_line", "%d is not possible", a.EndLine).
			WithHint("lines are counted from 1 on; leave it out for the lines that follow start_line")
	case a.EndLine > 0 && a.StartLine < 0:
		return invalid("end_line", "given with a start_line that counts from the end").WithHint("leave out end_line")
	case a.EndLine > 0 && a.EndLine < a.StartLine:
		return invalid("end_line", "%d is before start_line %d", a.EndLine, a.StartLine)
	case a.EndLine > 0 && a.EndLine-max(a.StartLine, 1) >= MaxToolLines:
		return invalid("end_line", "%d lines are too many", a.EndLine-max(a.StartLine, 1)+1).
			WithHint("read at most %d lines at once", MaxToolLines)
	}
	return checkPath("path", a.Path)
}

// ToolFileText is sandbox_read_file's result.
type ToolFileText struct {
	Path       string `json:"path"`
	Text       string `json:"text"`        // the lines, with their ends; empty of a binary file
	StartLine  int64  `json:"start_line"`  // of Text; 0 where there is none
	EndLine    int64  `json:"end_line"`    // of Text; 0 where there is none
	NextLine   int64  `json:"next_line"`   // where reading goes on; 0 at the end of the file
	TotalLines int64  `json:"total_lines"` // 0 where the file is too large to count them
	Size       int64  `json:"size"`        // of the file in bytes; 0 of those of /proc
	Binary     bool   `json:"binary"`      // it is no text
	CutLines   int64  `json:"cut_lines"`   // lines of Text that are longer; each says so at its end
	Truncated  bool   `json:"truncated"`   // fewer lines than asked for, because they are too large for one result
	// Image says what a binary file is that begins as a PNG, JPEG, GIF or WebP image does.
	Image *ToolImage `json:"image,omitempty"`
}

// ToolImage is an image, as the head of its file has it.
type ToolImage struct {
	MIMEType string `json:"mime_type"`
	Width    int    `json:"width"` // pixels
	Height   int    `json:"height"`
	Shown    bool   `json:"shown"`         // it is in the content of the result
	Why      string `json:"why,omitempty"` // it is not
}

// Bounds of one sandbox_grep_files.
const (
	DefaultToolMatches = 100
	MaxToolMatches     = 1000
	MaxToolContext     = 20 // lines on each side of a match
	MaxToolOffset      = 1_000_000
	MaxToolPattern     = 4096
	MaxToolGlobs       = 32
	MaxToolGlob        = 1024
	MaxToolMatchBytes  = 1024 // of a line of a result; a longer one is cut
)

// ToolGrepFiles are sandbox_grep_files' arguments.
type ToolGrepFiles struct {
	Pattern    string   `json:"pattern" doc:"What to search for: a regular expression (RE2 syntax) that is matched against each line, or with literal a plain text."`
	Path       string   `json:"path,omitempty" doc:"File or folder to search in, with all folders below; the sandbox's working directory by default."`
	Literal    bool     `json:"literal,omitempty" doc:"Take pattern as plain text, not as a regular expression."`
	IgnoreCase bool     `json:"ignore_case,omitempty" doc:"Make no difference between upper and lower case."`
	Globs      []string `json:"globs,omitempty" doc:"Search only files whose path fits one of these, such as *.go or src/**/*.ts; one that begins with ! leaves files out."`
	Context    int      `json:"context,omitempty" doc:"How many lines to show before and after each match; 0 by default, at most 20."`
	Hidden     bool     `json:"hidden,omitempty" doc:"Also search files and folders whose name begins with a dot."`
	NoIgnore   bool     `json:"no_ignore,omitempty" doc:"Also search what .gitignore and .ignore files leave out."`
	FilesOnly  bool     `json:"files_only,omitempty" doc:"Only tell the paths of the files that have a match."`
	MaxMatches int      `json:"max_matches,omitempty" doc:"How many matches (files with files_only) to return; 100 by default, at most 1000."`
	Offset     int      `json:"offset,omitempty" doc:"Number of matches to leave out: next_offset of the call before."`
}

// Validate refuses impossible arguments.
func (a *ToolGrepFiles) Validate() error {
	switch {
	case a.Pattern == "":
		return invalid("pattern", "missing").
			WithHint("give a regular expression, or with literal a text; sandbox_find_files searches names")
	case len(a.Pattern) > MaxToolPattern:
		return invalid("pattern", "%d bytes are too many", len(a.Pattern)).WithHint("at most %d", MaxToolPattern)
	case strings.ContainsAny(a.Pattern, "\n\x00"):
		return invalid("pattern", "holds a line end or a NUL byte").
			WithHint("lines are matched one by one; search for a part of one")
	case a.Context < 0 || a.Context > MaxToolContext:
		return invalid("context", "%d is not possible", a.Context).WithHint("use 0 to %d", MaxToolContext)
	case a.MaxMatches < 0 || a.MaxMatches > MaxToolMatches:
		return invalid("max_matches", "%d is not possible", a.MaxMatches).WithHint("use 1 to %d", MaxToolMatches)
	case a.Offset < 0 || a.Offset > MaxToolOffset:
		return invalid("offset", "%d is not possible", a.Offset).
			WithHint("use next_offset of the call before; narrow the search down for more than %d matches",
				MaxToolOffset)
	case len(a.Globs) > MaxToolGlobs:
		return invalid("globs", "%d are too many", len(a.Globs)).WithHint("at most %d", MaxToolGlobs)
	}
	for i, g := range a.Globs {
		if strings.Trim(g, "!") == "" || len(g) > MaxToolGlob || strings.ContainsRune(g, 0) {
			return invalid(fmt.Sprintf("globs[%d]", i), "%.64q is no glob", g).
				WithHint("such as *.go, src/**/*.ts or !vendor/")
		}
	}
	if !a.Literal {
		if err := checkRegexp("pattern", a.Pattern); err != nil {
			return err
		}
	}
	if a.Path == "" {
		return nil
	}
	return checkPath("path", a.Path)
}

// checkRegexp refuses what is no regular expression, and says where.
func checkRegexp(field, pattern string) error {
	_, err := regexp.Compile(pattern)
	if err == nil {
		return nil
	}
	where := ""
	if se, ok := err.(*syntax.Error); ok { //nolint:errorlint // regexp returns it bare
		if at := strings.Index(pattern, se.Expr); at > 0 && se.Expr != "" {
			where = fmt.Sprintf(" at byte %d", at)
		}
	}
	return invalid(field, "%.256q is no regular expression%s: %v", pattern, where, err).
		WithHint("RE2 syntax: no lookaround and no backreferences; a backslash before ( [ { . * + ? | ^ $ takes them as they are, or set literal")
}

// ToolGrepResult is sandbox_grep_files' result, ordered by path and line.
type ToolGrepResult struct {
	Matches    []ToolGrepMatch `json:"matches"`
	Files      []string        `json:"files"`       // instead of Matches with files_only
	NextOffset int             `json:"next_offset"` // of the next call; 0 when this is all
	Searched   int64           `json:"searched"`    // files that were read
	Skipped    int64           `json:"skipped"`     // files and folders that could not be read
	Truncated  bool            `json:"truncated"`   // there is more
}

// ToolGrepMatch is one line that matches. Paths are below the folder that was searched.
type ToolGrepMatch struct {
	Path   string   `json:"path"`
	Line   int64    `json:"line"` // from 1 on
	Text   string   `json:"text"` // without its end; cut where it is long
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// Bounds of one sandbox_find_files.
const (
	DefaultToolFound = 100
	MaxToolFound     = 1000
	MaxToolQuery     = 512
)

// ToolFindFiles are sandbox_find_files' arguments.
type ToolFindFiles struct {
	Query    string `json:"query,omitempty" doc:"Letters of the path in their order, fuzzily matched, such as srvmain for server/main.go; several words must all match. Without it all files are listed."`
	Path     string `json:"path,omitempty" doc:"Folder to search in, with all folders below; the sandbox's working directory by default."`
	Type     string `json:"type,omitempty" enum:"file|folder|any" doc:"What to find; file by default."`
	Hidden   bool   `json:"hidden,omitempty" doc:"Also find what has a name that begins with a dot."`
	NoIgnore bool   `json:"no_ignore,omitempty" doc:"Also find what .gitignore and .ignore files leave out."`
	Limit    int    `json:"limit,omitempty" doc:"How many results at most; 100 by default, at most 1000."`
}

// Validate refuses impossible arguments.
func (a *ToolFindFiles) Validate() error {
	switch {
	case len(a.Query) > MaxToolQuery || strings.ContainsRune(a.Query, 0):
		return invalid("query", "%.64q is not possible", a.Query).WithHint("at most %d bytes", MaxToolQuery)
	case a.Type != "" && a.Type != "file" && a.Type != "folder" && a.Type != "any":
		return invalid("type", "%.32q is no type", a.Type).WithHint("use file, folder or any")
	case a.Limit < 0 || a.Limit > MaxToolFound:
		return invalid("limit", "%d is not possible", a.Limit).WithHint("use 1 to %d", MaxToolFound)
	case a.Path == "":
		return nil
	}
	return checkPath("path", a.Path)
}

// ToolFindResult is sandbox_find_files' result, the best first.
type ToolFindResult struct {
	Found     []ToolFound `json:"found"`
	Total     int64       `json:"total"`     // how many matched
	Truncated bool        `json:"truncated"` // not all that matched are in Found, or not all was looked at
}

// ToolFound is one file of a ToolFindResult.
type ToolFound struct {
	Path  string   `json:"path"` // below the folder
	Type  FileType `json:"type"`
	Score int      `json:"score"` // the higher the better; 0 without a query
}

// Bounds of the tools that change files.
const (
	MaxToolReplaceBytes = 16 << 20 // of a file, before and after
	MaxToolFind         = 64 << 10
	MaxToolReplace      = 1 << 20
	MaxToolPatch        = 1 << 20
	MaxToolPatchFiles   = 200
	MaxToolDiff         = 32 << 10 // of a result's diff
)

// ToolFindReplace are sandbox_find_replace's arguments.
type ToolFindReplace struct {
	Path     string `json:"path" doc:"Path of the text file to change; a relative one starts at the sandbox's working directory."`
	Find     string `json:"find" doc:"The text to replace, exactly as it is in the file with all spaces and line ends; it must occur once unless all or expected is given."`
	Replace  string `json:"replace" doc:"The text to put in its place; with regex, $1 or ${name} stand for what groups matched."`
	Regex    bool   `json:"regex,omitempty" doc:"Take find as a regular expression (RE2 syntax); (?m) makes ^ and $ match at lines."`
	All      bool   `json:"all,omitempty" doc:"Replace every occurrence."`
	Expected int    `json:"expected,omitempty" doc:"Replace every occurrence, and fail unless there are exactly so many."`
	DryRun   bool   `json:"dry_run,omitempty" doc:"Only tell what would be changed."`
}

// Validate refuses impossible arguments.
func (a *ToolFindReplace) Validate() error {
	switch {
	case a.Find == "":
		return invalid("find", "missing").WithHint("give the text to replace; sandbox_write_file writes a whole file")
	case len(a.Find) > MaxToolFind || a.Regex && len(a.Find) > MaxToolPattern:
		return invalid("find", "%d bytes are too many", len(a.Find)).
			WithHint("at most %d, a regular expression %d", MaxToolFind, MaxToolPattern)
	case len(a.Replace) > MaxToolReplace:
		return invalid("replace", "%d bytes are too many", len(a.Replace)).WithHint("at most %d", MaxToolReplace)
	case a.Expected < 0 || a.Expected > MaxToolOffset:
		return invalid("expected", "%d is not possible", a.Expected).WithHint("use 1 to %d", MaxToolOffset)
	case a.Find == a.Replace && !a.Regex:
		return invalid("replace", "the same as find")
	}
	if a.Regex {
		if err := checkRegexp("find", a.Find); err != nil {
			return err
		}
	}
	return checkPath("path", a.Path)
}

// ToolReplaced is sandbox_find_replace's result.
type ToolReplaced struct {
	Path         string `json:"path"`
	Replacements int64  `json:"replacements"`
	Diff         string `json:"diff"`      // unified, of the change
	Truncated    bool   `json:"truncated"` // the diff is cut
	DryRun       bool   `json:"dry_run"`   // nothing was changed
}

// ToolApplyPatch are sandbox_apply_patch's arguments.
type ToolApplyPatch struct {
	Patch  string `json:"patch" doc:"A unified diff as git or diff -u write it, or a patch that begins with *** Begin Patch. It may change, add, delete and rename many files; all of it is applied or nothing."`
	Path   string `json:"path,omitempty" doc:"Folder that the paths in the patch are relative to; the sandbox's working directory by default."`
	Strip  *int   `json:"strip,omitempty" doc:"How many leading folders to take off the paths of a unified diff; found out by default (1 for a/ and b/)."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Only tell what would be changed, and whether the patch fits."`
}

// Validate refuses impossible arguments; the patch itself is parsed by the tool.
func (a *ToolApplyPatch) Validate() error {
	switch {
	case strings.TrimSpace(a.Patch) == "":
		return invalid("patch", "missing").WithHint("give a unified diff, or a patch that begins with *** Begin Patch")
	case len(a.Patch) > MaxToolPatch:
		return invalid("patch", "%d bytes are too many", len(a.Patch)).
			WithHint("at most %d: apply it in pieces", MaxToolPatch)
	case a.Strip != nil && (*a.Strip < 0 || *a.Strip > 32):
		return invalid("strip", "%d is not possible", *a.Strip).WithHint("use 0 to 32")
	case a.Path == "":
		return nil
	}
	return checkPath("path", a.Path)
}

// ToolPatched is sandbox_apply_patch's result.
type ToolPatched struct {
	Files  []ToolPatchedFile `json:"files"`
	DryRun bool              `json:"dry_run"` // nothing was changed
}

// ToolPatchedFile is one file of a patch.
type ToolPatchedFile struct {
	Path  string `json:"path"`           // below the folder
	From  string `json:"from,omitempty"` // of a rename
	Kind  string `json:"kind" enum:"added|modified|deleted|renamed"`
	Hunks int    `json:"hunks"`
	// Fuzz is how many lines of all hunks did not fit exactly: by their spaces, or left out at the edges.
	Fuzz   int   `json:"fuzz"`
	Offset int64 `json:"offset"` // the farthest that a hunk was found from where it should be, in lines
}
