package tools

import (
	"context"

	"github.com/hutch-sh/hutch/internal/patch"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history"
)

// checkpoint keeps what the files are before a call that may change them, where the sandbox is to do so. Its arguments
// are good.
func (c *call) checkpoint(ctx context.Context, name string, arguments any) error {
	paths, changes := touched(arguments)
	if !changes {
		return nil
	}
	made, err := c.set.cfg.Sandboxes.History.Checkpoint(ctx, c.sandbox, history.Call{ID: c.id, Tool: name,
		Paths: paths})
	c.undo = made && err == nil
	return err
}

// touched says whether a call may change files, and which it names.
func touched(arguments any) (paths []string, changes bool) {
	switch a := arguments.(type) {
	case *api.ToolWriteFile:
		return []string{a.Path}, true
	case *api.ToolDeleteFile:
		return []string{a.Path}, true
	case *api.ToolFindReplace:
		return []string{a.Path}, !a.DryRun
	case *api.ToolApplyPatch:
		return patched(a), !a.DryRun
	case *api.ToolRunCommand:
		return nil, a.Exec == ""
	}
	return nil, false
}

// patched are the files that a patch names; that it is none, or too long, is told by who applies it.
func patched(a *api.ToolApplyPatch) (paths []string) {
	strip := -1
	if a.Strip != nil {
		strip = *a.Strip
	}
	files, err := patch.Parse(a.Patch, strip, api.MaxToolPatchFiles)
	if err != nil {
		return nil
	}
	for i := range files {
		paths = append(paths, files[i].Path)
	}
	return paths
}
