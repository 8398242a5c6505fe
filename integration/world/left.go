package world

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// Process is one line of /proc.
type Process struct {
	PID, ppid int
	Args      []string
	zombie    bool
	root      string // HUTCH_ROOT of its environment
}

// Name is what the process was started as.
func (p Process) Name() string {
	if len(p.Args) == 0 {
		return ""
	}
	return p.Args[0]
}

// ReadProcess reads pid; ok is false when it is gone.
func ReadProcess(pid int) (p Process, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return p, false
	}
	// pid (comm) state ppid: comm may hold anything, so from its last bracket.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	p = Process{PID: pid, zombie: fields[0] == "Z"}
	p.ppid, _ = strconv.Atoi(fields[1])
	if cmdline, err := os.ReadFile(dir + "/cmdline"); err == nil {
		p.Args = strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	}
	if environ, err := os.ReadFile(dir + "/environ"); err == nil {
		for kv := range bytes.SplitSeq(environ, []byte{0}) {
			if v, found := bytes.CutPrefix(kv, []byte("HUTCH_ROOT=")); found {
				p.root = string(v)
			}
		}
	}
	if p.root == "" && isExiting(dir) { // of whatever world: its environment is gone already
		return p, false
	}
	if p.root == "" && p.Name() == "hutch-launch" && p.ppid == os.Getpid() { // its monitor, which would tell, is dead
		p.root = rootByMounts(dir)
	}
	return p, true
}

// isExiting says that a process has begun to end: PF_EXITING of its flags (proc_pid_stat(5), linux/sched.h).
func isExiting(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return true
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	return flags&0x4 != 0
}

// rootByMounts is the state folder of a hutch-launch whose monitor is dead, by where it has it mounted: within its file
// system.
func rootByMounts(dir string) string {
	table, err := os.ReadFile(dir + "/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasSuffix(f[4], "/mnt") &&
			strings.HasSuffix(f[3], "/data") {
			return strings.TrimSuffix(f[3], "/data")
		}
	}
	return ""
}

// Processes are all that are alive, by pid.
func Processes() map[int]Process {
	names, _ := filepath.Glob("/proc/[0-9]*")
	all := make(map[int]Process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if p, ok := ReadProcess(pid); ok && !p.zombie {
			all[pid] = p
		}
	}
	for _, pid := range slices.Collect(maps.Keys(all)) {
		connect(all, all[pid])
	}
	return all
}

// connect adds the ancestors of p that are not in all: a parent may have begun while the others were read, or ended,
// and then its children have got another one. A client that starts a daemon, say, is its parent for as long as it
// lives.
func connect(all map[int]Process, p Process) {
	for p.ppid > 1 && all[p.ppid].PID == 0 {
		parent, ok := ReadProcess(p.ppid)
		if ok && !parent.zombie {
			all[parent.PID] = parent
			p = parent
			continue
		}
		if !Ended(p.ppid, Patience) {
			return // only its first thread has ended
		}
		again, ok := ReadProcess(p.PID)
		if !ok || again.zombie {
			delete(all, p.PID)
			return
		}
		all[p.PID] = again
		p = again
	}
}

// Processes lists what runs for this world: every descendant of this process
// whose environment, or nearest ancestor's, names the world's state folder. A
// descendant that nobody's environment names has lost its daemon; unless it is
// an ordinary program of the tests it counts, too.
func (w *World) Processes() []Process {
	all := Processes()
	self := os.Getpid()
	var mine []Process
	for _, p := range all {
		if root, descendant := ownerOf(all, p, self); descendant && (root != "" && strings.HasSuffix(w.Root(), root) ||
			root == "" && stray(p)) {
			mine = append(mine, p)
		}
	}
	slices.SortFunc(mine, func(a, b Process) int { return a.PID - b.PID })
	return mine
}

func ownerOf(all map[int]Process, p Process, self int) (root string, descendant bool) {
	for {
		if root == "" {
			root = p.root
		}
		if p.ppid == self {
			return root, true
		}
		parent, ok := all[p.ppid]
		if !ok || p.ppid <= 1 {
			return "", false
		}
		p = parent
	}
}

// stray reports whether p can only be a part of a daemon: by its name, or
// because it lives in another user namespace.
func stray(p Process) bool {
	if strings.HasPrefix(filepath.Base(p.Name()), "hutch") {
		return true
	}
	own, err1 := os.Readlink("/proc/self/ns/user")
	its, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", p.PID))
	return err1 == nil && err2 == nil && own != its
}

