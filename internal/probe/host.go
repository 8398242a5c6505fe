package probe

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/sys"
)

// host is what probes read besides trying: files below / and who asks. Tests put
// a fixture in its place.
type host struct {
	root fs.FS
	uid  int
	// user is the account's name, empty where the uid has none.
	user string
	exe  string // path of this program
	env  func(string) string
	// dumpable says whether a process's memory may go into core files.
	dumpable func(pid int) (bool, error)
}

func thisHost() host {
	h := host{root: os.DirFS("/"), uid: os.Geteuid(), env: os.Getenv, dumpable: sys.Dumpable}
	if u, err := user.LookupId(strconv.Itoa(h.uid)); err == nil {
		h.user = u.Username
	}
	if exe, err := os.Executable(); err == nil {
		h.exe = exe
	}
	return h
}

// read returns a file's text without the last newline; ok is false when it cannot
// be read, for whatever reason.
func (h host) read(name string) (text string, ok bool) {
	data, err := fs.ReadFile(h.root, strings.TrimPrefix(name, "/"))
	return strings.TrimSuffix(string(data), "\n"), err == nil
}

// sysctl reads an integer below /proc/sys; ok is false where this kernel has no
// such file.
func (h host) sysctl(name string) (value int, ok bool) {
	text, ok := h.read("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if !ok {
		return 0, false
	}
	value, err := strconv.Atoi(strings.TrimSpace(text))
	return value, err == nil
}

// exists reports whether a file is there. One that cannot be looked at counts:
// something is in the way of looking.
func (h host) exists(name string) bool {
	_, err := fs.Stat(h.root, strings.TrimPrefix(name, "/"))
	return !errors.Is(err, fs.ErrNotExist)
}

// status returns a field of /proc/self/status, e.g. "Seccomp".
func (h host) status(field string) string { return h.statusOf("/proc/self/status", field) }

// statusOf is status of another process's file.
func (h host) statusOf(file, field string) string {
	text, _ := h.read(file)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// sudo prefixes a command that needs root with sudo for whoever is not.
func (h host) sudo(command string) string {
	if h.uid == 0 {
		return command
	}
	return "sudo " + command
}
