package stdio

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/spool"
)

// LastOutput is how many bytes of the end of a stream are saved; less than the head of a spool, so that the file is
// one.
const LastOutput = 8 << 20

// Save writes the ends of the streams of a command that has ended into a folder, each to a file that is called by its
// number.
func (io *IO) Save(dir string) error {
	for i, st := range io.Streams {
		if err := st.save(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// Recall makes what was saved in a folder readable.
func Recall(dir string) (*IO, error) {
	io := &IO{}
	for i := range 2 {
		st, err := storedStream(filepath.Join(dir, strconv.Itoa(i)))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			io.Forget()
			return nil, err
		}
		io.Streams = append(io.Streams, st)
	}
	return io, nil
}

// save writes the end of a stream that has ended.
func (st *Stream) save(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	total := st.Len()
	buf := make([]byte, spool.MaxChunk)
	for off := max(0, total-LastOutput); off < total; {
		n, start, err := st.ReadInto(buf, off)
		n = int(min(int64(n), total-start))
		if err != nil || n <= 0 { // the disk did not take the rest
			break
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return errors.Join(err, f.Close())
		}
		off = start + int64(n)
	}
	return f.Close()
}

// storedStream is a stream that is whole, in a file.
func storedStream(name string) (*Stream, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Stream{
		file: f, layout: spool.LayoutOf(SpoolSize), total: st.Size(), ended: true, grown: make(chan struct{}),
		closed: make(chan struct{}),
	}, nil
}

// Audited is what is known of a stream: its beginning, or what is kept of a long one; full says that the record holds
// the bytes themselves.
func (st *Stream) Audited(full bool) *audit.Bytes {
	total := st.Len()
	c := &audit.Bytes{Total: total, Full: full}
	if total > 0 {
		// Without the bytes, their number is worth a record all the same.
		c.Data, c.From, _ = st.Read(0, min(total, audit.Digested))
	}
	return c
}