// Answers reports whether a daemon listens on the world's socket.
func (w *World) Answers() bool {
	c, err := net.Dial("unix", w.Socket())
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Left lists what is left of the world when its daemons have ended, for which it
// waits at most that long.
func (w *World) Left(wait time.Duration) []string {
	var found []string
	for _, p := range w.WaitGone(time.Now().Add(wait)) {
		found = append(found, fmt.Sprintf("process %d %q, child of %d", p.PID, p.Args, p.ppid))
	}
	found = append(found, w.leftMounts()...)
	// Daemons of other worlds, in other stories as well, remove what they find of dead ones: one of them may be at it
	// just now.
	deadline := time.Now().Add(wait)
	for _, what := range w.LeftCgroups() {
		if gone, err := testenv.Gone(strings.TrimPrefix(what, "cgroup "), time.Until(deadline)); err != nil || !gone {
			found = append(found, what)
		}
	}
	return append(found, w.leftFolders()...)
}

// WaitGone waits for the end of the world's processes and returns those that do
// not end.
func (w *World) WaitGone(deadline time.Time) []Process {
	for {
		alive := w.Processes()
		if len(alive) == 0 {
			return nil
		}
		for _, p := range alive {
			if !Ended(p.PID, time.Until(deadline)) {
				return w.Processes()
			}
		}
	}
}

// Ended waits for the end of a process; true when it is gone.
func Ended(pid int, wait time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(max(wait, 0).Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// reap collects daemons that have ended and became children of this process. A zombie
// holds its credentials, and so a session keyring, of which an ordinary user has 200. What
// the tests have started themselves, which their exec.Cmd collects, is in this session.
func reap() {
	own, err := unix.Getsid(0)
	if err != nil {
		return
	}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		comm := stat[bytes.IndexByte(stat, '(')+1 : bytes.LastIndexByte(stat, ')')]
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state ppid pgrp session
		if fields[0] != "Z" || fields[1] != strconv.Itoa(os.Getpid()) || fields[3] == strconv.Itoa(own) ||
			!bytes.HasPrefix(comm, []byte("hutch")) || string(comm) == "hutch" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // of parallel tests' one comes first
	}
}

func (w *World) leftMounts() []string {
	var found []string
	for _, line := range Lines("/proc/self/mountinfo") {
		if strings.Contains(line, w.Dir) || strings.Contains(line, "/run/hutch/") {
			found = append(found, "mount "+line)
		}
	}
	return found
}

// LeftCgroups finds trees that were delegated to the owner of the world's data,
// a uid that is the daemon's own when root started it. An ordinary user's daemons
// share one, but shutdown has noted which trees are the world's.
func (w *World) LeftCgroups() []string {
	var found []string
	for _, dir := range w.trees {
		if _, err := os.Stat(dir); err == nil {
			found = append(found, "cgroup "+dir)
		}
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Join(w.Root(), "data"), &st) != nil || st.Uid == uint32(os.Geteuid()) && st.Uid != 0 {
		return found
	}
	for _, dir := range CgroupTrees() {
		var tree unix.Stat_t
		if unix.Stat(filepath.Join(dir, "sandboxes"), &tree) == nil && tree.Uid == st.Uid && !w.isOthers(dir) {
			found = append(found, "cgroup "+dir)
		}
	}
	return found
}

// isOthers says that a tree belongs to a daemon of another world that runs: of two in
// 4096, by chance, both have the same ids. The name tells the monitor: its pid namespace, pid
// and start time.
func (w *World) isOthers(tree string) bool {
	name := strings.Split(filepath.Base(tree), "-")
	if len(name) != 4 {
		return false
	}
	for _, d := range w.Daemons() {
		if name[2] == strconv.Itoa(d.Monitor) {
			return false
		}
	}
	stat, err := os.ReadFile(filepath.Join("/proc", name[2], "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	return len(fields) > 19 && fields[0] != "Z" && fields[19] == name[3]
}

// noteTrees notes the cgroups of an ordinary user's daemon that runs.
func (w *World) noteTrees() {
	for _, d := range w.Daemons() {
		for _, line := range Lines(fmt.Sprintf("/proc/%d/cgroup", d.Launch)) {
			if path, ok := strings.CutPrefix(line, "0::"); ok && strings.Contains(path, ".scope/hutch-") {
				w.trees = append(w.trees, filepath.Dir(filepath.Join("/sys/fs/cgroup", path)))
			}
		}
	}
}

// CgroupTrees are the top folders of all daemons in all hierarchies: those of root,
// and those in scopes that a user's systemd has made.
func CgroupTrees() []string {
	var trees []string
	for _, line := range Lines("/proc/self/mountinfo") {
		fields := strings.Fields(line)
		if i := slices.Index(fields, "-"); i < 5 || !strings.HasPrefix(fields[i+1], "cgroup") {
			continue
		}
		for _, pattern := range []string{"hutch-*-*", "user.slice/*/*/*/hutch-*.scope/hutch-*-*"} {
			dirs, _ := filepath.Glob(filepath.Join(fields[4], pattern))
			trees = append(trees, dirs...)
		}
	}
	return trees
}

// leftFolders finds folders of sandboxes, halves of downloads and mount points
// in use.
func (w *World) leftFolders() []string {
	var found []string
	for _, dir := range []string{
		filepath.Join(w.Root(), "data/daemons"), filepath.Join(w.Root(), "data/images/tmp"), w.Path("run/hutch/mnt"),
	} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.Name() != "lock" {
				found = append(found, "folder "+filepath.Join(dir, e.Name()))
			}
		}
	}
	return found
}

// Lines are those of a file; none where it cannot be read.
func Lines(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var all []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		all = append(all, sc.Text())
	}
	return all
}

// OwnerOfFile is a file's uid.
func OwnerOfFile(st os.FileInfo) int { return int(st.Sys().(*syscall.Stat_t).Uid) }
