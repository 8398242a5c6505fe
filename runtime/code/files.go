package code

import (
	"context"
	"path"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/code/interp"
)

// look notes the files of the directory that code runs in; nil where that cannot be told. A kept interpreter may be
// elsewhere by now: files are then found in none of its runs.
func (r *Runner) look(ctx context.Context, p *api.CodeParams, box *api.Sandbox) interp.Stamps {
	files, err := r.list(ctx, p, box)
	if err != nil {
		return nil
	}
	return interp.StampsOf(files)
}

func (r *Runner) list(ctx context.Context, p *api.CodeParams, box *api.Sandbox) ([]api.File, error) {
	dir := workdir(p, box)
	params := api.FileListParams{FileParams: api.FileParams{Sandbox: p.Sandbox, Path: dir, User: p.User},
		Limit: interp.MaxLooked}
	if dir != "/" {
		params.Recursive, params.Depth = true, interp.LookedDepth
	}
	list, err := r.boxes.Files.List(ctx, params)
	return list.Entries, err
}

func workdir(p *api.CodeParams, box *api.Sandbox) string {
	if p.Cwd != "" {
		return path.Join("/", box.Workdir, p.Cwd)
	}
	return path.Join("/", box.Workdir)
}

// addFiles adds the files that code has made or changed.
func (r *Runner) addFiles(ctx context.Context, p *api.CodeParams, box *api.Sandbox, before interp.Stamps,
	res *api.CodeResult) {
	if before == nil {
		return
	}
	files, err := r.list(ctx, p, box)
	if err != nil {
		return // the sandbox has ended, say, which the result tells
	}
	interp.AddFiles(res, workdir(p, box), before, files, func(path string) (string, bool) {
		c, err := r.boxes.Files.Read(ctx,
			api.FileReadParams{FileParams: api.FileParams{Sandbox: p.Sandbox, Path: path, User: p.User},
				Limit: interp.MaxImage, Encoding: api.Base64}, nil)
		return c.Data, err == nil && c.EOF
	})
}
