package interp

import (
	"mime"
	"path"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// What is looked at of the working directory: its own files, and those of its folders where it is not the root.
const (
	MaxLooked   = 500
	LookedDepth = 2
)

// Bounds of image files, in bytes.
const (
	MaxImage     = 1 << 20 // of one that comes with the result
	maxImageData = 4 << 20 // of all of them
)

// Stamps tell files, by their paths, from what they were.
type Stamps map[string]stamp

type stamp struct {
	size  int64
	mtime time.Time
}

// StampsOf are those of a list.
func StampsOf(files []api.File) Stamps {
	seen := Stamps{}
	for _, f := range files {
		if f.Type == api.TypeFile {
			seen[f.Path] = stamp{f.Size, f.MTime}
		}
	}
	return seen
}

// AddFiles adds the files of dir that code has made or changed since before, images with what is in them: image reads
// one of at most MaxImage, as base64.
func AddFiles(res *api.CodeResult, dir string, before Stamps, files []api.File,
	image func(path string) (string, bool)) {
	left := int64(maxImageData)
	for _, f := range files {
		if f.Type != api.TypeFile || before[f.Path] == (stamp{f.Size, f.MTime}) {
			continue
		}
		if len(res.Artifacts) == MaxArtifacts {
			res.Truncated = true
			return
		}
		a := api.Artifact{Kind: "file", Path: path.Join(dir, f.Path), MIMEType: typeOf(f.Path), Size: f.Size}
		if strings.HasPrefix(a.MIMEType, "image/") && f.Size <= MaxImage && f.Size <= left {
			if data, ok := image(a.Path); ok {
				a.Data = data
				left -= f.Size
			}
		}
		res.Artifacts = append(res.Artifacts, a)
	}
}

// types are those of the files that code makes most; what the host's tables say of others is the host's.
var types = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".svg":  "image/svg+xml",
	".json": "application/json", ".csv": "text/csv", ".txt": "text/plain", ".md": "text/markdown", ".html": "text/html",
	".pdf": "application/pdf",
	".py":  "text/x-python", ".js": "text/javascript",
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
