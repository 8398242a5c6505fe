package code

import (
	"context"
	"mime"
	"path"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// What is looked at of the working directory: its own files, and those of its folders where it is not the root.
const (
	maxLooked    = 500
	lookedDepth  = 2
	maxImage     = 1 << 20 // bytes of an image file that comes with the result
	maxImageData = 4 << 20 // of all of them
)

// stamp tells a file from what it was.
type stamp struct {
	size  int64
	mtime time.Time
}

// look notes the files of the directory that code runs in; nil where that can not be told. A kept interpreter may be elsewhere by now:
// files are then found in none of its runs.
func (r *Runner) look(ctx context.Context, p *api.CodeParams, box *api.Sandbox) map[string]stamp {
	files, err := r.list(ctx, p, box)
	if err != nil {
		return nil
	}
	seen := map[string]stamp{}
	for _, f := range files {
		if f.Type == api.TypeFile {
			seen[f.Path] = stamp{f.Size, f.MTime}
		}
	}
	return seen
}

func (r *Runner) list(ctx context.Context, p *api.CodeParams, box *api.Sandbox) ([]api.File, error) {
	dir := workdir(p, box)
	params := api.FileListParams{FileParams: api.FileParams{Sandbox: p.Sandbox, Path: dir, User: p.User}, Limit: maxLooked}
	if dir != "/" {
		params.Recursive, params.Depth = true, lookedDepth
	}
	list, err := r.boxes.ListFiles(ctx, params)
	return list.Entries, err
}

func workdir(p *api.CodeParams, box *api.Sandbox) string {
	if p.Cwd != "" {
		return path.Join("/", box.Workdir, p.Cwd)
	}
	return path.Join("/", box.Workdir)
}

// addFiles adds the files that code has made or changed; images with what is in them.
func (r *Runner) addFiles(ctx context.Context, p *api.CodeParams, box *api.Sandbox, before map[string]stamp, res *api.CodeResult) {
	if before == nil {
		return
	}
	files, err := r.list(ctx, p, box)
	if err != nil {
		return // the sandbox has ended, say, which the result tells
	}
	left := int64(maxImageData)
	for _, f := range files {
		if f.Type != api.TypeFile || before[f.Path] == (stamp{f.Size, f.MTime}) {
			continue
		}
		if len(res.Artifacts) == maxCount {
			res.Truncated = true
			return
		}
		a := api.Artifact{Kind: "file", Path: path.Join(workdir(p, box), f.Path), MIMEType: typeOf(f.Path), Size: f.Size}
		if strings.HasPrefix(a.MIMEType, "image/") && f.Size <= maxImage && f.Size <= left {
			c, err := r.boxes.ReadFile(ctx, api.FileReadParams{FileParams: api.FileParams{Sandbox: p.Sandbox, Path: a.Path, User: p.User}, Limit: maxImage, Encoding: api.Base64}, nil)
			if err == nil && c.EOF {
				a.Data = c.Data
				left -= f.Size
			}
		}
		res.Artifacts = append(res.Artifacts, a)
	}
}

// types are those of the files that code makes most; what the host's tables say of others is the host's.
var types = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".svg": "image/svg+xml",
	".json": "application/json", ".csv": "text/csv", ".txt": "text/plain", ".md": "text/markdown", ".html": "text/html", ".pdf": "application/pdf",
	".py": "text/x-python", ".js": "text/javascript",
}

// typeOf is a file's type by its name.
func typeOf(name string) string {
	if t := types[strings.ToLower(path.Ext(name))]; t != "" {
		if strings.HasPrefix(t, "text/") {
			return mime.FormatMediaType(t, map[string]string{"charset": "utf-8"})
		}
		return t
	}
	return "application/octet-stream"
}
