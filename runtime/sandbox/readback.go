package sandbox

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/isolation"
)

func (f *creation) readBack(context.Context) error {
	iso, err := isolation.Of(f.proc(), &f.m.cfg.Host.Host, f.s.record.Seccomp, f.netns, f.s.net)
	if err != nil {
		return err
	}
	return f.isolated(iso, isolation.LabelsOf(f.proc()))
}

// isolated adds what was asked for to what was read of PID 1, and notes it.
func (f *creation) isolated(iso api.Isolation, label isolation.Labels) error {
	f.m.cfg.Host.AddLandlock(&iso, f.req.Spec.Landlock)
	if w, ok := f.m.cfg.Host.guards().Wall(&f.req.Spec, f.s.folders.Guards); ok {
		iso.Walls = append(iso.Walls, w)
	}
	if err := f.m.cfg.Host.AddIDs(&iso, f.req.Spec.IDs, f.s.guest.EmulatesIDs()); err != nil {
		return err
	}
	if err := f.m.cfg.Host.AddLabel(&iso, label, f.req.Spec.AppArmor); err != nil {
		return err
	}
	if err := f.addAsked(&iso); err != nil {
		return err
	}
	enforcement := f.m.cfg.Host.Enforcement(f.s.record.Network.NetPolicy, f.s.net)
	f.s.note(func(r *api.Sandbox) { r.Isolation, r.Network.Enforcement = iso, enforcement })
	return nil
}

// addAsked adds the walls that are there for who asks for them.
func (f *creation) addAsked(iso *api.Isolation) error {
	if sp := &f.req.Spec; len(sp.CapDrop) > 0 {
		if !f.s.guest.DropsCaps() {
			return api.Errorf(api.Unavailable,
				"cap_drop: the launcher is of an earlier build of hutch, whose sandboxes drop none").
				WithField("cap_drop").
				WithHint("remove the sandboxes that it has (hutch ps -a), so that it ends with the daemon: hutch rpc system.shutdown")
		}
		iso.Walls = append(iso.Walls, api.Wall{Name: "dropped capabilities", Status: "yes",
			Detail: "commands have none of " + strings.Join(sp.CapDrop, ", ")})
	}
	if !f.req.Spec.ReadOnly {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(f.proc()+"/root", &st); err != nil {
		return fmt.Errorf("read back the root: %w", err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return api.Errorf(api.Internal, "the sandbox can write to its root, which was to be read-only").
			WithHint("this is a bug in hutch; the sandbox was not started")
	}
	iso.Walls = append(iso.Walls, api.Wall{Name: "read-only root", Status: "yes", Detail: "only mounts can be written"})
	return nil
}

// proc is what the kernel tells of the sandbox's PID 1.
func (f *creation) proc() string { return f.m.cfg.Kernel.Proc(f.s.record.PID) }
