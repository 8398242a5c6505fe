// Package testuser makes the ordinary users that tests run as. Only root can.
package testuser

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// prefix begins the names of accounts made here; then come the pid of the process
// that owns one, "-" and a number.
const prefix = "hutchtest"

var made atomic.Int32

// User is an ordinary user with a folder of its own. Close removes both.
type User struct {
	Kind     mustrun.Kind
	UID, GID uint32
	Home     string // 0700, the user's
	account  string // empty: no account, just a free uid
}

// New makes a user of kind, SubUID or NoSubUID. The first needs an account,
// because newuidmap looks its caller up; the second is a uid that nobody has.
func New(ctx context.Context, kind mustrun.Kind) (u *User, err error) {
	u = &User{Kind: kind}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.Close())
		}
	}()
	switch kind {
	case mustrun.SubUID:
		err = u.makeAccount(ctx)
	case mustrun.NoSubUID:
		u.UID, err = freeUID()
		u.GID = u.UID
	default:
		err = fmt.Errorf("no user of kind %q can be made", kind)
	}
	if err != nil {
		return u, err
	}
	if u.Home, err = os.MkdirTemp("", "hutch-test-home-"); err != nil {
		return u, err
	}
	return u, os.Chown(u.Home, int(u.UID), int(u.GID))
}

// makeAccount creates an account with a range of 65536 subordinate ids.
func (u *User) makeAccount(ctx context.Context) error {
	sweep(ctx)
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), made.Add(1))
	free, err := freeUID()
	if err != nil {
		return err
	}
	id := strconv.FormatUint(uint64(free), 10)
	if err := tool(ctx, "useradd", "--uid", id, "--no-create-home", "--no-user-group", "--home-dir", "/nonexistent",
		"--shell", "/bin/sh", name); err != nil {
		return err
	}
	u.account = name
	found, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return err
	}
	u.UID, u.GID = uint32(uid), uint32(gid)
	return u.ensureRange(ctx)
}

// ensureRange adds the range where useradd is not set up to. It lies behind
// every range there is.
func (u *User) ensureRange(ctx context.Context) error {
	first := 100000
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Split(strings.TrimSpace(line), ":")
			if len(f) != 3 {
				continue
			}
			if f[0] == u.account {
				return nil
			}
			start, err1 := strconv.Atoi(f[1])
			count, err2 := strconv.Atoi(f[2])
			if err1 == nil && err2 == nil {
				first = max(first, start+count)
			}
		}
	}
	ids := fmt.Sprintf("%d-%d", first, first+65535)
	return tool(ctx, "usermod", "--add-subuids", ids, "--add-subgids", ids, u.account)
}

// Close waits for the user's processes, and removes the account and the home folder. A process that does not end is an
// error: what the user ran left it behind.
func (u *User) Close() error {
	var errs []error
	if u.Home != "" {
		errs = append(errs, u.ended())
	}
	if u.account != "" {
		errs = append(errs, tool(context.Background(), "userdel", u.account))
		u.account = ""
	}
	if u.Home != "" {
		errs = append(errs, os.RemoveAll(u.Home))
		u.Home = ""
	}
	return errors.Join(errs...)
}

// Run makes cmd run as the user: its ids without supplementary groups, an
// environment in which nothing points to the caller's files, then env.
func (u *User) Run(cmd *exec.Cmd, env ...string) {
	name := u.account
	if name == "" {
		name = strconv.Itoa(int(u.UID))
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID}
	cmd.Env = append([]string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"HOME=" + u.Home, "TMPDIR=" + u.Home, "USER=" + name, "LOGNAME=" + name, "LANG=C.UTF-8",
	}, env...)
}

// sweep removes accounts whose owner died without doing so.
func sweep(ctx context.Context) {
	data, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		name, _, _ := strings.Cut(line, ":")
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		pid, _, _ := strings.Cut(rest, "-")
		if _, err := os.Stat(filepath.Join("/proc", pid)); errors.Is(err, os.ErrNotExist) {
			// Another sweep may be faster: what counts is that it is gone.
			_ = tool(ctx, "userdel", name)
		}
	}
}

// freeUID finds a uid without account or process, away from the ranges that
// distributions give to people (from 1000, in containers as well), systemd (from
// 60001) and subordinate ids. It begins anywhere, because tests of several
// packages make users at the same time.
func freeUID() (uint32, error) {
	const first, count = 30000, 10000
	busy, err := busyUIDs()
	if err != nil {
		return 0, err
	}
	start := rand.Uint32N(count)
	for i := range uint32(count) {
		uid := first + (start+i)%count
		_, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
		var unknown user.UnknownUserIdError
		if errors.As(err, &unknown) && !busy[uid] {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("every uid from %d to %d has an account or a process", first, first+count-1)
}

// busyUIDs are those that processes run as, of other containers too.
func busyUIDs() (map[uint32]bool, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	busy := map[uint32]bool{}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil { // else it has ended
			busy[info.Sys().(*syscall.Stat_t).Uid] = true
		}
	}
	return busy, nil
}

func tool(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
