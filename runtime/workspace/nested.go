package workspace

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// checkNested makes sure that the target of m exists where it lies in a host folder
// mounted before it: libcontainer would make it, in the caller's own folder, and
// follow symlinks that a sandbox has left there. dir is the sandbox's folder.
func checkNested(dir string, before []api.Mount, m api.Mount) error {
	for i := len(before) - 1; i >= 0; i-- { // the innermost first
		outer := before[i]
		if !within(m.Target, outer.Target) {
			continue
		}
		if outer.Mode == api.ModeOverlay || outer.Mode == api.ModeTmpfs {
			return nil // made in what is the sandbox's own
		}
		below := strings.TrimPrefix(m.Target, outer.Target+"/")
		err := existsBelow(At(dir, i), below)
		if err == nil {
			return nil
		}
		e := api.Errorf(api.InvalidArgument, "%s cannot be mounted on %s: %s in %s: %w", m.From(), m.Target, below,
			outer.From(), err)
		if outer.Volume != "" {
			return e.WithHint("make it first, in a sandbox that has the volume only; or mount it as overlay")
		}
		return e.WithHint("make it first: mkdir -p %s; or mount %s as overlay", filepath.Join(outer.Source, below),
			outer.Source)
	}
	return nil
}

// existsBelow looks for a file or folder below dir without following symlinks.
func existsBelow(dir, name string) error {
	root, err := OpenPath(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	fd, err := sys.OpenAcross(int(root.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return errors.New("neither a folder nor a file")
	}
	return nil
}
