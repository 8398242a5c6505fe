package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mounted lists the cgroup file systems in a mountinfo file (proc(5)), v1 first.
func mounted(mountinfo string) ([]hierarchy, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("find cgroup mounts: %w", err)
	}
	defer f.Close()
	return parseMounts(f, func(mount string) []string {
		data, _ := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
		return strings.Fields(string(data))
	})
}

func parseMounts(r io.Reader, controllersOf func(mount string) []string) ([]hierarchy, error) {
	var v1, v2 []hierarchy
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		// 25 30 0:22 / /sys/fs/cgroup/cpu rw,... shared:9 - cgroup cgroup rw,cpu
		before, after, ok := strings.Cut(sc.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || left[3] != "/" {
			continue // also skips binds of a part of a hierarchy
		}
		mount := unescape(left[4])
		switch right[0] {
		case "cgroup2":
			v2 = append(v2, hierarchy{mount: mount, v2: true, controllers: controllersOf(mount)})
		case "cgroup":
			v1 = append(v1, hierarchy{mount: mount, controllers: v1Controllers(right[2])})
		}
	}
	if len(v2) > 1 {
		v2 = v2[:1]
	}
	return append(v1, v2...), sc.Err()
}

// v1Controllers picks the controllers out of a v1 mount's super options.
func v1Controllers(options string) []string {
	var cs []string
	for o := range strings.SplitSeq(options, ",") {
		switch o {
		case "rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode":
		default:
			cs = append(cs, o)
		}
	}
	return cs
}

// unescape undoes mountinfo's octal escapes of blank, tab, newline, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ownV2 is the path of this process in the v2 hierarchy, from /proc/self/cgroup.
func ownV2(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find own cgroup: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("find own cgroup: /proc/self/cgroup has no 0:: line")
}

func ownedByMe(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Getuid()
}

// groupName names the tree of the monitor pid: unique for as long as anything
// of it can be left, and enough to tell whether its monitor lives. A pid means
// something in its own namespace only, and containers may share a hierarchy.
func groupName(pid int) (string, error) {
	namespace, err := pidNamespace()
	if err != nil {
		return "", err
	}
	start, err := startTime(pid)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("hutch-%d-%d-%s", namespace, pid, start), nil
}

// monitorLives says whether the process that groupName named still exists, as far
// as that can be seen from here.
func monitorLives(name string) bool {
	var namespace uint64
	var pid int
	var start string
	if n, _ := fmt.Sscanf(strings.ReplaceAll(name, "-", " "), "hutch %d %d %s", &namespace, &pid, &start); n != 3 {
		return true // not one of ours
	}
	if own, err := pidNamespace(); err != nil || own != namespace {
		return true
	}
	now, err := startTime(pid)
	return err == nil && now == start
}

// pidNamespace is the inode number of the caller's pid namespace.
func pidNamespace() (uint64, error) {
	st, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0, err
	}
	return st.Sys().(*syscall.Stat_t).Ino, nil
}

// startTime is field 22 of /proc/PID/stat: clock ticks since boot (proc(5)).
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command name, field 2, may hold blanks and parentheses.
	_, rest, ok := strings.Cut(string(data), ") ")
	for {
		_, after, more := strings.Cut(rest, ") ")
		if !more {
			break
		}
		rest = after
	}
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return "", fmt.Errorf("unexpected format of /proc/%d/stat", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		// Ended, only its parent has not asked how: some containers' PID 1 never does.
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}
