package launch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Fds of PID 1, as guestapi has them: libcontainer's ExtraFiles, from 3.
const (
	initProgram = "/proc/self/fd/5"
)

// creation is a create under way. Every step that acquires adds to undo.
type creation struct {
	s      *server
	sb     *sandbox
	params *launchapi.Create
	config *configs.Config
	undo   cleanup.Stack

	container *libcontainer.Container
	birth     birth
	process   *libcontainer.Process
	guest     *os.File // our end of the guest channel
	filter    *os.File // of the commands; nil when it was handed on
	ptmx      *os.File // nil without PtsDir
}

// launch creates sb. files is the request's: the network namespace. The files
// it returns are the caller's.
func (s *server) launch(sb *sandbox, params *launchapi.Create, files []*os.File) (_ *launchapi.CreateResult,
	out []*os.File, err error) {
	c := &creation{s: s, sb: sb, params: params}
	defer c.undo.Run(&err)
	if len(files) != 1 {
		return nil, nil, api.Errorf(api.InvalidArgument, "create sandbox %s: %d fds, want the network namespace", sb.id,
			len(files))
	}
	if c.config, err = decodeConfig(params, files[0]); err != nil {
		return nil, nil, err
	}
	phases, err := c.run()
	if err != nil {
		return nil, nil, failed(sb.id, err)
	}
	if out, err = c.results(); err != nil {
		return nil, nil, failed(sb.id, err)
	}
	sb.execs.dir, sb.guest = params.RunDir, c.guest
	sb.moves = topMounts(c.config)
	sb.undo = c.undo.Release()
	return &launchapi.CreateResult{PID: sb.pid, Phases: phases}, out, nil
}

// run does the steps in order and returns what each took, in milliseconds.
func (c *creation) run() (map[string]float64, error) {
	steps := []struct {
		name string
		do   func() error
	}{
		{"seccomp", c.compileFilter},
		{"overlay", c.mountRoot},
		{"pts", c.mountPts},
		{"libcontainer_create", c.makeContainer},
		{"libcontainer_start", c.startInit},
		{"cgroup_check", c.enterCgroup},
		{"exec", c.execInit},
	}
	phases := make(map[string]float64, len(steps))
	for i, step := range steps {
		start := time.Now()
		err := step.do()
		if err == nil {
			err = faultAt(i)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		phases[step.name] = float64(time.Since(start).Microseconds()) / 1000
	}
	return phases, nil
}

// decodeConfig reads the config and puts the network namespace in, which
// libcontainer's child opens by our pid: it is another process than the one
// that has the fd.
func decodeConfig(params *launchapi.Create, netns *os.File) (*configs.Config, error) {
	var config configs.Config
	dec := json.NewDecoder(bytes.NewReader(params.Config))
	if err := dec.Decode(&config); err != nil {
		return nil, api.Errorf(api.InvalidArgument, "config of the sandbox: %w", err)
	}
	// The chain of trust that PID 1's filter relies on, see DESIGN.md.
	if config.Seccomp != nil {
		return nil, api.Errorf(api.InvalidArgument,
			"config of the sandbox: it has a seccomp section, which hutch-init's filters replace")
	}
	if !config.NoNewPrivileges {
		return nil, api.Errorf(api.InvalidArgument,
			"config of the sandbox: no_new_privs is off, without which hutch-init cannot install its filter")
	}
	if config.Rootfs != params.Overlay.Target {
		return nil, api.Errorf(api.InvalidArgument, "config of the sandbox: root %q is not the overlay's target %q",
			config.Rootfs, params.Overlay.Target)
	}
	// JSON flattens the embedded Resources, and loses them when all are zero, but
	// cgroup managers want them there.
	if config.Cgroups != nil && config.Cgroups.Resources == nil {
		config.Cgroups.Resources = &cgroups.Resources{}
	}
	config.Namespaces.Add(configs.NEWNET, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), netns.Fd()))
	return &config, nil
}

func (c *creation) mountRoot() error {
	if err := mountOverlay(c.params.Overlay); err != nil {
		return err
	}
	c.undo.Add(func() error { return sys.Detach(c.params.Overlay.Target) })
	if c.params.Generic {
		// In an empty image of hutchd's own.
		return unix.Mkdir(filepath.Join(c.params.Overlay.Target, staging), 0o700)
	}
	return nil
}

func (c *creation) mountPts() error {
	if c.params.PtsDir == "" {
		return nil
	}
	ptmx, err := mountPts(c.params.PtsDir)
	if err != nil {
		return err
	}
	c.ptmx = ptmx
	c.undo.Add(func() error { return errors.Join(ptmx.Close(), sys.Detach(c.params.PtsDir)) })
	return nil
}

func (c *creation) makeContainer() error {
	make := libcontainer.Create
	if c.config.Cgroups.Path == "" {
		make = ungrouped
	}
	container, err := make(c.params.RunDir, c.sb.id, c.config)
	if err != nil {
		return err
	}
	c.container = container
	c.undo.Add(container.Destroy)
	if bornInside(c.config.Cgroups) {
		c.container, err = c.bear(container)
	}
	return err
}

