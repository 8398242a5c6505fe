package sandbox

import (
	"context"
	"errors"
	"path"

	"github.com/hutch-sh/hutch/runtime/api"
)

// SyncFiles tells what a folder in the sandbox lacks of the caller's, and removes what it has too much.
func (m *Manager) SyncFiles(ctx context.Context, p api.FileSyncParams) (api.FileSynced, error) {
	made, err := m.MakeFolder(ctx, api.FileMkdirParams{FileParams: p.FileParams, Parents: true})
	if err != nil {
		return api.FileSynced{}, err
	}
	there := map[string]api.File{}
	if !made.Created {
		all := 0
		list, err := m.ListFiles(ctx, api.FileListParams{FileParams: p.FileParams, Recursive: true, Limit: api.MaxListLimit, Offset: &all})
		if err != nil {
			return api.FileSynced{}, err
		}
		if list.Truncated {
			return api.FileSynced{}, api.Errorf(api.ResourceExhausted, "%s holds more than %d files", p.Path, api.MaxListLimit).
				WithOp(api.MethodFSSync).WithHint("sync folders further down, one by one")
		}
		for _, f := range list.Entries {
			there[f.Path] = f
		}
	}
	r := api.FileSynced{Needed: []string{}}
	wanted := make(map[string]bool, len(p.Files))
	remove := func(name string) error {
		file := p.FileParams
		file.Path = path.Join(absolute(m.workdirOf(p.Sandbox), p.Path), name)
		_, err := m.RemoveFile(ctx, api.FileRemoveParams{FileParams: file, Recursive: true, MissingOK: true})
		r.Removed++
		return err
	}
	for i := range p.Files {
		f := &p.Files[i]
		wanted[f.Path] = true
		old, is := there[f.Path]
		switch {
		case is && old.Type != f.Type: // what is unpacked takes the place of a file, not of a folder
			if err := remove(f.Path); err != nil {
				return r, err
			}
			r.Needed = append(r.Needed, f.Path)
		case is && sameFile(&old, f):
			r.Same++
		default:
			r.Needed = append(r.Needed, f.Path)
		}
	}
	if !p.Delete {
		return r, nil
	}
	for name := range there {
		if wanted[name] || !wantedAbove(wanted, name) {
			continue // the folder above goes
		}
		if err := remove(name); err != nil {
			return r, err
		}
	}
	return r, nil
}

// wantedAbove says that the folder a name is in stays.
func wantedAbove(wanted map[string]bool, name string) bool {
	dir := path.Dir(name)
	return dir == "." || wanted[dir]
}

func sameFile(old *api.File, f *api.SyncFile) bool {
	switch f.Type {
	case api.TypeFile:
		return old.Size == f.Size && old.MTime.Equal(f.MTime)
	case api.TypeSymlink:
		return old.Target == f.Target
	}
	return true
}

func (m *Manager) workdirOf(ref string) string {
	s, err := m.find(ref)
	if err != nil {
		return ""
	}
	return s.Record().Workdir
}

// uploadsDir is where files land that came with sandbox.create, in the sandbox's workdir.
const uploadsDir = "user-uploads"

// upload writes the files that came with a request.
func (m *Manager) upload(ctx context.Context, id string, files []api.Upload) error {
	for i := range files {
		f := &files[i]
		_, err := m.WriteFile(ctx, api.FileWriteParams{
			FileParams: api.FileParams{Sandbox: id, Path: uploadsDir + "/" + f.Name}, Data: f.Data, Encoding: f.Encoding, Mode: f.Mode, Parents: true,
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
