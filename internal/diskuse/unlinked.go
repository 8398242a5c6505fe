package diskuse

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxFDs bounds the open files that Unlinked looks at.
const maxFDs = 1 << 18

// Unlinked measures the files on overlays that have no name any more and are open in one of
// the processes: they take space until they are closed. It does not see what only a
// mapping or a message under way between sockets keeps.
func Unlinked(pids []int) Usage {
	u := unlinked{seen: map[inode]struct{}{}}
	for _, pid := range pids {
		u.process("/proc/" + strconv.Itoa(pid) + "/fd")
		if u.looked > maxFDs {
			break
		}
	}
	return u.sum
}

type unlinked struct {
	sum    Usage
	seen   map[inode]struct{}
	looked int
}

func (u *unlinked) process(path string) {
	dir, err := os.Open(path)
	if err != nil {
		return // it has ended
	}
	defer dir.Close()
	for u.looked <= maxFDs {
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			u.looked++
			u.file(dir, name, path+"/"+name)
		}
		if err != nil { // the end, mostly
			return
		}
	}
}

// file looks at one open file, which it does not open: it may be a fifo, or a device.
func (u *unlinked) file(dir *os.File, name, path string) {
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &st, 0) != nil || st.Nlink != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	var fs unix.Statfs_t // a memfd is not on disk
	if unix.Statfs(path, &fs) != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return
	}
	id := inode{st.Dev, st.Ino}
	if _, again := u.seen[id]; !again {
		u.seen[id] = struct{}{}
		u.sum = u.sum.Add(Usage{st.Blocks * 512, 1})
	}
}
