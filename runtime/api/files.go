package api

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// FileParams name one file of a sandbox, and whose rights to it are used. They
// are part of the params of every fs.* method.
type FileParams struct {
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`           // relative ones start at the sandbox's workdir
	User    string `json:"user,omitempty"` // name|uid[:group|gid]; default: the sandbox's user
}

// FileReadParams are fs.read's params.
type FileReadParams struct {
	FileParams
	Offset   int64    `json:"offset,omitempty"`   // of the first byte wanted; negative: so many bytes before the end
	Limit    int64    `json:"limit,omitempty"`    // bytes; default 256 KiB, with FD everything
	Encoding Encoding `json:"encoding,omitempty"` // base64 may be asked for
	// Special reads also from a fifo or a device: what it has at this moment.
	Special bool `json:"special,omitempty"`

	// FD is the index, in the request's fds, of a pipe that takes the bytes instead
	// of the reply. The call ends when all are in the pipe.
	FDs int  `json:"fds,omitempty"`
	FD  *int `json:"fd,omitempty"`
}

// FileChunk is fs.read's result: the bytes [Offset, Next) of a file.
type FileChunk struct {
	Offset   int64    `json:"offset"`
	Next     int64    `json:"next"` // where the next read goes on
	Size     int64    `json:"size"` // of the file at this moment; 0 for those of /proc
	Data     string   `json:"data"`
	Encoding Encoding `json:"encoding"`
	EOF      bool     `json:"eof"` // Next is the end of the file
}

// FileWriteParams are fs.write's params. Without Append and Offset the file gets
// this content and no other: a new file takes the place of the old one in a single
// step and keeps its owner and mode, so that readers see one or the other whole.
type FileWriteParams struct {
	FileParams
	Data     string   `json:"data,omitempty"`     // the new bytes
	Encoding Encoding `json:"encoding,omitempty"` // of Data

	Append bool   `json:"append,omitempty"` // write at the end of the file
	Offset *int64 `json:"offset,omitempty"` // write there; the rest of the file stays

	Create    *bool  `json:"create,omitempty"`    // make a missing file; default true
	Exclusive bool   `json:"exclusive,omitempty"` // fail if it exists
	Parents   bool   `json:"parents,omitempty"`   // make missing folders above it
	Mode      string `json:"mode,omitempty"`      // octal, "0755"; default: the old file's, else 0644
	// IfVersion fails where the file is not the one that had this version in fs.stat: no write of another's is lost.
	IfVersion string `json:"if_version,omitempty"`
	// Atomic true fails where the old file cannot be replaced in a single step (it
	// has several names, say); false writes into the file itself. By default that is
	// done where it must be.
	Atomic *bool `json:"atomic,omitempty"`

	// Attributes are extended attributes that the file gets, by their names below "user.". A file that is replaced in a
	// single step has no others; another one keeps those that it had besides.
	Attributes map[string]string `json:"attributes,omitempty"`

	// FD is the index, in the request's fds, of a pipe that holds the content
	// instead of Data. SizeBytes, where it is known, makes a pipe that ends too
	// early an error, which leaves the old file as it was.
	FDs       int    `json:"fds,omitempty"`
	FD        *int   `json:"fd,omitempty"`
	SizeBytes *int64 `json:"size_bytes,omitempty"`
}

// FileWritten is fs.write's result.
type FileWritten struct {
	Written int64 `json:"written"` // bytes
	Size    int64 `json:"size"`    // of the file now
	Created bool  `json:"created"` // it did not exist
	Atomic  bool  `json:"atomic"`  // it was replaced in a single step
}

// FileType is what kind of file something is.
type FileType string

// The types of files.
const (
	TypeFile    FileType = "file"
	TypeFolder  FileType = "folder"
	TypeSymlink FileType = "symlink"
	TypeFifo    FileType = "fifo"
	TypeSocket  FileType = "socket"
	TypeChar    FileType = "char_device"
	TypeBlock   FileType = "block_device"
)

// File describes one file. Ids are those inside the sandbox.
type File struct {
	Name   string    `json:"name"` // its last name
	Path   string    `json:"path"` // of a list: below the folder; else as asked for
	Type   FileType  `json:"type"`
	Size   int64     `json:"size"`
	Mode   string    `json:"mode"` // permissions, octal: "0644"
	MTime  time.Time `json:"mtime"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Target string    `json:"target,omitempty"` // of a symlink
	// Version, of fs.stat, changes with whatever writes the file or takes its place: see if_version of fs.write.
	Version string `json:"version,omitempty"`
	// PathBase64 holds the bytes of a path that is not UTF-8.
	PathBase64 string `json:"path_base64,omitempty"`
	// Error says why a folder of a recursive list was not entered.
	Error string `json:"error,omitempty"`
	// Attributes, where they were asked for, are the extended attributes of a file or folder that the user may read, by
	// their names below "user.".
	Attributes map[string]string `json:"attributes,omitempty"`
}

