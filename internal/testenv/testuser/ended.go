package testuser

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/sys"
)

// patience is how long a process of the user's that is about to end may take: one that was killed still has to be
// scheduled.
var patience = 10 * time.Second

// ended waits until the user has no process left. One that does not end is killed, and an error that names it.
func (u *User) ended() error {
	var errs []error
	deadline := time.Now().Add(patience)
	for list := u.processes(); len(list) > 0 && len(errs) == 0; list = u.processes() { // what it starts meanwhile, too
		for _, pid := range list {
			if err := u.endOf(pid, deadline); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// endOf waits until a process has ended, or kills it.
func (u *User) endOf(pid int, deadline time.Time) (err error) {
	p, err := sys.OpenPidfd(pid)
	if err != nil {
		return nil // it has ended
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	name := describe(pid)
	if !u.runs(pid) {
		return nil
	}
	if err := errors.Join(p.SetReadDeadline(deadline), sys.AwaitExit(p)); err != nil {
		return errors.Join(fmt.Errorf("process %d of the tests' user %d is left: %s (%w)", pid, u.UID, name, err),
			sys.KillPidfd(p))
	}
	return nil
}

// processes are the pids that run as the user.
func (u *User) processes() []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && u.runs(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// runs reports whether pid runs as the user, by its real user id: /proc/PID is root's when what runs there is not
// dumpable. A zombie has run.
func (u *User) runs(pid int) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	zombie, own := false, false
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch ids := strings.Fields(value); {
		case len(ids) == 0:
		case name == "State":
			zombie = ids[0] == "Z" || ids[0] == "X"
		case name == "Uid":
			own = ids[0] == strconv.FormatUint(uint64(u.UID), 10)
		}
	}
	return own && !zombie
}

// describe is the command line of pid, as far as it can be read.
func describe(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
}