// profile names the seccomp profile of commands.
func (c *creation) profile() string {
	if c.params.Seccomp == "" {
		return defaultProfile
	}
	return c.params.Seccomp
}

// compileFilter makes the program for commands. It comes first, because a profile of the
// caller's own may be wrong.
func (c *creation) compileFilter() (err error) {
	if text := c.params.SeccompProfile; text != "" {
		c.filter, err = c.s.payload.custom(text)
	} else {
		c.filter, err = c.s.payload.filter(c.profile())
	}
	if err != nil {
		return err
	}
	c.undo.Add(c.closeFilter)
	return nil
}

func (c *creation) closeFilter() error {
	if c.filter == nil { // handed on
		return nil
	}
	return c.filter.Close()
}

// startInit starts libcontainer's init, which prepares the sandbox and then
// waits for exec.
func (c *creation) startInit() error {
	ours, theirs, err := packet.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	c.guest = ours
	c.undo.Add(ours.Close)
	payload := c.s.payload
	filter, err := payload.filter(payload.config.Init(c.profile()))
	if err != nil {
		return err
	}
	defer filter.Close()
	birth, err := c.birth.send()
	if err != nil {
		return err
	}
	defer c.birth.close()
	defer birth.Close()
	args := []string{initProgram}
	if arg := c.params.InitArg; arg != "" {
		args = append(args, arg)
	}
	c.process = &libcontainer.Process{
		Init: true,
		Args: args,
		// Without HOME libcontainer would look for it in the image's /etc/passwd.
		Env: []string{"HOME=/"},
		Cwd: "/",
		// fd 3, 4 and 5 of PID 1, and birthFD.
		ExtraFiles: []*os.File{theirs, filter, payload.init, birth},
	}
	c.sb.pid, err = c.s.children.start(func() (int, error) {
		if err := c.birth.end(c.container.Start(c.process)); err != nil {
			return 0, err
		}
		return c.process.Pid()
	})
	if err != nil {
		return err
	}
	if c.sb.pidfd, err = sys.OpenPidfd(c.sb.pid); err != nil {
		return errors.Join(err, unix.Kill(c.sb.pid, unix.SIGKILL))
	}
	c.undo.Add(c.sb.pidfd.Close)
	c.undo.Add(c.stopInit)
	return c.birth.check()
}

// stopInit is the undo of startInit until sandbox.kill and the server's watch
// have taken over, and does nothing from then on.
func (c *creation) stopInit() error {
	select {
	case <-c.sb.exited:
		return nil
	default:
	}
	if err := sys.KillPidfd(c.sb.pidfd); err != nil {
		return err
	}
	c.s.children.wait(c.sb.pid, c.sb.pidfd)
	return nil
}

// execInit makes libcontainer's init become hutch-init.
func (c *creation) execInit() error {
	err := c.container.Exec()
	if err == nil {
		return nil
	}
	// PID 1 may have died before it opened its end of the fifo. The thread that
	// libcontainer left opening the other would wait for ever.
	fifo := filepath.Join(c.params.RunDir, c.sb.id, "exec.fifo")
	if fd, ferr := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); ferr == nil {
		_ = unix.Close(fd)
	}
	return err
}

// results collects the fds for hutchd, each of its own or a duplicate's.
func (c *creation) results() (_ []*os.File, err error) {
	out := []*os.File{nil, c.filter, nil}
	c.filter = nil
	defer func() {
		if err != nil {
			packet.CloseAll(out)
		}
	}()
	if out[0], err = duplicate(c.guest); err != nil {
		return nil, err
	}
	if out[2], err = duplicate(c.sb.pidfd); err != nil {
		return nil, err
	}
	if c.ptmx != nil {
		ptmx, err := duplicate(c.ptmx)
		if err != nil {
			return nil, err
		}
		out = append(out, ptmx)
	}
	return out, nil
}

func duplicate(f *os.File) (*os.File, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	dup, derr := -1, error(nil)
	err = rc.Control(func(fd uintptr) { dup, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
	if err := errors.Join(err, derr); err != nil {
		return nil, fmt.Errorf("duplicate fd of %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(dup), f.Name()), nil
}

// failed gives err, which may be libcontainer's, a code that its errno implies.
func failed(id string, err error) error {
	op := "create sandbox " + id
	var known *api.Error
	if errors.As(err, &known) {
		return &api.Error{Code: known.Code, Op: op, Msg: err.Error(), Hint: known.Hint, Err: nil}
	}
	if e := mountFault(err); e != nil {
		return e.WithOp(op)
	}
	code, hint := api.Internal, "this is a fault of hutch or of this host: `hutch doctor` shows what the host lacks"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, hint = api.FailedPrecondition,
			"a folder of the sandbox or of its image is missing: remove the image and pull it again"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM),
		errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.EDQUOT):
		code, hint = api.ResourceExhausted, "free the resource named here, or remove sandboxes"
	case errors.Is(err, fs.ErrPermission):
		code, hint = api.PermissionDenied, "see `hutch doctor` for what this host forbids"
	}
	return api.Errorf(code, "%w", err).WithOp(op).WithHint("%s", hint)
}
