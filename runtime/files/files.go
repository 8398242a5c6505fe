package files

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// ask sends a request to the worker of the user that p names, and turns what fails
// inside into errors that say what to do.
func (f *Files) ask(ctx context.Context, op string, p *api.FileParams, req filesapi.Request, data []byte, limit int,
	fds ...*os.File) (*filesapi.Reply, []byte, error) {
	return f.askBy(ctx, op, p, req, data, func(_ Sandbox, w *worker, req filesapi.Request,
		leave func()) (*filesapi.Reply, []byte, error) {
		leave() // a pause ends the call
		return w.client.Call(ctx, req, data, limit, fds...)
	})
}

// asking is what is done with a worker for a call. The sandbox is not paused until leave is called.
type asking func(s Sandbox, w *worker, req filesapi.Request, leave func()) (*filesapi.Reply, []byte, error)

// askBy is ask for calls that are more than one request.
func (f *Files) askBy(ctx context.Context, op string, p *api.FileParams, req filesapi.Request, data []byte,
	use asking) (*filesapi.Reply, []byte, error) {
	s, leave, err := f.sandboxes.Enter(ctx, p.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	if err := s.Admit(writes(req.Op)); err != nil {
		return nil, nil, err
	}
	rec := s.Record()
	req.Path = absolute(rec.Workdir, p.Path)
	if req.Op == filesapi.OpMove {
		req.To = absolute(rec.Workdir, req.To)
	}
	var reply *filesapi.Reply
	var out []byte
	defer func() { f.note(ctx, s, op, p.User, &req, data, out, reply, err) }()
	w, err := f.worker(ctx, s, cmp.Or(p.User, rec.User))
	if err != nil {
		return nil, nil, err
	}
	defer f.release(s, w)
	reply, out, err = use(s, w, req, leave)
	if err != nil {
		if cause := s.Explain(writes(req.Op)); cause != nil {
			return nil, nil, cause
		}
		return nil, nil, fileError(op, err)
	}
	return reply, out, nil
}

// writes says that a call makes files, and so may go over a limit of disk space.
func writes(op string) bool {
	switch op {
	case filesapi.OpWrite, filesapi.OpMkdir, filesapi.OpUnpack, filesapi.OpReplace, filesapi.OpPatch:
		return true
	}
	return false
}

// absolute makes a path start at the root; the kernel does the rest of it, inside.
func absolute(workdir, p string) string {
	if path.IsAbs(p) {
		return p
	}
	return strings.TrimSuffix(cmp.Or(workdir, "/"), "/") + "/" + p
}

// fileCodes are the codes of what system calls on files fail with; others are
// failed_precondition.
var fileCodes = map[unix.Errno]api.Code{
	unix.ENOENT: api.NotFound,
	unix.EEXIST: api.AlreadyExists,
	unix.EACCES: api.PermissionDenied, unix.EPERM: api.PermissionDenied, unix.EROFS: api.PermissionDenied,
	unix.EINVAL: api.InvalidArgument, unix.ENAMETOOLONG: api.InvalidArgument, unix.ESPIPE: api.InvalidArgument,
	unix.ENOSPC: api.ResourceExhausted, unix.EDQUOT: api.ResourceExhausted, unix.EFBIG: api.ResourceExhausted,
	unix.EMFILE: api.ResourceExhausted, unix.ENFILE: api.ResourceExhausted, unix.ENOMEM: api.ResourceExhausted,
	unix.ECANCELED: api.Canceled,
}

// fileHints are what to do about them.
var fileHints = map[unix.Errno]string{
	unix.ENOENT:       "fs.list shows what is there; with parents true, fs.write and fs.mkdir make missing folders",
	unix.EEXIST:       "remove it first, or leave out exclusive or no_replace",
	unix.EACCES:       "choose a user who may (user: \"0\" is the sandbox's root)",
	unix.EPERM:        "choose a user who may (user: \"0\" is the sandbox's root)",
	unix.EROFS:        "this part of the sandbox is read-only; write to another folder",
	unix.EISDIR:       "fs.list lists a folder, fs.remove with recursive true removes it, hutch cp copies it",
	unix.ENOTDIR:      "fs.stat describes what is no folder",
	unix.ENOTEMPTY:    "recursive true removes a folder with all that is in it",
	unix.EOPNOTSUPP:   "fs.read reads from a fifo or device only with special true; fs.write writes regular files",
	unix.ENOSPC:       "remove files in the sandbox, or free space on the host",
	unix.ENAMETOOLONG: "names have at most 255 bytes, paths 4095",
	unix.ELOOP:        "the symbolic links of this path go in circles",
	unix.EBUSY:        "it is in use, as a mount point for example",
	unix.EPIPE:        "the other end of the pipe was closed",
	unix.EXDEV:        "the archive leads through a symbolic link out of the folder",
	unix.EINVAL:       "see `hutch rpc rpc.discover` for what the method takes",
	unix.ESTALE:       "something in the sandbox changes the path; call again",
}

// fileError makes an error of a worker's one that users can act on.
func fileError(op string, err error) error {
	var fe *filesapi.Error
	if !errors.As(err, &fe) {
		return err
	}
	code, ok := fileCodes[fe.Errno]
	if !ok {
		code = api.FailedPrecondition
	}
	hint := fileHints[fe.Errno]
	if hint == "" {
		hint = "look at the file with fs.stat"
	}
	return api.Errorf(code, "%w", fe).WithOp(op).WithHint("%s", hint)
}

// Read reads a piece of a file.
func (f *Files) Read(ctx context.Context, p api.FileReadParams, fds packet.Taker) (api.FileChunk, error) {
	req := filesapi.Request{Op: filesapi.OpRead, Offset: p.Offset, Limit: p.Limit, Special: p.Special}
	pipe, err := takePipe(p.FD, fds, unix.O_WRONLY)
	if err != nil {
		return api.FileChunk{}, err
	}
	if pipe != nil {
		defer pipe.Close()
		r, _, err := f.ask(ctx, api.MethodFSRead, &p.FileParams, req, nil, 0, pipe)
		if err != nil {
			return api.FileChunk{}, err
		}
		return api.FileChunk{Offset: r.Offset, Next: r.Offset + r.Bytes, Size: r.Size, Encoding: api.Text,
			EOF: r.EOF}, nil
	}
	if req.Limit == 0 {
		req.Limit = api.DefaultReadBytes
	}
	r, data, err := f.ask(ctx, api.MethodFSRead, &p.FileParams, req, nil, int(req.Limit))
	if err != nil {
		return api.FileChunk{}, err
	}
	text, enc, cut := excerpt.Encode(data, p.Encoding, r.EOF)
	return api.FileChunk{
		Offset: r.Offset, Next: r.Offset + int64(len(data)-cut), Size: r.Size, Data: text, Encoding: enc, EOF: r.EOF,
	}, nil
}

// Write writes a file.
func (f *Files) Write(ctx context.Context, p api.FileWriteParams, fds packet.Taker) (api.FileWritten, error) {
	req := filesapi.Request{
		Op: filesapi.OpWrite, Append: p.Append, At: p.Offset != nil, NoCreate: p.Create != nil && !*p.Create,
		Exclusive: p.Exclusive, Parents: p.Parents, Size: p.SizeBytes,
		InPlace: p.Atomic != nil && !*p.Atomic, Atomic: p.Atomic != nil && *p.Atomic, Version: p.IfVersion,
		Attributes: p.Attributes,
	}
	if p.Offset != nil {
		req.Offset = *p.Offset
	}
	var err error
	if req.Mode, err = api.FileMode("mode", p.Mode); err != nil {
		return api.FileWritten{}, err
	}
	data, err := excerpt.Decode("data", p.Data, p.Encoding)
	if err == nil && len(data) > api.MaxWriteBytes {
		err = api.Errorf(api.InvalidArgument, "data: %d bytes, at most %d fit into one call", len(data),
			api.MaxWriteBytes).
			WithField("data").WithHint("write in pieces (append), or pass a pipe (fd)")
	}
	if err != nil {
		return api.FileWritten{}, err
	}
	pipe, err := takePipe(p.FD, fds, unix.O_RDONLY)
	if err != nil {
		return api.FileWritten{}, err
	}
	r, _, err := f.askPiped(ctx, api.MethodFSWrite, &p.FileParams, req, data, pipe)
	if p.IfVersion != "" && errors.Is(err, unix.ESTALE) {
		err = api.Errorf(api.FailedPrecondition, "%w", err).WithOp(api.MethodFSWrite).WithField("if_version").
			WithHint("read it again, and write with the version that it has then")
	}
	if err != nil {
		return api.FileWritten{}, err
	}
	return api.FileWritten{Written: r.Bytes, Size: r.Size, Created: r.Created, Atomic: r.Atomic}, nil
}

// askPiped is ask with a pipe, which may be nil and is closed.
func (f *Files) askPiped(ctx context.Context, op string, p *api.FileParams, req filesapi.Request, data []byte,
	pipe *os.File) (*filesapi.Reply, []byte, error) {
	if pipe == nil {
		return f.ask(ctx, op, p, req, data, 0)
	}
	defer pipe.Close()
	return f.ask(ctx, op, p, req, data, 0, pipe)
}

// takePipe takes the fd that a file call reads from or writes to: a pipe, which
// has no name that somebody inside could find or open anew with other rights.
func takePipe(index *int, fds packet.Taker, mode int) (*os.File, error) {
	if index == nil {
		return nil, nil
	}
	f, err := fds.Take(*index)
	if err != nil {
		return nil, err
	}
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	var fs unix.Statfs_t
	var flags int
	err = rc.Control(func(fd uintptr) {
		_ = unix.Fstatfs(int(fd), &fs)
		flags, _ = unix.FcntlInt(fd, unix.F_GETFL, 0)
	})
	if got := flags & unix.O_ACCMODE; err == nil && (fs.Type != unix.PIPEFS_MAGIC || flags&unix.O_PATH != 0 ||
		got != mode && got != unix.O_RDWR) {
		err = api.Errorf(api.InvalidArgument, "fd: not the right end of a pipe").WithField("fd").
			WithHint("only pipes may cross into a sandbox; make one and copy, as hutch cp does")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// List lists a folder.
func (f *Files) List(ctx context.Context, p api.FileListParams) (api.FileList, error) {
	limit, depth := p.Limit, 1
	if limit == 0 {
		limit = api.DefaultListLimit
	}
	if p.Recursive {
		if depth = p.Depth; depth == 0 {
			depth = unix.PathMax
		}
	}
	req := filesapi.Request{Op: filesapi.OpList, Limit: int64(limit), Depth: depth, Describe: p.Attributes}
	if p.Offset != nil {
		req.Offset, req.Ordered = int64(*p.Offset), true
	}
	r, data, err := f.ask(ctx, api.MethodFSList, &p.FileParams, req, nil, filesapi.MaxList)
	if err != nil {
		return api.FileList{}, err
	}
	entries, err := filesapi.ParseEntries(data, limit)
	if err != nil {
		return api.FileList{}, api.Errorf(api.Unavailable, "the sandbox's files worker answered nonsense: %w", err).
			WithOp(api.MethodFSList).WithHint("call again: another worker is started")
	}
	list := api.FileList{Entries: make([]api.File, 0, len(entries)), Truncated: r.Truncated}
	for i := range entries {
		f := describeFile(&entries[i])
		f.Path = excerpt.Valid(entries[i].Path)
		list.Entries = append(list.Entries, f)
	}
	return list, nil
}

// Stat describes one file.
func (f *Files) Stat(ctx context.Context, p api.FileStatParams) (api.File, error) {
	req := filesapi.Request{Op: filesapi.OpStat, Follow: p.Follow, Describe: p.Attributes}
	r, _, err := f.ask(ctx, api.MethodFSStat, &p.FileParams, req, nil, 0)
	if err != nil {
		return api.File{}, err
	}
	if r.Entry == nil {
		return api.File{}, api.Errorf(api.Unavailable, "the sandbox's files worker answered nothing").
			WithOp(api.MethodFSStat).WithHint("call again: another worker is started")
	}
	file := describeFile(r.Entry)
	file.Path = p.Path
	return file, nil
}

// fileTypes by the file type bits of stat(2).
var fileTypes = map[uint32]api.FileType{
	unix.S_IFREG: api.TypeFile, unix.S_IFDIR: api.TypeFolder, unix.S_IFLNK: api.TypeSymlink, unix.S_IFIFO: api.TypeFifo,
	unix.S_IFSOCK: api.TypeSocket, unix.S_IFCHR: api.TypeChar, unix.S_IFBLK: api.TypeBlock,
}

func describeFile(e *filesapi.Entry) api.File {
	f := api.File{
		Name: excerpt.Valid([]byte(path.Base(string(e.Path)))), Type: fileTypes[e.Mode&unix.S_IFMT], Size: e.Size,
		Mode: fmt.Sprintf("%04o", e.Mode&0o7777), MTime: e.MTime, UID: e.UID, GID: e.GID,
		Target: excerpt.Valid(e.Target), Version: e.Version,
	}
	if !utf8.Valid(e.Path) {
		f.PathBase64 = base64.StdEncoding.EncodeToString(e.Path)
	}
	if e.Errno != 0 {
		f.Error = unix.Errno(e.Errno).Error()
	}
	for name, value := range e.Attributes { // a worker's word, which the sandbox may have put into its mouth
		if f.Attributes == nil {
			f.Attributes = map[string]string{}
		}
		f.Attributes[excerpt.Valid([]byte(name))] = excerpt.Valid(value)
	}
	return f
}

// MakeFolder makes a folder.
func (f *Files) MakeFolder(ctx context.Context, p api.FileMkdirParams) (api.FileMade, error) {
	req := filesapi.Request{Op: filesapi.OpMkdir, Parents: p.Parents}
	var err error
	if req.Mode, err = api.FileMode("mode", p.Mode); err != nil {
		return api.FileMade{}, err
	}
	r, _, err := f.ask(ctx, api.MethodFSMkdir, &p.FileParams, req, nil, 0)
	if err != nil {
		return api.FileMade{}, err
	}
	return api.FileMade{Created: r.Created}, nil
}

// Remove removes a file or folder.
func (f *Files) Remove(ctx context.Context, p api.FileRemoveParams) (api.FileRemoved, error) {
	req := filesapi.Request{Op: filesapi.OpRemove, Recursive: p.Recursive}
	r, _, err := f.ask(ctx, api.MethodFSRemove, &p.FileParams, req, nil, 0)
	var fe *filesapi.Error
	switch {
	case p.MissingOK && errors.As(err, &fe) && fe.Errno == unix.ENOENT:
		return api.FileRemoved{}, nil
	case err != nil:
		return api.FileRemoved{}, err
	}
	return api.FileRemoved{Removed: r.Count}, nil
}

// Move renames a file or folder.
func (f *Files) Move(ctx context.Context, p api.FileMoveParams) error {
	req := filesapi.Request{Op: filesapi.OpMove, To: p.To, Exclusive: p.NoReplace}
	_, _, err := f.ask(ctx, api.MethodFSMove, &p.FileParams, req, nil, 0)
	return err
}

// Pack writes a file or folder into a pipe, as a tar archive.
func (f *Files) Pack(ctx context.Context, p api.FilePackParams, fds packet.Taker) (api.FileArchive, error) {
	pipe, err := takePipe(p.FD, fds, unix.O_WRONLY)
	if err != nil {
		return api.FileArchive{}, err
	}
	req := filesapi.Request{Op: filesapi.OpPack, To: p.As, Follow: p.Follow}
	r, _, err := f.askPiped(ctx, api.MethodFSPack, &p.FileParams, req, nil, pipe)
	return archived(r), err
}

// Unpack unpacks a tar archive from a pipe.
func (f *Files) Unpack(ctx context.Context, p api.FileUnpackParams, fds packet.Taker) (api.FileArchive, error) {
	pipe, err := takePipe(p.FD, fds, unix.O_RDONLY)
	if err != nil {
		return api.FileArchive{}, err
	}
	req := filesapi.Request{Op: filesapi.OpUnpack, KeepOwner: p.KeepOwner, Recursive: p.Root, Folders: p.Folders}
	r, _, err := f.askPiped(ctx, api.MethodFSUnpack, &p.FileParams, req, nil, pipe)
	return archived(r), err
}

func archived(r *filesapi.Reply) api.FileArchive {
	if r == nil {
		return api.FileArchive{}
	}
	return api.FileArchive{Entries: r.Count, Bytes: r.Bytes, Skipped: r.Skipped}
}
