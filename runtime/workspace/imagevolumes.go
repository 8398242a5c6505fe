package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// maxImageVolumes bounds the folders that an image has made: each costs a call, and images have a few.
const maxImageVolumes = 64

// ImageVolumes makes the folders that an image names as volumes and does not have, as other tools do: programs count on
// them. They are part of the sandbox's files, root's and 0755; where those cannot be written there are none. One that
// cannot be made keeps nobody from using the image: note says so, for people, and is "" when all are there. Nothing
// runs in the sandbox yet, and nobody can use it. dir is its folder, sp its spec; mkdir makes a folder and those above
// it.
func ImageVolumes(ctx context.Context, volumes []string, dir string, sp *api.Spec,
	mkdir func(ctx context.Context, path string) error) (note string) {
	if sp.ReadOnly {
		return ""
	}
	var failed []string
	for i, v := range volumes {
		if i == maxImageVolumes {
			failed = append(failed, fmt.Sprintf("and others: at most %d are made", maxImageVolumes))
			break
		}
		if err := imageVolume(ctx, v, dir, sp, mkdir); err != nil && ctx.Err() == nil {
			failed = append(failed, fmt.Sprintf("%.200q: %.300v", v, err)) // the image has chosen the name
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return "the image's VOLUME folders could not all be made: " + strings.Join(failed[:min(len(failed), 3)], "; ")
}

// imageVolume makes one of them, unless it is there or would be in a folder that is mounted: an image makes nothing on
// the host.
func imageVolume(ctx context.Context, name, dir string, sp *api.Spec,
	mkdir func(ctx context.Context, path string) error) error {
	root, err := os.OpenFile(filepath.Join(dir, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	at, there, err := resolve(root, name)
	if err != nil || there {
		return err
	}
	for _, mt := range Of(sp) {
		target, _, err := resolve(root, mt.Target)
		if err != nil || within(at, target) {
			return err
		}
	}
	return mkdir(ctx, at)
}

// resolve is the path without links of what name is below root, which nobody changes, and whether that is a folder.
// What of it is not there is as in name; a link to what is not there is an error, for it may be elsewhere in the
// sandbox, where more is mounted.
func resolve(root *os.File, name string) (at string, there bool, err error) {
	rest := ""
	for prefix := path.Clean("/" + name); ; prefix = path.Dir(prefix) {
		fd, err := sys.OpenInRoot(int(root.Fd()), prefix, unix.O_PATH, 0)
		if errors.Is(err, unix.ENOENT) {
			if link, err := sys.OpenInRoot(int(root.Fd()), prefix, unix.O_PATH|unix.O_NOFOLLOW, 0); err == nil {
				_ = unix.Close(link)
				return "", false, fmt.Errorf("%s is a link to what is not in the image", prefix)
			}
			rest = path.Join(path.Base(prefix), rest)
			continue
		}
		if err != nil {
			return "", false, err
		}
		at, dir, err := whereIs(root, fd)
		_ = unix.Close(fd)
		return path.Join(at, rest), dir && rest == "", err
	}
}

// whereIs is the path below root of what fd is, and whether that is a folder.
func whereIs(root *os.File, fd int) (at string, dir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	below, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(root.Fd())))
	if err != nil {
		return "", false, err
	}
	at, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", false, err
	}
	if !within(at, below) {
		return "", false, api.Errorf(api.Internal, "%s is not below %s", at, below)
	}
	return path.Join("/", strings.TrimPrefix(at, below)), st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}
