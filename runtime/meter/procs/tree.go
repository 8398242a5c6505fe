package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// IDs lists the host pids in the pid namespace of pid1, pid1 first.
func IDs(pid1 int) []int {
	pids := []int{}
	if pid1 == 0 {
		return pids
	}
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid1))
	if err != nil {
		return pids
	}
	pids = append(pids, pid1)
	proc, err := os.Open("/proc")
	if err != nil {
		return pids
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == pid1 {
			continue
		}
		if got, err := os.Readlink("/proc/" + name + "/ns/pid"); err == nil && got == ns {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids[1:])
	return pids
}

// Descendants are the processes below PID 1, as the host sees them; not known where PID 1 has ended, or the kernel does
// not list children (CONFIG_PROC_CHILDREN). Those of a sandbox that does not stand still may be missed while they come
// and go.
func Descendants(pid1 int) (pids []int, known bool) {
	seen := map[int]bool{pid1: true}
	for todo := []int{pid1}; len(todo) > 0; todo = todo[1:] {
		children, err := childrenOf(todo[0])
		if err != nil && (todo[0] == pid1 || !IsGone(err)) {
			return nil, false
		}
		for _, child := range children {
			if !seen[child] {
				seen[child] = true
				todo, pids = append(todo, child), append(pids, child)
			}
		}
	}
	return pids, true
}

var errNotListed = errors.New("this kernel does not list the children of a thread")

// childrenOf lists the children of a process: of each of its threads, as only the thread that made a child has it in
// its list.
func childrenOf(pid int) (children []int, err error) {
	tasks, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, err
	}
	defer tasks.Close()
	threads, err := tasks.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []byte
	for _, thread := range threads {
		list, err = readAt(tasks, thread+"/children", list[:0])
		if err != nil && unix.Faccessat(int(tasks.Fd()), thread, unix.F_OK, 0) == nil {
			return nil, errNotListed // the thread is there, its list is not
		}
		for word := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children, nil
}

// readAt appends a file's content to b. A file of /proc is no file to wait for: os.File would try to have it watched.
func readAt(dir *os.File, name string, b []byte) ([]byte, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return b, err
	}
	defer unix.Close(fd)
	for {
		b = slices.Grow(b, 512)
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return b, err
		}
		b = b[:len(b)+n]
	}
}

// IsGone says that an error is about a process that has ended.
func IsGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// HasOrphans reports whether there may be a process in the pid namespace of pid, its PID 1, beside that, when no
// command runs; proc is its folder in proc(5). What a command leaves is given to PID 1's main thread (kernel/exit.c,
// find_new_reaper), whose children the kernel lists where it has CONFIG_PROC_CHILDREN; without that there may be.
func HasOrphans(proc string, pid int) bool {
	fd, err := unix.Open(fmt.Sprintf("%s/task/%d/children", proc, pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	var one [1]byte
	n, err := unix.Read(fd, one[:])
	return n != 0 || err != nil
}
