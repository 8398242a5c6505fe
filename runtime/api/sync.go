package api

import (
	"path/filepath"
	"time"
)

// FileSyncParams are fs.sync's params: what a folder of the caller's holds. Path is the folder in the sandbox, made if it is missing.
type FileSyncParams struct {
	FileParams
	Files []SyncFile `json:"files"`
	// Delete removes what the folder in the sandbox holds beside Files.
	Delete bool `json:"delete,omitempty"`
}

// MaxSyncFiles bounds Files; a request line does so, too.
const MaxSyncFiles = 100_000

// SyncFile is one file of the caller's.
type SyncFile struct {
	Path   string    `json:"path"`             // below the folder
	Type   FileType  `json:"type"`             // file, folder or symlink
	Size   int64     `json:"size,omitempty"`   // of a file
	MTime  time.Time `json:"mtime,omitzero"`   // of a file
	Target string    `json:"target,omitempty"` // of a symlink
}

// FileSynced is fs.sync's result. A tar archive of what is needed, with times to the nanosecond, through fs.unpack makes the folders the same.
type FileSynced struct {
	Needed  []string `json:"needed"`  // paths of Files that are missing in the sandbox, or others there
	Same    int      `json:"same"`    // files that are as they should be, by type, size and time
	Removed int      `json:"removed"` // names, each with all that was below it
}

// Validate refuses impossible params.
func (p *FileSyncParams) Validate() error {
	if len(p.Files) > MaxSyncFiles {
		return invalid("files", "%d are too many", len(p.Files)).WithHint("at most %d: sync folders one by one", MaxSyncFiles)
	}
	for i := range p.Files {
		f := &p.Files[i]
		switch {
		case !filepath.IsLocal(f.Path) || filepath.Clean(f.Path) != f.Path || f.Path == "." || len(f.Path) > 4095:
			return invalid("files", "%.128q is no path below a folder", f.Path).WithHint("paths are relative, without . and ..")
		case f.Type != TypeFile && f.Type != TypeFolder && f.Type != TypeSymlink:
			return invalid("files", "%.128q: %q does not travel", f.Path, f.Type).WithHint("files, folders and symlinks do")
		}
	}
	return p.FileParams.Validate()
}

// Upload is a file that comes with sandbox.create.
type Upload struct {
	Name     string   `json:"name"` // below user-uploads
	Data     string   `json:"data"`
	Encoding Encoding `json:"encoding,omitempty"` // of Data
	Mode     string   `json:"mode,omitempty"`     // octal, default 0644
}

// MaxUploads bounds Spec.Uploads; larger files, and more, are for fs.write, fs.unpack and fs.sync.
const MaxUploads = 1000

func checkUploads(s *Spec) error {
	if len(s.Uploads) > MaxUploads {
		return invalid("uploads", "%d are too many", len(s.Uploads)).WithHint("at most %d: use fs.sync, or fs.unpack, afterwards", MaxUploads)
	}
	for i := range s.Uploads {
		u := &s.Uploads[i]
		if !filepath.IsLocal(u.Name) || filepath.Clean(u.Name) != u.Name || u.Name == "." || len(u.Name) > 1024 {
			return invalid("uploads", "%.128q is no name", u.Name).WithHint("give names or paths below user-uploads, without . and ..")
		}
		if err := checkEncoding(u.Encoding); err != nil {
			return err
		}
		if _, err := FileMode("uploads", u.Mode); err != nil {
			return err
		}
	}
	return nil
}
