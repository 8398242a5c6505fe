package meter

import (
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// maxShm is the most that /dev/shm has where nobody asks for more and memory has no limit.
const maxShm = 1 << 30

// maxMeteredShm is the same where a limit of memory is metered: files that nobody has mapped are in no process, which
// is what is looked at.
const maxMeteredShm = 64 << 20

// ShmOf is the size of /dev/shm with the limits l. It is in memory, and counts there; where memory has no cgroup it is
// bounded by its size alone.
func (m *Meters) ShmOf(l *api.Limits) int64 {
	if l.ShmBytes > 0 {
		return l.ShmBytes
	}
	size := int64(maxShm)
	if l.MemoryBytes > 0 {
		size = l.MemoryBytes / 2
	} else if have := m.cfg.Host.MemoryBytes; have > 0 {
		size = min(size, have/2)
	}
	if l.DiskBytes > 0 { // what a sandbox can keep, whatever it is in
		size = min(size, l.DiskBytes)
	}
	return max(size, api.MinShmBytes)
}

// ShmBytes is ShmOf the limits in force, and of the one of memory that is metered.
func (t *Meter) ShmBytes() int64 { return t.inMemory(t.limits().ShmBytes) }

// MemoryFolder is the size of other folders in memory, which what was asked for /dev/shm says nothing about.
func (t *Meter) MemoryFolder() int64 { return t.inMemory(0) }

func (t *Meter) inMemory(asked int64) int64 {
	rec := t.of.Record()
	l := rec.Limits
	l.ShmBytes = asked
	for _, u := range rec.Unenforced {
		if u.Limit == "memory_bytes" && u.Metered && l.MemoryBytes <= 0 {
			l.MemoryBytes = min(int64(u.Value), 2*maxMeteredShm)
		}
	}
	return t.all.ShmOf(&l)
}

// ResizeShm changes the size of /dev/shm of a sandbox in which nothing has run yet, by its PID 1.
func (m *Meters) ResizeShm(pid int, size int64) error {
	return m.cfg.Kernel.Reconfigure(m.cfg.Kernel.Proc(pid)+shmInside, []sys.FSOption{
		{Key: "size", Value: strconv.FormatInt(size, 10)},
		{Key: "nr_inodes", Value: strconv.FormatInt(spec.ShmInodes, 10)},
	})
}

// shmInside is /dev/shm of a process, below what proc(5) has of it.
const shmInside = "/root/dev/shm"

// ShmHint is what to do about a command that has ended so, if /dev/shm explains it: whoever writes to a file that is
// mapped gets a signal where there is no room, which programs hardly ever explain.
func (t *Meter) ShmHint(status int) string {
	end := syscall.WaitStatus(status)
	var st unix.Statfs_t
	if unix.Statfs(t.all.cfg.Kernel.Proc(t.of.Record().PID)+shmInside, &st) != nil || st.Blocks == 0 {
		return ""
	}
	size := MiB(int64(st.Blocks) * st.Bsize)
	switch {
	case st.Bfree*64 < st.Blocks:
		return "/dev/shm, shared memory of " + size + ", is full: give more (--shm-size)"
	case end.Signaled() && end.Signal() == unix.SIGBUS || end.ExitStatus() == 128+int(unix.SIGBUS):
		return "SIGBUS ends who writes to mapped memory that has no room; /dev/shm has " + size +
			": give more (--shm-size)"
	}
	return ""
}

// MiB is a number of bytes for people.
func MiB(n int64) string {
	if n >= 1<<30 && n%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
