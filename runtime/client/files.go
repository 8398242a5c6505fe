package client

import (
	"context"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ReadFile reads a piece of a file of a sandbox. With a pipe, its write end, the
// bytes go there instead and p.Limit is by default the whole file; the caller
// closes its copy once the call is sent, or ends to read only what arrived before
// ReadFile returned.
func (c *Client) ReadFile(ctx context.Context, p api.FileReadParams, pipe *os.File) (api.FileChunk, error) {
	p.FDs, p.FD = one(pipe)
	return get[api.FileChunk](ctx, c, api.MethodFSRead, p, withPipe(pipe))
}

// WriteFile writes a file of a sandbox: p.Data, or what comes out of a pipe, its
// read end, until its end of file. The caller closes the write end when all is
// written; with p.SizeBytes set, a writer that dies before leaves the old file.
func (c *Client) WriteFile(ctx context.Context, p api.FileWriteParams, pipe *os.File) (api.FileWritten, error) {
	p.FDs, p.FD = one(pipe)
	return get[api.FileWritten](ctx, c, api.MethodFSWrite, p, withPipe(pipe))
}

// ListFiles lists a folder of a sandbox.
func (c *Client) ListFiles(ctx context.Context, p api.FileListParams) (api.FileList, error) {
	return get[api.FileList](ctx, c, api.MethodFSList, p)
}

// StatFile describes one file of a sandbox.
func (c *Client) StatFile(ctx context.Context, p api.FileStatParams) (api.File, error) {
	return get[api.File](ctx, c, api.MethodFSStat, p)
}

// MakeFolder makes a folder in a sandbox.
func (c *Client) MakeFolder(ctx context.Context, p api.FileMkdirParams) (api.FileMade, error) {
	return get[api.FileMade](ctx, c, api.MethodFSMkdir, p)
}

// RemoveFile removes a file or a folder of a sandbox.
func (c *Client) RemoveFile(ctx context.Context, p api.FileRemoveParams) (api.FileRemoved, error) {
	return get[api.FileRemoved](ctx, c, api.MethodFSRemove, p)
}

// MoveFile renames a file or a folder of a sandbox.
func (c *Client) MoveFile(ctx context.Context, p api.FileMoveParams) error {
	return c.Call(ctx, api.MethodFSMove, p, nil)
}

// PackFiles writes a file or a folder of a sandbox into a pipe, its write end, as a
// tar archive. What comes out is as hostile as the sandbox: whoever unpacks it on
// the host must refuse names and links that lead out.
func (c *Client) PackFiles(ctx context.Context, p api.FilePackParams, pipe *os.File) (api.FileArchive, error) {
	p.FDs, p.FD = one(pipe)
	return get[api.FileArchive](ctx, c, api.MethodFSPack, p, withPipe(pipe))
}

// UnpackFiles unpacks a tar archive from a pipe, its read end, into a folder of a
// sandbox.
func (c *Client) UnpackFiles(ctx context.Context, p api.FileUnpackParams, pipe *os.File) (api.FileArchive, error) {
	p.FDs, p.FD = one(pipe)
	return get[api.FileArchive](ctx, c, api.MethodFSUnpack, p, withPipe(pipe))
}

// SyncFiles tells which files of the caller's folder one in the sandbox lacks; UnpackFiles brings them.
func (c *Client) SyncFiles(ctx context.Context, p api.FileSyncParams) (api.FileSynced, error) {
	return get[api.FileSynced](ctx, c, api.MethodFSSync, p)
}

// one is the number of fds and the index of the one pipe, which may be nil.
func one(pipe *os.File) (fds int, fd *int) {
	if pipe == nil {
		return 0, nil
	}
	return 1, new(int)
}

func withPipe(pipe *os.File) CallOption {
	if pipe == nil {
		return WithFDs()
	}
	return WithFDs(pipe)
}
