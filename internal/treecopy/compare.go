package treecopy

import (
	"bytes"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// compared is how much is compared at once.
const compared = 256 << 10

// sameContent says whether a file holds what its object does, where that has to be looked at. What cannot be compared
// is not the same.
func (l *looker) sameContent(dir *os.File, n *Node, st *unix.Stat_t) bool {
	if l.objects == nil || st.Size == 0 {
		return true
	}
	file, err := open(dir, n.Name, unix.O_RDONLY, st)
	if err != nil {
		return false
	}
	defer file.Close()
	fd, err := unix.Openat(int(l.objects.Fd()), ObjectName(n.Object), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	object := os.NewFile(uintptr(fd), n.Name)
	defer object.Close()
	if l.buf[0] == nil {
		l.buf = [2][]byte{make([]byte, compared), make([]byte, compared)}
	}
	for at := int64(0); at < st.Size; { // a hole that was data has another time
		begin, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return true
		}
		if err != nil {
			return false
		}
		end, err := unix.Seek(int(file.Fd()), begin, unix.SEEK_HOLE)
		if err != nil || l.ctx.Err() != nil {
			return false
		}
		for at = begin; at < end; {
			a, b := l.buf[0][:min(end-at, compared)], l.buf[1][:min(end-at, compared)]
			n, err := file.ReadAt(a, at)
			if m, oerr := object.ReadAt(b, at); n == 0 || m != n || err != nil && n != len(a) || oerr != nil &&
				m != len(b) || !bytes.Equal(a[:n], b[:n]) {
				return false
			}
			at += int64(n)
		}
	}
	return true
}
