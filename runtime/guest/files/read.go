package files

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// openRegular opens a file to read. Anything but a regular file is opened only
// with special set: a fifo would wait for a writer, a device may do anything.
func openRegular(path string, special bool) (fd int, st unix.Stat_t, err error) {
	// Looked at before it is opened, because opening alone has an effect on a fifo
	// or a device; and again after, because it may have changed in between.
	if err := unix.Stat(path, &st); err != nil {
		return -1, st, err
	}
	if err := readable(&st, special); err != nil {
		return -1, st, err
	}
	fd, err = openat(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(fd, &st); err == nil {
		err = readable(&st, special)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// readable refuses kinds of files.
func readable(st *unix.Stat_t, special bool) error {
	kind := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return &problem{unix.EISDIR, "is a folder"}
	case unix.S_IFSOCK:
		return &problem{unix.EOPNOTSUPP, "is a socket"}
	case unix.S_IFIFO:
		kind = "is a fifo"
	case unix.S_IFCHR:
		kind = "is a character device"
	default:
		kind = "is a device"
	}
	if special {
		return nil
	}
	return &problem{unix.EOPNOTSUPP, kind}
}

// read reads a range of a file, into the reply or a pipe.
func (c *call) read() (*filesapi.Reply, error) {
	fd, st, err := openRegular(c.Path, c.Special)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return c.readSpecial(fd)
	}
	r := &filesapi.Reply{Size: max(st.Size, 0), Offset: c.Offset}
	if c.Offset < 0 {
		r.Offset = max(0, st.Size+c.Offset)
	}
	if r.Offset > 0 {
		if _, err := unix.Seek(fd, r.Offset, io.SeekStart); err != nil {
			return nil, err
		}
	}
	if c.fd >= 0 {
		return r, c.readInto(fd, r)
	}
	data, err := io.ReadAll(io.LimitReader(file(fd), c.Limit))
	if err != nil {
		return nil, err
	}
	// Files of /proc have no size: only a read that gives nothing is their end.
	r.EOF = int64(len(data)) < c.Limit || st.Size > 0 && r.Offset+int64(len(data)) == st.Size
	r.Bytes = int64(len(data))
	c.give(data)
	return r, nil
}

func (c *call) readInto(fd int, r *filesapi.Reply) error {
	p, err := c.pipe()
	if err != nil {
		return err
	}
	var src io.Reader = file(fd)
	if c.Limit > 0 {
		src = io.LimitReader(src, c.Limit)
	}
	r.Bytes, err = io.CopyBuffer(p, src, make([]byte, buffer))
	r.EOF = c.Limit == 0 || r.Bytes < c.Limit
	return err
}

// readSpecial reads what a fifo or a device has at this moment.
func (c *call) readSpecial(fd int) (*filesapi.Reply, error) {
	if c.Offset != 0 || c.fd >= 0 {
		return nil, &problem{unix.ESPIPE, "has neither offsets nor a size; read it without"}
	}
	data := make([]byte, c.Limit)
	var n int
	err := retry(func() (err error) { n, err = unix.Read(fd, data); return err })
	if errors.Is(err, unix.EAGAIN) {
		return &filesapi.Reply{}, nil
	}
	if err != nil {
		return nil, err
	}
	c.give(data[:n])
	return &filesapi.Reply{Bytes: int64(n), EOF: n == 0}, nil
}
