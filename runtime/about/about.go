// Package about is what a sandbox is told about itself: what it may do, for programs and in a paragraph for a model,
// and the CPUs and limits that programs look for in /sys.
//
// It is a small file system in memory in the sandbox's folder, which hutchd writes to and the sandbox has as two
// mounts, read-only inside: what a program that ran before has written there would be believed by the model that runs
// next. The record decides, the text follows. There is no state here, and no lock: who changes what a sandbox may do
// has its turn.
package about

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/meter"
)

// Target is where a sandbox finds what it may do: policy.json for programs and policy.txt, a paragraph, for a model.
const Target = "/run/hutch"

// Folder is where the file system is mounted, below a sandbox's folder. What is below toldFolder is at Target, and what
// is below sysFolder is /sys.
const (
	Folder     = "about"
	toldFolder = "hutch"
	sysFolder  = "sys"
)

// maxBytes bounds the file system. A policy has at most 2 MiB (a request), there are two of them for a moment when it
// changes, and what is not used takes no memory.
const maxBytes = 8 << 20

// Kernel is what the kernel does.
type Kernel interface {
	// Tmpfs makes a file system in memory, which Attach mounts at a folder.
	Tmpfs(options []sys.FSOption, attributes int) (*os.File, error)
	Attach(mnt *os.File, at string) error
}

// Told is the folder of the host's that a sandbox has at Target, Sys the one that it has as /sys; dir is the sandbox's.
func Told(dir string) string { return filepath.Join(dir, Folder, toldFolder) }

// Sys is that of /sys.
func Sys(dir string) string { return filepath.Join(dir, Folder, sysFolder) }

// Mount mounts the file system of a sandbox in its folder. It is empty but for two folders.
func Mount(k Kernel, dir string) error {
	mnt, err := k.Tmpfs([]sys.FSOption{
		{Key: "source", Value: "hutch"}, {Key: "size", Value: fmt.Sprint(maxBytes)},
		{Key: "nr_inodes", Value: strconv.Itoa(64 + meter.MaxCPUFolders)}, {Key: "mode", Value: "755"},
	}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer mnt.Close()
	return k.Attach(mnt, filepath.Join(dir, Folder))
}

// Furnish makes the folders of it.
func Furnish(dir string) error {
	return errors.Join(os.Mkdir(Told(dir), 0o755), os.Mkdir(Sys(dir), 0o755))
}

// Write writes what a sandbox may do, and files of /sys by their names, for one in which nothing runs that could read
// half of it.
func Write(dir string, a api.About, files map[string]string) error {
	return write(dir, a, files, func(path string, text []byte) error { return os.WriteFile(path, text, 0o644) })
}

// Replace tells a sandbox what has changed. Readers see the old text or the new. It is fs.ErrNotExist of one that was
// told nothing.
func Replace(dir string, a api.About, files map[string]string) error {
	_, err := os.Lstat(Told(dir))
	before := errors.Is(err, fs.ErrNotExist) // made by a build that had it all in one folder, and no /sys
	return write(dir, a, files, func(path string, text []byte) error {
		if before {
			if filepath.Dir(path) != Told(dir) {
				return nil
			}
			path = filepath.Join(dir, Folder, filepath.Base(path))
		}
		if err := os.WriteFile(path+".new", text, 0o644); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
}

func write(dir string, a api.About, files map[string]string, put func(path string, text []byte) error) error {
	policy, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what the sandbox may do: %w", err)
	}
	texts := map[string]string{
		filepath.Join(Told(dir), "policy.json"): string(policy), filepath.Join(Told(dir), "policy.txt"): a.Text,
	}
	for name, text := range files {
		texts[filepath.Join(Sys(dir), name)] = text
	}
	for path, text := range texts {
		if err := put(path, []byte(text+"\n")); err != nil {
			return fmt.Errorf("write what the sandbox may do: %w", err)
		}
	}
	return nil
}
