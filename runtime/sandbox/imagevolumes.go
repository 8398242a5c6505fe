package sandbox

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

// makeVolumes makes the folders that the image names as volumes and does not have, as other tools do: programs count on
// them. They are part of the sandbox's files, root's and 0755; where those cannot be written there are none. One that
// cannot be made is noted, and keeps nobody from using the image. Nothing runs in s yet, and nobody can use it.
func (m *Manager) makeVolumes(ctx context.Context, s *Sandbox) {
	if s.spec.ReadOnly {
		return
	}
	var failed []string
	for i, v := range s.root.Config.Volumes {
		if i == maxImageVolumes {
			failed = append(failed, fmt.Sprintf("and others: at most %d are made", maxImageVolumes))
			break
		}
		if err := m.makeVolume(ctx, s, v); err != nil && ctx.Err() == nil {
			failed = append(failed, fmt.Sprintf("%.200q: %.300v", v, err)) // the image has chosen the name
		}
	}
	if len(failed) == 0 {
		return
	}
	note := "the image's VOLUME folders could not all be made: " + strings.Join(failed[:min(len(failed), 3)], "; ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.record.Note; was != "" {
		note = was + "; " + note
	}
	s.record.Note = note
}

// makeVolume makes one of them, unless it is there or would be in a folder that is mounted: an image makes nothing on
// the host.
func (m *Manager) makeVolume(ctx context.Context, s *Sandbox, name string) error {
	root, err := os.OpenFile(filepath.Join(s.dir, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	at, there, err := resolve(root, name)
	if err != nil || there {
		return err
	}
	for _, mt := range hostFolders(&s.spec) {
		target, _, err := resolve(root, mt.Target)
		if err != nil || within(at, target) {
			return err
		}
	}
	return m.Files.MakeFolderIn(ctx, filesBox{m, s}, at)
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
