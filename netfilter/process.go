package netfilter

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	// maxCommand bounds the arguments that are reported, in bytes.
	maxCommand = 1 << 10
	// readPatience is for reading about a process. Its memory is its own business: the kernel
	// reads anonymous pages of it only, but under a lock that it can be busy with.
	readPatience = 20 * time.Millisecond
)

// reader reads about processes of one sandbox, one at a time.
type reader struct{ busy atomic.Bool }

// process is what is known of the process behind an event; nil where the kernel does not know
// it. mount is where cgroup2 is.
func (r *reader) process(mount string, event bpf.Event) *api.NetProcess {
	if event.PID == 0 {
		return nil
	}
	p := api.NetProcess{HostPID: event.PID, HostUID: event.UID}
	if !r.busy.CompareAndSwap(false, true) {
		return &p
	}
	done := make(chan api.NetProcess, 1)
	go func() {
		defer r.busy.Store(false)
		found := p
		found.PID, found.Command, _ = about(mount, event) // else it has ended meanwhile
		done <- found
	}()
	late := time.NewTimer(readPatience)
	defer late.Stop()
	select {
	case p = <-done:
	case <-late.C:
	}
	return &p
}

// about reads a process's pid inside and its arguments. That it is in the cgroup of the event shows that
// it is the one: pids are used again, and hutchd's may not be the initial pid namespace.
func about(mount string, event bpf.Event) (pid int, command []string, err error) {
	dir, err := os.OpenRoot(filepath.Join("/proc", strconv.Itoa(event.PID))) // of this process, whatever comes after it
	if err != nil {
		return 0, nil, err
	}
	defer dir.Close()
	groups, err := readSome(dir, "cgroup", 64<<10)
	if err != nil {
		return 0, nil, err
	}
	_, path, ok := bytes.Cut(append([]byte("\n"), groups...), []byte("\n0::"))
	path, _, _ = bytes.Cut(path, []byte("\n"))
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(mount, string(path)), &st); err != nil || !ok || st.Ino != event.Process {
		return 0, nil, fmt.Errorf("process %d is in cgroup %q, not in %d: %w", event.PID, path, event.Process,
			cmp.Or(err, errOther))
	}
	status, err := readSome(dir, "status", 64<<10)
	if err != nil {
		return 0, nil, err
	}
	line, err := readSome(dir, "cmdline", maxCommand)
	return pidInside(string(status)), arguments(line), err
}

// errOther says that the kernel used the pid of a process again.
var errOther = errors.New("it is another process")

func readSome(dir *os.Root, name string, bytes int64) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, bytes))
}

// pidInside is the last pid of NSpid (proc_pid_status(5)), 0 without one.
func pidInside(status string) int {
	_, rest, _ := strings.Cut(status, "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	pids := strings.Fields(line)
	if len(pids) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(pids[len(pids)-1])
	return pid
}

// arguments are those of /proc/PID/cmdline, which the process can write: what moves a
// terminal's cursor, or turns text around, is replaced.
func arguments(line []byte) []string {
	if line = bytes.TrimRight(line, "\x00"); len(line) == 0 {
		return nil
	}
	var all []string
	for _, word := range bytes.Split(line[:min(len(line), maxCommand)], []byte{0}) {
		all = append(all, strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return unicode.ReplacementChar
		}, strings.ToValidUTF8(string(word), string(unicode.ReplacementChar))))
	}
	return all
}
