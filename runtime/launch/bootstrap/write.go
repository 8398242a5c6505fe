package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// write gives the user namespace of pid its maps. pid must be a child that
// nobody has waited for, so that the number cannot be another process's.
func (m IDMap) write(ctx context.Context, pid int) error {
	proc := fmt.Sprintf("/proc/%d/", pid)
	switch m.Method {
	case MethodHelper:
		if err := runHelper(ctx, "newgidmap", pid, m.GIDs); err != nil {
			return err
		}
		return runHelper(ctx, "newuidmap", pid, m.UIDs)
	case MethodSelf:
		// Before an unprivileged gid_map (user_namespaces(7), since Linux 3.19),
		// else a group that denies access could be dropped.
		if err := writeOnce(proc+"setgroups", "deny"); err != nil {
			return err
		}
	case MethodDirect:
	default:
		return api.Errorf(api.InvalidArgument, "id map method %q is unknown", m.Method)
	}
	if err := writeOnce(proc+"gid_map", mapText(m.GIDs)); err != nil {
		return err
	}
	return writeOnce(proc+"uid_map", mapText(m.UIDs))
}

func mapText(ranges []Range) string {
	var b strings.Builder
	for _, r := range ranges {
		fmt.Fprintf(&b, "%d %d %d\n", r.Inside, r.Outside, r.Count)
	}
	return b.String()
}

// writeOnce writes text with one write(2), the only one that id maps take.
func writeOnce(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return mapError(err, path, text)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return mapError(err, path, text)
	}
	return nil
}

func mapError(err error, path, text string) error {
	e := api.Errorf(api.Unavailable, "write %q to %s: %w", strings.TrimSpace(text), path, err)
	if errors.Is(err, unix.EPERM) {
		return e.WithHint("the ids must be mapped in the user namespace that hutch itself runs in: see /proc/self/uid_map")
	}
	return e.WithHint("run `hutch doctor` to see what this host allows")
}

func runHelper(ctx context.Context, helper string, pid int, ranges []Range) error {
	args := []string{strconv.Itoa(pid)}
	for _, r := range ranges {
		for _, n := range []uint32{r.Inside, r.Outside, r.Count} {
			args = append(args, strconv.FormatUint(uint64(n), 10))
		}
	}
	out, err := exec.CommandContext(ctx, helper, args...).CombinedOutput()
	if err != nil {
		return api.Errorf(api.Unavailable, "%s %s: %w: %s",
			helper, strings.Join(args, " "), err, strings.TrimSpace(string(out))).
			WithHint("check your lines in /etc/subuid and /etc/subgid, or remove them to run with a single uid")
	}
	return nil
}
