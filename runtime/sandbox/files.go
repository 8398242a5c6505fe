package sandbox

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// The fs.* methods. hutchd touches no file of a sandbox: a worker inside does, see
// workers.go, and what it answers is as hostile as the sandbox.

// ask sends a request to the worker of the user that p names, and turns what fails
// inside into errors that say what to do.
func (m *Manager) ask(ctx context.Context, op string, p *api.FileParams, req filesapi.Request, data []byte, limit int,
	fds ...*os.File) (*filesapi.Reply, []byte, error) {
	return m.askBy(ctx, op, p, req, data, func(_ *Sandbox, w *worker, req filesapi.Request,
		leave func()) (*filesapi.Reply, []byte, error) {
		leave() // a pause ends the call
		return w.client.Call(ctx, req, data, limit, fds...)
	})
}

// asking is what is done with a worker for a call. The sandbox is not paused until leave is called.
type asking func(s *Sandbox, w *worker, req filesapi.Request, leave func()) (*filesapi.Reply, []byte, error)

// askBy is ask for calls that are more than one request.
func (m *Manager) askBy(ctx context.Context, op string, p *api.FileParams, req filesapi.Request, data []byte,
	use asking) (*filesapi.Reply, []byte, error) {
	s, err := m.find(p.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	leave, err := m.enter(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	if err := m.mayWrite(s, req.Op); err != nil {
		return nil, nil, err
	}
	rec := s.Record()
	req.Path = absolute(rec.Workdir, p.Path)
	if req.Op == filesapi.OpMove {
		req.To = absolute(rec.Workdir, req.To)
	}
	var reply *filesapi.Reply
	var out []byte
	defer func() { m.auditFile(ctx, s, op, p.User, &req, data, out, reply, err) }()
	w, err := m.worker(ctx, s, orElse(p.User, rec.User))
	if err != nil {
		return nil, nil, err
	}
	defer m.release(s, w)
	reply, out, err = use(s, w, req, leave)
	if err != nil && s.disk != nil && s.disk.isOver() && writing(req.Op) {
		return nil, nil, s.diskFull()
	}
	if err != nil && s.state() != api.Running {
		return nil, nil, s.mustRun()
	}
	if err != nil {
		return nil, nil, fileError(op, err)
	}
	return reply, out, nil
}

// absolute makes a path start at the root; the kernel does the rest of it, inside.
func absolute(workdir, p string) string {
	if path.IsAbs(p) {
		return p
	}
	return strings.TrimSuffix(orElse(workdir, "/"), "/") + "/" + p
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

// ReadFile reads a piece of a file.
func (m *Manager) ReadFile(ctx context.Context, p api.FileReadParams, fds Taker) (api.FileChunk, error) {
	req := filesapi.Request{Op: filesapi.OpRead, Offset: p.Offset, Limit: p.Limit, Special: p.Special}
	pipe, err := takePipe(p.FD, fds, unix.O_WRONLY)
	if err != nil {
		return api.FileChunk{}, err
	}
	if pipe != nil {
		defer pipe.Close()
		r, _, err := m.ask(ctx, api.MethodFSRead, &p.FileParams, req, nil, 0, pipe)
		if err != nil {
			return api.FileChunk{}, err
		}
		return api.FileChunk{Offset: r.Offset, Next: r.Offset + r.Bytes, Size: r.Size, Encoding: api.Text,
			EOF: r.EOF}, nil
	}
	if req.Limit == 0 {
		req.Limit = api.DefaultReadBytes
	}
	r, data, err := m.ask(ctx, api.MethodFSRead, &p.FileParams, req, nil, int(req.Limit))
	if err != nil {
		return api.FileChunk{}, err
	}
	text, enc, cut := encode(data, p.Encoding, r.EOF)
	return api.FileChunk{
		Offset: r.Offset, Next: r.Offset + int64(len(data)-cut), Size: r.Size, Data: text, Encoding: enc, EOF: r.EOF,
	}, nil
}

// WriteFile writes a file.
func (m *Manager) WriteFile(ctx context.Context, p api.FileWriteParams, fds Taker) (api.FileWritten, error) {
	req := filesapi.Request{
		Op: filesapi.OpWrite, Append: p.Append, At: p.Offset != nil, NoCreate: p.Create != nil && !*p.Create,
		Exclusive: p.Exclusive, Parents: p.Parents, Size: p.SizeBytes,
		InPlace: p.Atomic != nil && !*p.Atomic, Atomic: p.Atomic != nil && *p.Atomic,
	}
	if p.Offset != nil {
		req.Offset = *p.Offset
	}
	var err error
	if req.Mode, err = api.FileMode("mode", p.Mode); err != nil {
		return api.FileWritten{}, err
	}
	data, err := decode("data", p.Data, p.Encoding)
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
	r, _, err := m.askPiped(ctx, api.MethodFSWrite, &p.FileParams, req, data, pipe)
	if err != nil {
		return api.FileWritten{}, err
	}
	return api.FileWritten{Written: r.Bytes, Size: r.Size, Created: r.Created, Atomic: r.Atomic}, nil
}

// askPiped is ask with a pipe, which may be nil and is closed.
func (m *Manager) askPiped(ctx context.Context, op string, p *api.FileParams, req filesapi.Request, data []byte,
	pipe *os.File) (*filesapi.Reply, []byte, error) {
	if pipe == nil {
		return m.ask(ctx, op, p, req, data, 0)
	}
	defer pipe.Close()
	return m.ask(ctx, op, p, req, data, 0, pipe)
}

// takePipe takes the fd that a file call reads from or writes to: a pipe, which
// has no name that somebody inside could find or open anew with other rights.
func takePipe(index *int, fds Taker, mode int) (*os.File, error) {
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

// ListFiles lists a folder.
func (m *Manager) ListFiles(ctx context.Context, p api.FileListParams) (api.FileList, error) {
	limit, depth := p.Limit, 1
	if limit == 0 {
		limit = api.DefaultListLimit
	}
	if p.Recursive {
		if depth = p.Depth; depth == 0 {
			depth = unix.PathMax
		}
	}
	req := filesapi.Request{Op: filesapi.OpList, Limit: int64(limit), Depth: depth}
	if p.Offset != nil {
		req.Offset, req.Ordered = int64(*p.Offset), true
	}
	r, data, err := m.ask(ctx, api.MethodFSList, &p.FileParams, req, nil, filesapi.MaxList)
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
		f.Path = valid(entries[i].Path)
		list.Entries = append(list.Entries, f)
	}
	return list, nil
}

// StatFile describes one file.
func (m *Manager) StatFile(ctx context.Context, p api.FileStatParams) (api.File, error) {
	req := filesapi.Request{Op: filesapi.OpStat, Follow: p.Follow}
	r, _, err := m.ask(ctx, api.MethodFSStat, &p.FileParams, req, nil, 0)
	if err != nil {
		return api.File{}, err
	}
	if r.Entry == nil {
		return api.File{}, api.Errorf(api.Unavailable, "the sandbox's files worker answered nothing").
			WithOp(api.MethodFSStat).WithHint("call again: another worker is started")
	}
	f := describeFile(r.Entry)
	f.Path = p.Path
	return f, nil
}

// fileTypes by the file type bits of stat(2).
var fileTypes = map[uint32]api.FileType{
	unix.S_IFREG: api.TypeFile, unix.S_IFDIR: api.TypeFolder, unix.S_IFLNK: api.TypeSymlink, unix.S_IFIFO: api.TypeFifo,
	unix.S_IFSOCK: api.TypeSocket, unix.S_IFCHR: api.TypeChar, unix.S_IFBLK: api.TypeBlock,
}

func describeFile(e *filesapi.Entry) api.File {
	f := api.File{
		Name: valid([]byte(path.Base(string(e.Path)))), Type: fileTypes[e.Mode&unix.S_IFMT], Size: e.Size,
		Mode: fmt.Sprintf("%04o", e.Mode&0o7777), MTime: e.MTime, UID: e.UID, GID: e.GID, Target: valid(e.Target),
	}
	if !utf8.Valid(e.Path) {
		f.PathBase64 = base64.StdEncoding.EncodeToString(e.Path)
	}
	if e.Errno != 0 {
		f.Error = unix.Errno(e.Errno).Error()
	}
	return f
}

// valid makes text of a name, which may be any bytes.
func valid(name []byte) string { return strings.ToValidUTF8(string(name), "\uFFFD") }

// MakeFolder makes a folder.
func (m *Manager) MakeFolder(ctx context.Context, p api.FileMkdirParams) (api.FileMade, error) {
	req := filesapi.Request{Op: filesapi.OpMkdir, Parents: p.Parents}
	var err error
	if req.Mode, err = api.FileMode("mode", p.Mode); err != nil {
		return api.FileMade{}, err
	}
	r, _, err := m.ask(ctx, api.MethodFSMkdir, &p.FileParams, req, nil, 0)
	if err != nil {
		return api.FileMade{}, err
	}
	return api.FileMade{Created: r.Created}, nil
}

// RemoveFile removes a file or folder.
func (m *Manager) RemoveFile(ctx context.Context, p api.FileRemoveParams) (api.FileRemoved, error) {
	req := filesapi.Request{Op: filesapi.OpRemove, Recursive: p.Recursive}
	r, _, err := m.ask(ctx, api.MethodFSRemove, &p.FileParams, req, nil, 0)
	var fe *filesapi.Error
	switch {
	case p.MissingOK && errors.As(err, &fe) && fe.Errno == unix.ENOENT:
		return api.FileRemoved{}, nil
	case err != nil:
		return api.FileRemoved{}, err
	}
	return api.FileRemoved{Removed: r.Count}, nil
}

// MoveFile renames a file or folder.
func (m *Manager) MoveFile(ctx context.Context, p api.FileMoveParams) error {
	req := filesapi.Request{Op: filesapi.OpMove, To: p.To, Exclusive: p.NoReplace}
	_, _, err := m.ask(ctx, api.MethodFSMove, &p.FileParams, req, nil, 0)
	return err
}

// PackFiles writes a file or folder into a pipe, as a tar archive.
func (m *Manager) PackFiles(ctx context.Context, p api.FilePackParams, fds Taker) (api.FileArchive, error) {
	pipe, err := takePipe(p.FD, fds, unix.O_WRONLY)
	if err != nil {
		return api.FileArchive{}, err
	}
	req := filesapi.Request{Op: filesapi.OpPack, To: p.As, Follow: p.Follow}
	r, _, err := m.askPiped(ctx, api.MethodFSPack, &p.FileParams, req, nil, pipe)
	return archived(r), err
}

// UnpackFiles unpacks a tar archive from a pipe.
func (m *Manager) UnpackFiles(ctx context.Context, p api.FileUnpackParams, fds Taker) (api.FileArchive, error) {
	pipe, err := takePipe(p.FD, fds, unix.O_RDONLY)
	if err != nil {
		return api.FileArchive{}, err
	}
	req := filesapi.Request{Op: filesapi.OpUnpack, KeepOwner: p.KeepOwner, Recursive: p.Root, Folders: p.Folders}
	r, _, err := m.askPiped(ctx, api.MethodFSUnpack, &p.FileParams, req, nil, pipe)
	return archived(r), err
}

func archived(r *filesapi.Reply) api.FileArchive {
	if r == nil {
		return api.FileArchive{}
	}
	return api.FileArchive{Entries: r.Count, Bytes: r.Bytes, Skipped: r.Skipped}
}
