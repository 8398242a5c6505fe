package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/cgroups"
	"github.com/hutch-sh/hutch/runtime/launch/bootstrap"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// A shared daemon's sandboxes outlive their monitor: hutch-launch keeps them and listens
// on a socket in the state root, beside which the monitor has written what its successor
// cannot find out. Both files belong to the caller. Started by root, hutchd can neither
// write nor reach them; an ordinary user's hutchd has the user's own rights.

// legacy is what one monitor leaves to the next.
type legacy struct {
	IDs  bootstrap.IDMap `json:"ids"`
	Tree cgroups.Tree    `json:"tree"`
	EBPF monitorapi.EBPF `json:"ebpf"`
}

func (m *monitor) takeoverPath(suffix string) string {
	return filepath.Join(m.opts.Paths.State, "launch-"+m.opts.Paths.SocketID()+suffix)
}

// takeOver finds the hutch-launch that a dead monitor of the same socket has left. It
// reports false when there is none.
func (m *monitor) takeOver(ctx context.Context) (bool, error) {
	if m.opts.Private != nil {
		return false, nil
	}
	var left legacy
	data, err := os.ReadFile(m.takeoverPath(".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &left)
	}
	if err != nil {
		return false, fmt.Errorf("take over from the monitor before: %w", err)
	}
	if m.launcher, err = bootstrap.Attach(ctx, m.takeoverPath(".sock"), left.IDs.Method); m.launcher == nil ||
		err != nil {
		return false, err
	}
	m.ids, m.ebpf = left.IDs, left.EBPF
	if m.tree, err = cgroups.Reopen(left.Tree); err != nil {
		return false, errors.Join(fmt.Errorf("take over from the monitor before: %w", err), m.launcher.Leave())
	}
	m.log.Info("took over the sandboxes of a daemon that was killed", "hutch_launch", m.launcher.PID)
	return true, nil
}

// bindTakeover makes the socket for hutch-launch; nil for a private daemon, which nothing
// outlives.
func (m *monitor) bindTakeover() (*os.File, error) {
	if m.opts.Private != nil {
		return nil, nil
	}
	// What an older one wrote is not about the hutch-launch that will listen here.
	if err := os.Remove(m.takeoverPath(".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the note of a monitor before: %w", err)
	}
	return bootstrap.Bind(m.takeoverPath(".sock"))
}

// leaveNote writes what the next monitor needs, before there is anything to take over.
func (m *monitor) leaveNote() error {
	if m.opts.Private != nil {
		return nil
	}
	data, err := json.Marshal(legacy{IDs: m.ids, Tree: *m.tree, EBPF: m.ebpf})
	if err != nil {
		return fmt.Errorf("write down the daemon's cgroups: %w", err)
	}
	tmp := m.takeoverPath(".json.tmp")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("write down the daemon's cgroups: %w", err)
	}
	if err := os.Rename(tmp, m.takeoverPath(".json")); err != nil {
		return fmt.Errorf("write down the daemon's cgroups: %w", err)
	}
	return nil
}

// endTakeover removes both files: nothing is left to take over.
func (m *monitor) endTakeover() error {
	if m.opts.Private != nil {
		return nil
	}
	var errs []error
	for _, suffix := range []string{".sock", ".json"} {
		if err := os.Remove(m.takeoverPath(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
