package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/patch"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// The file side of the tools: what the fs.* methods do not have. The worker does the work; here arguments are made
// complete, and what comes back is checked.

// On says in which sandbox a tool works, and with whose rights: those of the sandbox's user by default.
type On struct{ Sandbox, User string }

func (on On) file(path string) *api.FileParams {
	return &api.FileParams{Sandbox: on.Sandbox, Path: cmp.Or(path, "."), User: on.User}
}

// toolHints are what a model can do where fileHints tell of methods that it does not have.
var toolHints = map[unix.Errno]string{
	unix.ENOENT:     "sandbox_list_directory shows what is there, sandbox_find_files searches for a name",
	unix.EISDIR:     "sandbox_list_directory lists a folder",
	unix.ENOTDIR:    "a part of the path is a file; sandbox_list_directory shows what is there",
	unix.EEXIST:     "remove it first with sandbox_delete_file",
	unix.EOPNOTSUPP: "only regular files can be read and changed by tools",
	unix.EFBIG:      "use sandbox_run_command, with tail or sed for example",
	unix.EINVAL:     "read what is there with sandbox_read_file, and call again with arguments that fit",
	unix.EXDEV:      "paths must stay in the folder, also behind symbolic links",
}

// askTool is ask with arguments as JSON, and hints for a model.
func (f *Files) askTool(ctx context.Context, op string, p *api.FileParams, req filesapi.Request, args any,
	limit int) (*filesapi.Reply, []byte, error) {
	data, err := json.Marshal(args)
	if err != nil {
		return nil, nil, err
	}
	return forModel(f.ask(ctx, op, p, req, data, limit))
}

// forModel gives an error a hint for a model.
func forModel(r *filesapi.Reply, out []byte, err error) (*filesapi.Reply, []byte, error) {
	var fe *filesapi.Error
	var ae *api.Error
	if errors.As(err, &fe) && errors.As(err, &ae) {
		if hint := toolHints[fe.Errno]; hint != "" {
			return nil, nil, ae.WithHint("%s", hint)
		}
	}
	return r, out, err
}

// nonsense is what a worker answered that no worker of ours answers.
func nonsense(op string, err error) error {
	return api.Errorf(api.Unavailable, "the sandbox's files worker answered nonsense: %w", err).
		WithOp(op).WithHint("call again: another worker is started")
}

// ReadLines reads lines of a text file.
func (f *Files) ReadLines(ctx context.Context, on On, p api.ToolReadFile) (api.ToolFileText, error) {
	if err := p.Validate(); err != nil {
		return api.ToolFileText{}, err
	}
	start := p.StartLine
	if start == 0 {
		start = 1
	}
	args := &filesapi.LinesArgs{Start: start, Lines: api.DefaultToolLines, Bytes: api.MaxToolTextBytes,
		LineSize: api.MaxToolLineBytes}
	if p.EndLine > 0 {
		args.Lines = int(p.EndLine - start + 1)
	}
	_, data, err := f.askTool(ctx, api.MethodFSRead, on.file(p.Path), filesapi.Request{Op: filesapi.OpLines}, args,
		filesapi.MaxLines(args.Bytes))
	if err != nil {
		return api.ToolFileText{}, err
	}
	l, err := filesapi.ParseLines(data, args)
	if err != nil {
		return api.ToolFileText{}, nonsense(api.MethodFSRead, err)
	}
	got := int64(0)
	if l.Start > 0 {
		got = l.End - l.Start + 1
	}
	return api.ToolFileText{
		Path: p.Path, Text: excerpt.Valid(l.Text), StartLine: l.Start, EndLine: l.End, NextLine: l.Next,
		TotalLines: l.Total,
		Size:       l.Size, Binary: l.Binary, CutLines: l.Cut, Truncated: l.Next > 0 && got < int64(args.Lines),
	}, nil
}

// Grep searches files for lines.
func (f *Files) Grep(ctx context.Context, on On, p api.ToolGrepFiles) (api.ToolGrepResult, error) {
	if err := p.Validate(); err != nil {
		return api.ToolGrepResult{}, err
	}
	if p.MaxMatches == 0 {
		p.MaxMatches = api.DefaultToolMatches
	}
	args := &filesapi.GrepArgs{
		Pattern: p.Pattern, Literal: p.Literal, IgnoreCase: p.IgnoreCase, Globs: p.Globs, Context: p.Context,
		Hidden:   p.Hidden,
		NoIgnore: p.NoIgnore, FilesOnly: p.FilesOnly, Max: p.MaxMatches, Offset: p.Offset,
		LineSize: api.MaxToolMatchBytes,
	}
	r, data, err := f.askTool(ctx, api.MethodFSList, on.file(p.Path), filesapi.Request{Op: filesapi.OpGrep}, args,
		filesapi.MaxGrep)
	if err != nil {
		return api.ToolGrepResult{}, err
	}
	list, err := filesapi.ParseMatches(data, args)
	if err != nil {
		return api.ToolGrepResult{}, nonsense(api.MethodFSList, err)
	}
	result := api.ToolGrepResult{
		Matches: []api.ToolGrepMatch{}, Files: []string{}, Searched: r.Count, Skipped: r.Skipped,
		Truncated: r.Truncated,
	}
	for i := range list {
		name := excerpt.Valid(list[i].Path)
		if len(list[i].Path) == 0 {
			name = p.Path
		}
		if p.FilesOnly {
			result.Files = append(result.Files, name)
			continue
		}
		result.Matches = append(result.Matches, api.ToolGrepMatch{
			Path: name, Line: list[i].Line, Text: excerpt.Valid(list[i].Text), Before: validAll(list[i].Before),
			After: validAll(list[i].After),
		})
	}
	if r.Truncated && len(list) > 0 {
		result.NextOffset = p.Offset + len(list)
	}
	return result, nil
}

