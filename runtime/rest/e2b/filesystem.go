package e2b

import (
	"context"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// pathOf is a path as it is meant: relative ones begin at the sandbox's workdir, which is here what a home folder is
// there.
func pathOf(c *call, name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || rest[0] == '/') {
		name = "." + rest
	}
	if !path.IsAbs(name) {
		return path.Join("/", c.sb.Workdir, name)
	}
	return path.Clean(name)
}

func fileOf(c *call, name string) api.FileParams {
	return api.FileParams{Sandbox: c.sb.ID, Path: pathOf(c, name), User: c.user}
}

// metadataSpace is where a file's attributes that are E2B's metadata begin, below "user.".
const metadataSpace = "e2b."

// metadataOf is E2B's metadata among the attributes of a file.
func metadataOf(f *api.File) map[string]string {
	metadata := map[string]string{}
	for name, value := range f.Attributes {
		if key, ok := strings.CutPrefix(name, metadataSpace); ok && key != "" {
			metadata[key] = value
		}
	}
	return metadata
}

// maxLinks bounds the symlinks of a list that are followed: each is a call. Those behind are shown as what they are.
const maxLinks = 1000

// entryOf describes a file that is at a path.
func (s envd) entryOf(ctx context.Context, c *call, p api.FileParams, f *api.File, follow bool) entryInfo {
	mode, _ := strconv.ParseUint(f.Mode, 8, 16)
	e := entryInfo{Name: path.Base(p.Path), Type: typeOf(f.Type), Path: p.Path, Size: int64Text(f.Size),
		Mode: uint32(mode), Permissions: permissions(f.Type, mode),
		Owner: nameOf(c, f.UID, false), Group: nameOf(c, f.GID, true),
		ModifiedTime: f.MTime.UTC(), Metadata: metadataOf(f)}
	if f.Type == api.TypeSymlink { // it is shown as what it leads to
		target := f.Target
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(p.Path), target)
		}
		e.SymlinkTarget = &target
		if !follow {
			return e
		}
		to, err := rest.Do(ctx, s.rest, api.CallFSStat, api.FileStatParams{FileParams: p, Follow: true})
		if err == nil { // else it leads to nothing
			e.Type = typeOf(to.Type)
		}
	}
	return e
}

func typeOf(t api.FileType) fileType {
	switch t {
	case api.TypeFile:
		return fileFile
	case api.TypeFolder:
		return fileFolder
	case api.TypeSymlink:
		return fileSymlink
	}
	return fileOther
}

// permissions are mode as ls shows it.
func permissions(t api.FileType, mode uint64) string {
	m := fs.FileMode(mode & 0o777)
	switch t {
	case api.TypeFolder:
		m |= fs.ModeDir
	case api.TypeSymlink:
		m |= fs.ModeSymlink
	}
	return m.String()
}

// nameOf is what a user, or with group a group, is called. Names are the image's, and not looked up; that of the
// sandbox's own user is the one that requests have for it (userOf).
func nameOf(c *call, id uint32, group bool) string {
	user, own, _ := strings.Cut(c.sb.User, ":")
	if !group || own == "" {
		own = user
	}
	switch number := strconv.FormatUint(uint64(id), 10); {
	case own == number || id == 0 && (own == "" || own == "root"):
		return sandboxUser
	case id == 0:
		return "root"
	default:
		return number
	}
}

func (s envd) look(ctx context.Context, c *call, p api.FileParams) (*entryResponse, error) {
	f, err := rest.Do(ctx, s.rest, api.CallFSStat, api.FileStatParams{FileParams: p, Attributes: true})
	if err != nil {
		return nil, err
	}
	return &entryResponse{s.entryOf(ctx, c, p, &f, true)}, nil
}

func (s envd) stat(ctx context.Context, c *call, req *pathRequest) (*entryResponse, error) {
	return s.look(ctx, c, fileOf(c, req.Path))
}

func (s envd) makeDir(ctx context.Context, c *call, req *pathRequest) (*entryResponse, error) {
	p := fileOf(c, req.Path)
	made, err := rest.Do(ctx, s.rest, api.CallFSMkdir, api.FileMkdirParams{FileParams: p, Parents: true})
	if err != nil {
		return nil, err
	}
	if !made.Created {
		return nil, api.Errorf(api.AlreadyExists, "directory already exists: %s", p.Path)
	}
	return s.look(ctx, c, p)
}

func (s envd) move(ctx context.Context, c *call, req *moveRequest) (*entryResponse, error) {
	p, to := fileOf(c, req.Source), fileOf(c, req.Destination)
	if _, err := s.look(ctx, c, p); err != nil {
		return nil, err
	}
	above := to
	above.Path = path.Dir(to.Path)
	_, err := rest.Do(ctx, s.rest, api.CallFSMkdir, api.FileMkdirParams{FileParams: above, Parents: true})
	if err != nil {
		return nil, err
	}
	if _, err := rest.Do(ctx, s.rest, api.CallFSMove, api.FileMoveParams{FileParams: p, To: to.Path}); err != nil {
		return nil, err
	}
	return s.look(ctx, c, to)
}

func (s envd) listDir(ctx context.Context, c *call, req *listDirRequest) (*listDirResponse, error) {
	p := api.FileListParams{FileParams: fileOf(c, req.Path), Limit: api.MaxListLimit, Attributes: true}
	if req.Depth > 1 {
		p.Recursive, p.Depth = true, int(min(req.Depth, 1000))
	}
	found, err := rest.Do(ctx, s.rest, api.CallFSList, p)
	if api.ErrorCode(err) == api.FailedPrecondition { // no folder
		return nil, api.Errorf(api.InvalidArgument, "path is not a directory: %s", p.Path)
	}
	if err != nil {
		return nil, err
	}
	res := &listDirResponse{Entries: make([]entryInfo, 0, len(found.Entries))}
	links := 0
	for i := range found.Entries {
		f := p.FileParams
		f.Path = path.Join(p.Path, found.Entries[i].Path)
		if found.Entries[i].Type == api.TypeSymlink {
			links++
		}
		res.Entries = append(res.Entries, s.entryOf(ctx, c, f, &found.Entries[i], links <= maxLinks))
	}
	return res, nil
}

func (s envd) remove(ctx context.Context, c *call, req *pathRequest) (*empty, error) {
	_, err := rest.Do(ctx, s.rest, api.CallFSRemove, api.FileRemoveParams{FileParams: fileOf(c, req.Path),
		Recursive: true, MissingOK: true})
	return &empty{}, err
}
