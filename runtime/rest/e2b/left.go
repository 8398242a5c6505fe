package e2b

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// A server that is killed leaves ports open and programs running in sandboxes. So each has a folder, which it locks
// for as long as it lives (flock(2)): what belongs to a folder that nobody locks is nobody's, and the next server ends
// it. The folder holds the sockets of ports, and its name is the last argument of the programs.

// folder is that of a server that lives.
type folder struct{ *os.File }

// newFolder makes one whose path begins so, and locks it.
func newFolder(prefix string) (*folder, error) {
	for {
		path, err := os.MkdirTemp(filepath.Split(prefix))
		if err != nil {
			return nil, err
		}
		f, err := lockFolder(path)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, os.Remove(path))
		} // another server has taken it for one that is nobody's
	}
}

// lockFolder locks the folder of a server that lives no more. It fails with EWOULDBLOCK where that does.
func lockFolder(path string) (*folder, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := &folder{os.NewFile(uintptr(fd), path)}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	own, oerr := f.Stat()
	there, terr := os.Lstat(path)
	if oerr != nil || terr != nil || !os.SameFile(own, there) { // somebody has removed it before it was locked
		return nil, errors.Join(os.ErrNotExist, f.Close())
	}
	return f, nil
}

// remove removes it, before the lock goes.
func (f *folder) remove() error { return errors.Join(os.RemoveAll(f.Name()), f.Close()) }

// endOthers ends what servers have left that live no more. What cannot be ended now, the next server ends.
func (s *Server) endOthers(ctx context.Context) {
	paths, err := filepath.Glob(s.cfg.Folder + "*")
	if err != nil {
		return // the pattern is right
	}
	for _, path := range paths {
		f, err := lockFolder(path)
		if err != nil {
			continue // it lives
		}
		if err := errors.Join(s.closePorts(ctx, path), s.endWatches(ctx, filepath.Base(path))); err != nil {
			s.cfg.Log.Warn("what a server before has left cannot be ended", "folder", path, "err", err)
			_ = f.Close()
			continue
		}
		if err := f.remove(); err != nil {
			s.cfg.Log.Warn("the folder of a server before cannot be removed", "folder", path, "err", err)
		}
	}
}

// closePorts closes those with a socket in a folder.
func (s *Server) closePorts(ctx context.Context, folder string) error {
	all, err := rest.Do(ctx, s.rest, api.CallPortList, api.PortListParams{})
	if err != nil {
		return err
	}
	for i := range all.Ports {
		p := &all.Ports[i]
		if filepath.Dir(p.Address) != folder {
			continue
		}
		_, err := rest.Do(ctx, s.rest, api.CallPortClose, api.PortCloseParams{Sandbox: p.Sandbox, Port: p.Port,
			Address: p.Address})
		if err != nil && api.ErrorCode(err) != api.NotFound {
			return err
		}
	}
	return nil
}

// endWatches ends the programs that watch for the server with a folder of that name.
func (s *Server) endWatches(ctx context.Context, folder string) error {
	boxes, err := s.rest.Sandboxes(ctx, nil)
	if err != nil {
		return err
	}
	for i := range boxes {
		all, err := rest.Do(ctx, s.rest, api.CallExecList, api.SandboxParams{Sandbox: boxes[i].ID})
		if err != nil {
			continue // it has gone, or does not run
		}
		for j := range all.Execs {
			e := &all.Execs[j]
			if e.State != api.ExecRunning || !slices.Contains(e.Argv, watchProgram) || e.Argv[len(e.Argv)-1] != folder {
				continue
			}
			if _, err := rest.Do(ctx, s.rest, api.CallExecKill, api.ExecRef{Exec: e.Exec}); err != nil &&
				api.ErrorCode(err) != api.NotFound {
				return err
			}
		}
	}
	return nil
}