func validAll(lines [][]byte) []string {
	var list []string
	for _, l := range lines {
		list = append(list, excerpt.Valid(l))
	}
	return list
}

// Find searches for files by their names.
func (f *Files) Find(ctx context.Context, on On, p api.ToolFindFiles) (api.ToolFindResult, error) {
	if err := p.Validate(); err != nil {
		return api.ToolFindResult{}, err
	}
	args := &filesapi.FindArgs{
		Query: p.Query, Files: p.Type != "folder", Folders: p.Type == "folder" || p.Type == "any", Hidden: p.Hidden,
		NoIgnore: p.NoIgnore,
		Max:      p.Limit,
	}
	if args.Max == 0 {
		args.Max = api.DefaultToolFound
	}
	r, data, err := f.askTool(ctx, api.MethodFSList, on.file(p.Path), filesapi.Request{Op: filesapi.OpFind}, args,
		filesapi.MaxGrep)
	if err != nil {
		return api.ToolFindResult{}, err
	}
	list, err := filesapi.ParseFound(data, args)
	if err != nil {
		return api.ToolFindResult{}, nonsense(api.MethodFSList, err)
	}
	result := api.ToolFindResult{Found: []api.ToolFound{}, Total: r.Count, Truncated: r.Truncated}
	for _, f := range list {
		kind := api.TypeFile
		if f.Folder {
			kind = api.TypeFolder
		}
		result.Found = append(result.Found, api.ToolFound{Path: excerpt.Valid(f.Path), Type: kind, Score: f.Score})
	}
	return result, nil
}

// Replace replaces a text in a file.
func (f *Files) Replace(ctx context.Context, on On, p api.ToolFindReplace) (api.ToolReplaced, error) {
	if err := p.Validate(); err != nil {
		return api.ToolReplaced{}, err
	}
	args := &filesapi.ReplaceArgs{
		Find: p.Find, Replace: p.Replace, Regex: p.Regex, All: p.All, Expected: p.Expected, DryRun: p.DryRun,
		MaxSize: api.MaxToolReplaceBytes, MaxDiff: api.MaxToolDiff,
	}
	_, data, err := f.askTool(ctx, api.MethodFSWrite, on.file(p.Path), filesapi.Request{Op: filesapi.OpReplace}, args,
		args.MaxReplaced())
	if err != nil {
		return api.ToolReplaced{}, err
	}
	r, err := filesapi.ParseReplaced(data, args)
	if err != nil {
		return api.ToolReplaced{}, nonsense(api.MethodFSWrite, err)
	}
	return api.ToolReplaced{Path: p.Path, Replacements: r.Count, Diff: excerpt.Valid(r.Diff), Truncated: r.Truncated,
		DryRun: p.DryRun}, nil
}

// Patch applies a patch, all of it or nothing.
func (f *Files) Patch(ctx context.Context, on On, p api.ToolApplyPatch) (api.ToolPatched, error) {
	if err := p.Validate(); err != nil {
		return api.ToolPatched{}, err
	}
	args := &filesapi.PatchArgs{
		Patch: p.Patch, Strip: -1, MaxFiles: api.MaxToolPatchFiles, MaxSize: 2 * api.MaxToolReplaceBytes,
	}
	if p.Strip != nil {
		args.Strip = *p.Strip
	}
	if _, err := patch.Parse(p.Patch, args.Strip, args.MaxFiles); err != nil {
		return api.ToolPatched{}, api.Errorf(api.InvalidArgument, "patch: %w", err).WithField("patch").
			WithHint("give a unified diff (---, +++, @@), or *** Begin Patch with *** Update File, *** Add File or *** Delete File")
	}
	data, err := f.patch(ctx, on.file(p.Path), args, p.DryRun)
	if err != nil {
		return api.ToolPatched{}, err
	}
	list, _, err := filesapi.ParsePatched(data, args)
	if err != nil {
		return api.ToolPatched{}, nonsense(api.MethodFSWrite, err)
	}
	r := api.ToolPatched{Files: []api.ToolPatchedFile{}, DryRun: p.DryRun}
	for _, f := range list {
		r.Files = append(r.Files, api.ToolPatchedFile{
			Path: excerpt.Valid(f.Path), From: excerpt.Valid(f.From), Kind: f.Kind, Hunks: f.Hunks, Fuzz: f.Fuzz,
			Offset: f.Offset,
		})
	}
	return r, nil
}
