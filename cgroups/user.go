package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// delegateUser makes an ordinary user's tree: in the cgroup that this process is in
// when somebody delegated it, else in one that obtain gets.
func delegateUser(hs []hierarchy, name string, obtain func() error) (*Tree, error) {
	if len(hs) != 1 || !hs[0].v2 {
		return none("cgroup v1 hierarchies belong to root; limits as an ordinary user need pure cgroup v2",
			"boot with systemd.unified_cgroup_hierarchy=1, or start hutch as root"), nil
	}
	h := hs[0]
	own, err := h.delegated()
	if own == "" && err == nil {
		if err := obtain(); err != nil {
			return none(fmt.Sprintf("the cgroup of this process is not delegated to uid %d, and none can be had: %v",
				os.Getuid(), err),
				fmt.Sprintf("give the user a systemd of its own (sudo loginctl enable-linger %[1]d && sudo systemctl start user@%[1]d.service), or start hutch as root", os.Getuid())), nil
		}
		own, err = h.delegated()
	}
	if err != nil {
		return nil, err
	}
	if own == "" {
		return nil, errors.New("the cgroup that was obtained is not this process's alone")
	}
	group := filepath.Join(own, name)
	t := &Tree{Mode: V2, Path: filepath.Join("/", group, "sandboxes"), V2Mount: true, hierarchies: []hierarchy{h},
		group: group}
	if err := t.takeOver(h, filepath.Join(h.mount, own)); err != nil {
		return none(fmt.Sprintf("the delegated cgroup %s cannot be used: %v", own, err), "report this: it is a bug"),
			t.Remove()
	}
	return t, nil
}

// delegated is the cgroup of this process if it can be used as a tree's parent: it
// belongs to the user, and no other process is in it. The kernel gives controllers
// only to children of groups without processes (cgroups(7), "no internal processes"),
// and a terminal's scope, say, is the user's as well but not ours to change.
func (h hierarchy) delegated() (string, error) {
	own, err := ownV2("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(h.mount, own)
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // outside of what this cgroup namespace shows
	}
	if err != nil {
		return "", fmt.Errorf("look at own cgroup: %w", err)
	}
	if !ownedByMe(st) || unix.Access(dir, unix.W_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"),
		unix.W_OK) != nil {
		return "", nil
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return "", fmt.Errorf("look at own cgroup: %w", err)
	}
	if strings.TrimSpace(string(procs)) != strconv.Itoa(os.Getpid()) {
		return "", nil
	}
	return own, nil
}
