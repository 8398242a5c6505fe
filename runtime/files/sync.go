package files

import (
	"context"
	"encoding/json"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// syncModes are the types that fs.sync knows, as stat(2) has them.
var syncModes = map[api.FileType]uint32{api.TypeFile: unix.S_IFREG, api.TypeFolder: unix.S_IFDIR,
	api.TypeSymlink: unix.S_IFLNK}

// Sync tells what a folder in the sandbox lacks of a page of the caller's, and removes what it has too much in the
// page's range.
func (f *Files) Sync(ctx context.Context, p api.FileSyncParams) (api.FileSynced, error) {
	page, err := p.Page()
	if err != nil {
		return api.FileSynced{}, err
	}
	if _, err := f.MakeFolder(ctx, api.FileMkdirParams{FileParams: p.FileParams, Parents: true}); err != nil {
		return api.FileSynced{}, err
	}
	args := filesapi.SyncArgs{After: []byte(page.After), More: p.More, Delete: p.Delete,
		Files: make([]filesapi.SyncFile, len(p.Files))}
	for i := range p.Files {
		f := &p.Files[i]
		args.Files[i] = filesapi.SyncFile{
			Path: []byte(page.Paths[i]), Mode: syncModes[f.Type], Size: f.Size, MTime: f.MTime,
			Target: []byte(page.Targets[i]),
		}
	}
	data, err := json.Marshal(args)
	if err != nil {
		return api.FileSynced{}, api.Errorf(api.InvalidArgument, "files: %w", err).WithField("files").
			WithHint("times are in the years 0 to 9999")
	}
	_, out, err := f.ask(ctx, api.MethodFSSync, &p.FileParams, filesapi.Request{Op: filesapi.OpSync}, data,
		filesapi.MaxSynced(len(p.Files)))
	if err != nil {
		return api.FileSynced{}, err
	}
	r, err := filesapi.ParseSynced(out, len(p.Files))
	if err != nil {
		return api.FileSynced{}, nonsense(api.MethodFSSync, err)
	}
	return api.FileSynced{Needed: append([]int{}, r.Needed...), Same: r.Same, Removed: r.Removed}, nil
}

// uploadsDir is where files land that came with sandbox.create, in the sandbox's workdir.
const uploadsDir = "user-uploads"

// Upload writes the files that came with a request.
func (f *Files) Upload(ctx context.Context, id string, files []api.Upload) error {
	for i := range files {
		up := &files[i]
		_, err := f.Write(ctx, api.FileWriteParams{
			FileParams: api.FileParams{Sandbox: id, Path: uploadsDir + "/" + up.Name}, Data: up.Data,
			Encoding: up.Encoding, Mode: up.Mode, Parents: true,
		}, nil)
		if err != nil {
			var e *api.Error
			if errors.As(err, &e) {
				return e.WithField("uploads")
			}
			return err
		}
	}
	return nil
}
