package host

import (
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Watch tells by one system call whether anything may have happened to the sources of a skeleton: the kernel notes
// what happens in the folders that they are in (inotify(7)). It sees neither what is written by another name of a file
// (a hard link), nor what is mounted, hence Relook; nor what other machines write, hence asked.
type Watch struct {
	fd    int
	Made  time.Time // before the sources were compared
	asked []Source  // that cannot be watched: in folders that may not be read, and on file systems that others write to
}

// Relook is how long a skeleton is used because the kernel has reported nothing.
const Relook = time.Minute

// watched is what changes a source, or makes one that was not there.
const watched = unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MODIFY |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// NewWatch watches sources, with w where there is one already. It returns nil where inotify is used up.
func NewWatch(w *Watch, sources []Source) *Watch {
	if w == nil {
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return nil
		}
		w = &Watch{fd: fd}
	}
	for w.happened() { // all of it was before what follows
	}
	w.Made, w.asked = time.Now(), nil
	local := map[string]bool{} // folders; false for one that cannot be watched
	for _, s := range sources {
		folders := []string{nearest(filepath.Dir(s.path))}
		if s.mode&unix.S_IFMT == unix.S_IFDIR {
			folders = append(folders, s.path)
		}
		for _, dir := range folders {
			its, known := local[dir]
			if !known {
				if its = isLocal(dir); its {
					_, err := unix.InotifyAddWatch(w.fd, dir, watched)
					if its = !errors.Is(err, unix.EACCES); its && err != nil {
						w.Close()
						return nil
					}
				}
				local[dir] = its
			}
			if !its {
				w.asked = append(w.asked, s)
				break
			}
		}
	}
	return w
}

// nearest is dir, or where that is not there the folder above it in which it, or its way, would turn up.
func nearest(dir string) string {
	for {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR || dir == "/" {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// remoteFS are file systems in which files change without the kernel's doing (linux/magic.h).
var remoteFS = map[int64]bool{
	unix.NFS_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.FUSE_SUPER_MAGIC: true,
	unix.V9FS_MAGIC:   true,
	unix.AFS_FS_MAGIC: true, unix.CEPH_SUPER_MAGIC: true, unix.CODA_SUPER_MAGIC: true, unix.OCFS2_SUPER_MAGIC: true,
	gfs2Magic:             true,
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true,
}

// gfs2Magic is GFS2_MAGIC (linux/gfs2_ondisk.h). virtiofs has FUSE's number.
const gfs2Magic = 0x01161970

func isLocal(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && !remoteFS[st.Type]
}

// Quiet reports whether nothing has happened since the last time. nil never is.
func (w *Watch) Quiet() bool {
	return w != nil && time.Since(w.Made) < Relook && !w.happened() && Unchanged(w.asked)
}

// happened reports whether there is any news, and takes some of it.
func (w *Watch) happened() bool {
	var buf [4096]byte
	n, err := unix.Read(w.fd, buf[:])
	return n > 0 || !errors.Is(err, unix.EAGAIN)
}

// Close ends watching. The kernel takes some milliseconds for that, for which nobody waits.
func (w *Watch) Close() {
	if w != nil {
		go func() { _ = unix.Close(w.fd) }()
	}
}
