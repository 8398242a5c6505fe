package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// mkdir makes a folder.
func (c *call) mkdir() (*filesapi.Reply, error) {
	mode := uint32(defaultFolder)
	if c.Mode != nil {
		mode = uint32(*c.Mode)
	}
	if !c.Parents {
		return &filesapi.Reply{Created: true}, unix.Mkdir(c.Path, mode)
	}
	created, err := makeFolders(c.Path, mode)
	return &filesapi.Reply{Created: created}, err
}

// remove removes a file or folder.
func (c *call) remove() (*filesapi.Reply, error) {
	dir, name, err := enter(c.Path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	if name == "." {
		return nil, &problem{unix.EINVAL, "name what is to be removed, without / or . at its end"}
	}
	r := &remover{ctx: c.ctx, recursive: c.Recursive}
	err = r.remove(dir, name, c.Path, 0)
	return &filesapi.Reply{Count: r.count}, err
}

// remover removes a tree that others may change meanwhile: it only ever goes down,
// from an open folder to one that is opened in it without following a link, so
// that it cannot be led astray. (internal/rmtree comes back by "..", which is
// right only for a tree that nobody else reaches.)
type remover struct {
	ctx       context.Context
	recursive bool
	count     int64
}

func (r *remover) remove(dir int, name, path string, depth int) error {
	if r.ctx.Err() != nil {
		return unix.ECANCELED
	}
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) {
		if err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); r.recursive && errors.Is(err, unix.ENOTEMPTY) {
			err = r.tree(dir, name, path, depth)
		}
	}
	var inner *fs.PathError
	switch {
	case errors.As(err, &inner):
		return err
	case err != nil:
		return at(path, err)
	}
	r.count++
	return nil
}

// removeTries is for a folder that others go on filling.
const removeTries = 16

func (r *remover) tree(dir int, name, path string, depth int) error {
	if depth == maxDepth {
		return at(path, unix.ENAMETOOLONG)
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	for range removeTries {
		if err := r.content(f, path, depth); err != nil {
			return err
		}
		if err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return bare(err)
		}
	}
	return err
}

// removeBatch is how many names of a folder are read at once.
const removeBatch = 1024

func (r *remover) content(f *os.File, path string, depth int) error {
	for {
		names, err := f.Readdirnames(removeBatch)
		for _, n := range names {
			err := r.remove(int(f.Fd()), n, path+"/"+n, depth+1)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bare(err)
		}
	}
}

// move renames a file or folder; where the kernel cannot, because it lies in
// another mount or comes from a lower layer of the image, it copies.
func (c *call) move() (*filesapi.Reply, error) {
	from, name, err := enter(c.Path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(from)
	to, newName, err := enter(c.To)
	if err != nil {
		return nil, at(c.To, err)
	}
	defer unix.Close(to)
	if name == "." || newName == "." {
		return nil, &problem{unix.EINVAL, "name what is to be moved and its new name, without / or . at their ends"}
	}
	flags := uint(0)
	if c.Exclusive {
		flags = unix.RENAME_NOREPLACE
	}
	err = unix.Renameat2(from, name, to, newName, flags)
	switch {
	case errors.Is(err, unix.EXDEV):
		err = c.moveCopy(from, name, to, newName, flags)
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EISDIR),
		errors.Is(err, unix.ENOTDIR):
		err = at(c.To, err)
	}
	return &filesapi.Reply{}, err
}

// moveCopy copies beside the new name, renames that, and removes the original.
func (c *call) moveCopy(from int, name string, to int, newName string, flags uint) error {
	if err := unix.Faccessat(from, ".", unix.W_OK, 0); err != nil {
		return err // before anything is copied
	}
	tmp := tempName()
	if err := unix.Mkdirat(to, tmp, 0o700); err != nil {
		return at(c.To, err)
	}
	clean := &remover{ctx: context.Background(), recursive: true}
	defer func() { _ = clean.remove(to, tmp, tmp, 0) }()
	dir, err := openat(to, tmp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return at(c.To, err)
	}
	defer unix.Close(dir)
	if err := c.copyTree(from, name, dir); err != nil {
		return err
	}
	if err := unix.Renameat2(dir, copied, to, newName, flags); err != nil {
		return at(c.To, err)
	}
	return (&remover{ctx: c.ctx, recursive: true}).remove(from, name, c.Path, 0)
}

// copied is what a copy is called until it gets its name.
const copied = "copy"

// copyTree copies a file or tree into dir by way of an archive.
func (c *call) copyTree(from int, name string, dir int) error {
	r, w := io.Pipe()
	type result struct {
		archive.Stats
		error
	}
	packed := make(chan result, 1)
	go func() {
		pack := archive.Pack
		if lone() {
			pack = archive.PackRecorded
		}
		stats, err := pack(c.ctx, w, from, name, copied)
		_ = w.CloseWithError(err)
		packed <- result{stats, err}
	}()
	_, err := archive.Unpack(c.ctx, r, dir, archive.Options{Owner: os.Geteuid() == 0})
	_ = r.CloseWithError(unix.ECANCELED)
	p := <-packed
	switch {
	case p.error != nil && !errors.Is(p.error, unix.ECANCELED):
		return p.error
	case err != nil:
		return err
	case p.Skipped > 0:
		return &problem{unix.EOPNOTSUPP, "holds a device, fifo or socket, which cannot be copied: " + p.Names[0]}
	}
	return nil
}

// pack writes a tar archive of a file or tree into the call's pipe.
func (c *call) pack() (*filesapi.Reply, error) {
	p, err := c.pipe()
	if err != nil {
		return nil, err
	}
	top, err := resolve(c.Path, c.Follow)
	if err != nil {
		return nil, err
	}
	defer top.close()
	pack := archive.Pack
	if lone() {
		pack = archive.PackRecorded
	}
	stats, err := pack(c.ctx, p, top.dir, top.name, c.To)
	return counted(stats), err
}

// unpack makes what an archive from the call's pipe holds.
func (c *call) unpack() (*filesapi.Reply, error) {
	p, err := c.pipe()
	if err != nil {
		return nil, err
	}
	dir, err := openat(unix.AT_FDCWD, c.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	stats, err := archive.Unpack(c.ctx, p, dir, archive.Options{Owner: c.KeepOwner, Root: c.Recursive,
		Folders: c.Folders})
	return counted(stats), err
}

func counted(s archive.Stats) *filesapi.Reply {
	return &filesapi.Reply{Count: s.Entries, Bytes: s.Bytes, Skipped: s.Skipped}
}

// lone reports whether there is one id only: owners of files are on record beside them then.
var lone = sync.OnceValue(func() bool {
	f, err := os.Open("/proc/self/uid_map")
	if err != nil {
		return false
	}
	defer f.Close()
	var inside, outside, count uint64
	n, err := fmt.Fscan(f, &inside, &outside, &count)
	return err == nil && n == 3 && count == 1 // user_namespaces(7)
})
