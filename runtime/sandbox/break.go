package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// checkBreak refuses a break that would never be met.
func checkBreak(req *CreateRequest) error {
	b := req.Break
	switch {
	case b == nil:
		return nil
	case !req.Debug:
		return api.Errorf(api.InvalidArgument, "a creation stops only when it is looked at").WithField("break").
			WithHint("set debug, too")
	case !slices.Contains(api.DebugPhases, b.Phase):
		return api.Errorf(api.InvalidArgument, "%q is no phase of a creation", b.Phase).WithField("break.phase").
			WithHint("the phases are %s", strings.Join(api.DebugPhases, ", "))
	}
	return nil
}

// breakAt stops behind the step that the request names, until the caller lets go of its pipe.
// All that is half-built stays as it is meanwhile, and goes when ctx ends.
func (f *creation) breakAt(ctx context.Context, step string) error {
	b := f.req.Break
	if b == nil || b.Phase != step {
		return nil
	}
	given, err := f.req.FDs.Take(b.FD)
	if err != nil {
		return err
	}
	defer given.Close()
	pipe, err := pollable(given)
	if err != nil {
		return err
	}
	defer pipe.Close()
	defer context.AfterFunc(ctx, func() { _ = pipe.SetReadDeadline(time.Unix(1, 0)) })()
	f.req.Progress(api.Progress{Kind: api.ProgressBreak, Phase: step, Break: &api.BreakPoint{
		// The mounts of the state are in hutchd's mount namespace alone.
		Sandbox: f.s.id, Folder: fmt.Sprintf("/proc/%d/root%s", os.Getpid(), f.s.dir), PID: f.s.record.PID,
		Cgroup: f.s.cgroup,
	}})
	_, err = pipe.Read(make([]byte, 1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("wait behind %s: %w", step, err)
	}
	return nil
}

// pollable is a second fd of a pipe or socket, on which a read can be called off.
func pollable(f *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFIFO && t != unix.S_IFSOCK {
		return nil, api.Errorf(api.InvalidArgument, "the fd is neither a pipe nor a socket").WithField("break.fd").
			WithHint("give the end of a pipe that can be read")
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		if err = unix.SetNonblock(fd, true); err == nil { // before NewFile, which looks
			return os.NewFile(uintptr(fd), "break"), nil
		}
		_ = unix.Close(fd)
	}
	return nil, fmt.Errorf("the fd of the break: %w", err)
}
