package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// projects are limits of disk space that the monitor holds.
type projects struct{ d *daemon }

// projects is nil where the monitor cannot set project quotas, or nothing is on the disk.
func (d *daemon) projects() sandbox.Projects {
	if !d.cfg.Projects || d.home.inMemory {
		return nil
	}
	return projects{d}
}

func (p projects) Limit(ctx context.Context, id string, bytes, inodes int64) error {
	a, err := p.d.question(ctx, monitorapi.Message{Project: &monitorapi.Project{
		Home: filepath.Base(p.d.home.dir), Sandbox: id, Bytes: bytes, Inodes: inodes,
	}})
	switch {
	case err != nil:
		return err
	case a.Projected == nil || a.Projected.Sandbox != id:
		return errors.New("the monitor answered something else than about a project")
	case a.Projected.Error != "":
		return fmt.Errorf("limit the project of sandbox %s: %s", id, a.Projected.Error)
	}
	return nil
}
