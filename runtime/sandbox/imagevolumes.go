package sandbox

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// maxImageVolumes bounds the folders that an image has made: each costs a call, and images have a few.
const maxImageVolumes = 64

// makeVolumes makes the folders that the image names as volumes and does not have, as other tools do: programs count on them. They are part of
// the sandbox's files, root's and 0755. One that cannot be made is noted, and keeps nobody from using the image.
func (m *Manager) makeVolumes(ctx context.Context, s *Sandbox) {
	var failed []string
	n := 0
	for _, v := range s.root.Config.Volumes {
		if s.root.hasFolder(v) {
			continue
		}
		if n++; n > maxImageVolumes {
			failed = append(failed, fmt.Sprintf("and others: at most %d are made", maxImageVolumes))
			break
		}
		_, err := m.MakeFolder(ctx, api.FileMkdirParams{FileParams: api.FileParams{Sandbox: s.id, Path: v, User: "0"}, Parents: true})
		if err != nil && ctx.Err() == nil {
			failed = append(failed, fmt.Sprintf("%s: %v", v, err))
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

// hasFolder says that the top-most layer that has the name has it as a folder. A link that leads into another layer counts as
// none: making it again inside changes nothing.
func (r *Root) hasFolder(name string) bool {
	for _, lower := range r.lowers() {
		layer, err := os.OpenFile(lower, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return false
		}
		fd, err := sys.OpenInRoot(int(layer.Fd()), name, unix.O_PATH, 0)
		_ = layer.Close()
		if err != nil {
			continue
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		_ = unix.Close(fd)
		return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	return false
}