// FileStatParams are fs.stat's params.
type FileStatParams struct {
	FileParams
	Follow     bool `json:"follow,omitempty"`     // describe what a symlink leads to
	Attributes bool `json:"attributes,omitempty"` // tell extended attributes, too
}

// FileListParams are fs.list's params.
type FileListParams struct {
	FileParams
	Recursive bool `json:"recursive,omitempty"` // folders below, too; symlinks are never followed
	Depth     int  `json:"depth,omitempty"`     // levels of a recursive list; default: all
	Limit     int  `json:"limit,omitempty"`     // entries; default 10000, at most 100000
	// Offset leaves out so many entries, so that pages of a long list fit together. Without it a folder with more names
	// than the limit may show any of them.
	Offset     *int `json:"offset,omitempty"`
	Attributes bool `json:"attributes,omitempty"` // tell extended attributes, too
}

// FileList is fs.list's result: each folder before what it holds, names in order.
type FileList struct {
	Entries   []File `json:"entries"`
	Truncated bool   `json:"truncated"` // there is more, or a folder was too deep
}

// FileMkdirParams are fs.mkdir's params.
type FileMkdirParams struct {
	FileParams
	Parents bool   `json:"parents,omitempty"` // make missing folders above it; one that exists is no error
	Mode    string `json:"mode,omitempty"`    // octal; default 0755
}

// FileMade is fs.mkdir's result.
type FileMade struct {
	Created bool `json:"created"` // false: it existed
}

// FileRemoveParams are fs.remove's params.
type FileRemoveParams struct {
	FileParams
	Recursive bool `json:"recursive,omitempty"`  // with all that is in it; symlinks are removed, never followed
	MissingOK bool `json:"missing_ok,omitempty"` // one that does not exist is no error
}

// FileRemoved is fs.remove's result.
type FileRemoved struct {
	Removed int64 `json:"removed"` // files and folders
}

// FileMoveParams are fs.move's params.
type FileMoveParams struct {
	FileParams
	To string `json:"to"` // the new path itself, also where that is a folder
	// NoReplace fails if To exists. Otherwise a file takes the place of a file, a
	// folder that of an empty one.
	NoReplace bool `json:"no_replace,omitempty"`
}

// FilePackParams are fs.pack's params.
type FilePackParams struct {
	FileParams
	// As is the name of the topmost entry; without it all names are relative to the
	// folder.
	As     string `json:"as,omitempty"`
	Follow bool   `json:"follow,omitempty"` // pack what a symlink leads to
	FDs    int    `json:"fds,omitempty"`
	FD     *int   `json:"fd"` // index of the pipe that takes the archive
}

// FileUnpackParams are fs.unpack's params; Path is a folder that exists.
type FileUnpackParams struct {
	FileParams
	KeepOwner bool `json:"keep_owner,omitempty"` // uid and gid as in the archive, where the sandbox has them; default: the user
	Root      bool `json:"root,omitempty"`       // the archive's topmost entry is the folder's mode and time
	Folders   bool `json:"folders,omitempty"`    // folders that are there already get the archive's mode and time, too
	FDs       int  `json:"fds,omitempty"`
	FD        *int `json:"fd"` // index of the pipe that holds the archive
}

// FileArchive is the result of fs.pack and fs.unpack.
type FileArchive struct {
	Entries int64 `json:"entries"` // files and folders of the archive
	Bytes   int64 `json:"bytes"`   // of regular files
	Skipped int64 `json:"skipped"` // devices, fifos and sockets, which do not travel
}

// Caps of one fs.read and fs.write without an fd, in bytes, and of one fs.list in
// entries.
const (
	MaxWriteBytes    = 3 << 20
	DefaultListLimit = 10_000
	MaxListLimit     = 100_000
	MaxListOffset    = 10_000_000
)

// Validate refuses impossible params. It covers all methods that embed it and have
// no more to check.
func (p *FileParams) Validate() error {
	if err := checkPath("path", p.Path); err != nil {
		return err
	}
	return checkUser("user", p.User)
}

func checkPath(field, path string) error {
	switch {
	case path == "":
		return invalid(field, "missing").WithHint("give a path in the sandbox; a relative one starts at its workdir")
	case strings.ContainsRune(path, 0):
		return invalid(field, "holds a NUL byte")
	case len(path) > 4095:
		return invalid(field, "has %d bytes", len(path)).WithHint("Linux allows 4095 (PATH_MAX)")
	}
	return nil
}

// FileMode parses an octal mode, as chmod(1) takes it; "" is nil.
func FileMode(field, mode string) (*int64, error) {
	if mode == "" {
		return nil, nil
	}
	bits, err := strconv.ParseUint(mode, 8, 16)
	if err != nil || bits > 0o7777 {
		return nil, invalid(field, "%q is no mode", mode).WithHint(`give permissions in octal, such as "0644"`)
	}
	n := int64(bits)
	return &n, nil
}

