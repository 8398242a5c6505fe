package api

import (
	"bytes"
	"encoding/base64"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// FileSyncParams are fs.sync's params: a page of what a folder of the caller's holds. Path is the folder in the
// sandbox, made if it is missing.
//
// Pages are in the order of a walk: names of a folder by their bytes, a folder before what it holds, that before the
// next name (a, a/b, a.c). A page covers what comes behind After, up to its last file or, without More, to the end.
// Nothing else is looked at, or removed.
type FileSyncParams struct {
	FileParams
	Files []SyncFile `json:"files"` // in order, each folder before what it holds
	// Delete removes what the folder in the sandbox holds in the page's range beside Files.
	Delete bool `json:"delete,omitempty"`
	// After is the last path of the page before; none for the first.
	After       string `json:"after,omitempty"`
	AfterBase64 string `json:"after_base64,omitempty"` // in place of After
	More        bool   `json:"more,omitempty"`         // another page follows
}

// MaxSyncFiles and MaxSyncBytes, of all paths and targets, bound a page, so that it fits into a request line whatever
// the names are.
const (
	MaxSyncFiles = 20_000
	MaxSyncBytes = 1 << 20
)

// SyncFile is one file of the caller's. A path or target that is not UTF-8 can be given in base64 only; any may be.
type SyncFile struct {
	Path         string    `json:"path,omitempty"`          // below the folder
	PathBase64   string    `json:"path_base64,omitempty"`   // instead of Path, of a name that is no text
	Type         FileType  `json:"type"`                    // file, folder or symlink
	Size         int64     `json:"size,omitempty"`          // of a file
	MTime        time.Time `json:"mtime,omitzero"`          // of a file
	Target       string    `json:"target,omitempty"`        // of a symlink
	TargetBase64 string    `json:"target_base64,omitempty"` // instead of Target, of one that is no text
}

// FileSynced is fs.sync's result. A tar archive of what is needed, with times to the nanosecond, through fs.unpack
// makes the folders the same.
type FileSynced struct {
	Needed  []int `json:"needed"`  // indexes, in Files, of what is missing in the sandbox, or other there
	Same    int   `json:"same"`    // files that are as they should be, by type, size and time
	Removed int   `json:"removed"` // names, each with all that was below it
}

// SyncPage is a page of fs.sync with its names as bytes.
type SyncPage struct {
	After   string
	Paths   []string // of Files
	Targets []string
}

// Page decodes and checks the names of a page.
func (p *FileSyncParams) Page() (*SyncPage, error) {
	if len(p.Files) > MaxSyncFiles {
		return nil, invalid("files", "%d are too many", len(p.Files)).
			WithHint("at most %d fit into a page: send pages, with more and after", MaxSyncFiles)
	}
	page := &SyncPage{Paths: make([]string, len(p.Files)), Targets: make([]string, len(p.Files))}
	var err error
	if page.After, err = syncName("after", p.After, p.AfterBase64); err != nil {
		return nil, err
	}
	if page.After != "" && !belowFolder(page.After) {
		return nil, invalid("after", "%.128q is no path below a folder", page.After).
			WithHint("give the last path of the page before")
	}
	folders, last, bytes := map[string]bool{}, page.After, len(page.After)
	for i := range p.Files {
		f := &p.Files[i]
		name, err := syncName("files", f.Path, f.PathBase64)
		if err == nil {
			page.Paths[i] = name
			page.Targets[i], err = syncName("files", f.Target, f.TargetBase64)
		}
		if err != nil {
			return nil, err
		}
		dir := path.Dir(name)
		switch bytes += len(name) + len(page.Targets[i]); {
		case !belowFolder(name):
			return nil, invalid("files", "%.128q is no path below a folder", name).
				WithHint("paths are relative, without . and ..")
		case f.Type != TypeFile && f.Type != TypeFolder && f.Type != TypeSymlink:
			return nil, invalid("files", "%.128q: %q does not travel", name, f.Type).
				WithHint("files, folders and symlinks do")
		case bytes > MaxSyncBytes:
			return nil, invalid("files", "paths and targets of more than %d bytes", MaxSyncBytes).
				WithHint("send smaller pages, with more and after")
		case last != "" && !inWalk(last, name):
			return nil, invalid("files", "%.128q does not come behind %.128q", name, last).
				WithHint("names of a folder go by their bytes, a folder before what it holds: a, a/b, a.c")
		case dir != "." && !folders[dir] && dir != page.After && !strings.HasPrefix(page.After, dir+"/"):
			return nil, invalid("files", "%.128q comes without its folder", name).
				WithHint("name each folder before what it holds")
		}
		if last = name; f.Type == TypeFolder {
			folders[name] = true
		}
	}
	if p.More && len(p.Files) == 0 {
		return nil, invalid("more", "of an empty page").
			WithHint("a page ends at its last file, unless it is the last one")
	}
	return page, nil
}

// Validate refuses impossible params.
func (p *FileSyncParams) Validate() error {
	if _, err := p.Page(); err != nil {
		return err
	}
	return p.FileParams.Validate()
}

// belowFolder says that name is a path below a folder, as it is written when it is clean.
func belowFolder(name string) bool {
	return filepath.IsLocal(name) && filepath.Clean(name) == name && name != "." && len(name) <= 4095 &&
		!strings.ContainsRune(name, 0)
}

// inWalk says that a walk comes to a before b.
func inWalk(a, b string) bool {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	switch {
	case i == len(b):
		return false
	case i == len(a) || a[i] == '/':
		return true
	}
	return b[i] != '/' && a[i] < b[i]
}

// syncName is a name that was given as text or as base64.
func syncName(field, text, encoded string) (string, error) {
	switch {
	case encoded == "":
		return text, nil
	case text != "":
		return "", invalid(field, "%.128q was given as text and as base64", text).WithHint("give one of them")
	}
	name, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || bytes.IndexByte(name, 0) >= 0 {
		return "", invalid(field, "%.128q is no base64 of a name", encoded).
			WithHint("give the bytes of the name, in standard base64 with padding")
	}
	return string(name), nil
}

// SyncName is the name for the wire: as text or, where JSON has not the same or would make it much longer, as base64.
func SyncName(name string) (text, encoded string) {
	odd := func(r rune) bool {
		return r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 || strings.ContainsRune(`"\<>&`, r)
	}
	if utf8.ValidString(name) && !strings.ContainsFunc(name, odd) {
		return name, ""
	}
	return "", base64.StdEncoding.EncodeToString([]byte(name))
}

// Upload is a file that comes with sandbox.create.
type Upload struct {
	Name     string   `json:"name"`               // below user-uploads
	Data     string   `json:"data"`               // its content
	Encoding Encoding `json:"encoding,omitempty"` // of Data
	Mode     string   `json:"mode,omitempty"`     // octal, default 0644
}

// MaxUploads bounds Spec.Uploads; larger files, and more, are for fs.write, fs.unpack and fs.sync.
const MaxUploads = 1000

func checkUploads(s *Spec) error {
	if len(s.Uploads) > MaxUploads {
		return invalid("uploads", "%d are too many", len(s.Uploads)).
			WithHint("at most %d: use fs.sync, or fs.unpack, afterwards", MaxUploads)
	}
	for i := range s.Uploads {
		u := &s.Uploads[i]
		if !filepath.IsLocal(u.Name) || filepath.Clean(u.Name) != u.Name || u.Name == "." || len(u.Name) > 1024 {
			return invalid("uploads", "%.128q is no name", u.Name).
				WithHint("give names or paths below user-uploads, without . and ..")
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