// Validate refuses impossible params.
func (p *FileReadParams) Validate() error {
	switch {
	case p.Limit < 0 || p.Limit > MaxReadBytes && p.FD == nil:
		return invalid("limit", "%d is not possible", p.Limit).
			WithHint("use 1 to %d bytes, or pass a pipe (fd)", MaxReadBytes)
	case p.FD != nil && p.Encoding != "":
		return invalid("encoding", "given together with fd").WithHint("bytes go through the pipe as they are")
	}
	if err := checkEncoding(p.Encoding); err != nil {
		return err
	}
	return p.FileParams.Validate()
}

// Validate refuses impossible params.
func (p *FileWriteParams) Validate() error {
	in := p.Append || p.Offset != nil
	switch {
	case p.FD != nil && p.Data != "":
		return invalid("data", "given together with fd").WithHint("give the data or the pipe")
	case p.Append && p.Offset != nil:
		return invalid("offset", "given together with append").WithHint("give one of them")
	case p.Offset != nil && *p.Offset < 0:
		return invalid("offset", "%d is negative", *p.Offset)
	case p.Exclusive && p.Create != nil && !*p.Create:
		return invalid("exclusive", "given together with create false")
	case in && p.Atomic != nil && *p.Atomic:
		return invalid("atomic", "only a whole file can be replaced in a single step").
			WithHint("leave it out with append and offset")
	case p.IfVersion != "" && (in || p.Exclusive):
		return invalid("if_version", "given together with append, offset or exclusive").
			WithHint("it is for a whole file that takes the place of another")
	case p.SizeBytes != nil && (p.FD == nil || *p.SizeBytes < 0):
		return invalid("size_bytes", "is for an fd, and not negative")
	}
	if err := checkEncoding(p.Encoding); err != nil {
		return err
	}
	if _, err := FileMode("mode", p.Mode); err != nil {
		return err
	}
	if err := checkAttributes(p.Attributes); err != nil {
		return err
	}
	return p.FileParams.Validate()
}

// MaxAttributesBytes bounds the names and values of a file's attributes, in bytes: what ext4 keeps of one file.
const MaxAttributesBytes = 4096

// checkAttributes refuses names that are hutch's and the overlay's own, and what no file system keeps.
func checkAttributes(attributes map[string]string) error {
	size := 0
	for name, value := range attributes {
		size += len(name) + len(value)
		if name == "" || len(name) > 250 || strings.ContainsRune(name, 0) || !utf8.ValidString(name+value) {
			return invalid("attributes", "%.64q is no name of an attribute, or its value is no text", name)
		}
		if AttributeReserved(name) {
			return invalid("attributes", "%.64q is not for programs", name).
				WithHint("use names that begin with neither hutch. nor overlay.")
		}
	}
	if size > MaxAttributesBytes {
		return invalid("attributes", "%d bytes of names and values, at most %d are kept", size, MaxAttributesBytes)
	}
	return nil
}

// AttributeReserved reports whether a name below "user." is one by which hutch or the kernel's overlay keep their own.
func AttributeReserved(name string) bool {
	return strings.HasPrefix(name, "hutch.") || strings.HasPrefix(name, "overlay.")
}

// Validate refuses impossible params.
func (p *FileListParams) Validate() error {
	switch {
	case p.Limit < 0 || p.Limit > MaxListLimit:
		return invalid("limit", "%d is not possible", p.Limit).WithHint("use 1 to %d, 0 for the default", MaxListLimit)
	case p.Offset != nil && (*p.Offset < 0 || *p.Offset > MaxListOffset):
		return invalid("offset", "%d is not possible", *p.Offset).WithHint("use 0 to %d", MaxListOffset)
	case p.Depth < 0:
		return invalid("depth", "%d is negative", p.Depth)
	case p.Depth > 0 && !p.Recursive:
		return invalid("depth", "given without recursive")
	}
	return p.FileParams.Validate()
}

// Validate refuses impossible params.
func (p *FileMkdirParams) Validate() error {
	if _, err := FileMode("mode", p.Mode); err != nil {
		return err
	}
	return p.FileParams.Validate()
}

// Validate refuses impossible params.
func (p *FileRemoveParams) Validate() error {
	if p.Recursive && strings.Trim(p.Path, "/.") == "" {
		return invalid("path", "%q is not removed with all that is in it", p.Path).
			WithHint("remove what is in it by name, or the sandbox")
	}
	return p.FileParams.Validate()
}

// Validate refuses impossible params.
func (p *FileMoveParams) Validate() error {
	if err := checkPath("to", p.To); err != nil {
		return err
	}
	return p.FileParams.Validate()
}

// Validate refuses impossible params.
func (p *FilePackParams) Validate() error {
	switch {
	case p.FD == nil:
		return invalid("fd", "missing").WithHint("send the write end of a pipe with the request")
	case strings.ContainsAny(p.As, "/\x00") || p.As == "." || p.As == ".." || len(p.As) > 255:
		return invalid("as", "%.64q is no name", p.As)
	}
	return p.FileParams.Validate()
}

// Validate refuses impossible params.
func (p *FileUnpackParams) Validate() error {
	if p.FD == nil {
		return invalid("fd", "missing").WithHint("send the read end of a pipe with the request")
	}
	return p.FileParams.Validate()
}
