package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// adoptTimeout bounds what a new hutchd waits for one PID 1.
const adoptTimeout = 5 * time.Second

// Adopt takes over the sandboxes of a hutchd that was killed, before any call comes in.
// Nothing on disk is believed that hutch-launch, and so the kernel, contradicts: it
// knows which sandboxes there are. What is wrong with one of them ends only that one.
func (m *Manager) Adopt(ctx context.Context, held []launchapi.HeldSandbox) error {
	known := map[string]bool{}
	var wg sync.WaitGroup
	for i := range held {
		known[held[i].ID] = true
		wg.Go(func() {
			a := &adoption{m: m, held: &held[i], dir: filepath.Join(m.cfg.Dir, held[i].ID)}
			if err := a.run(ctx); err != nil {
				level := slog.LevelError
				// the hutchd before was making it, or removing it
				if errors.Is(err, errNoRecord) || errors.Is(err, errUnready) {
					level = slog.LevelInfo
				}
				m.cfg.Logger.Log(ctx, level, "take over a sandbox; it is removed", "sandbox", held[i].ID, "err", err)
				m.discard(ctx, held[i].ID)
			}
		})
	}
	wg.Wait()
	if err := m.sweepFolders(ctx, known); err != nil {
		return err
	}
	if err := (keepHost{m}).adopt(); err != nil {
		return err
	}
	if err := m.Keep.Collect(); err != nil { // of what a daemon was killed over
		m.cfg.Logger.Warn("remove layers that nothing needs", "err", err)
	}
	poolsHost{m}.adopt()
	return nil
}

// discard removes a sandbox that cannot be taken over.
func (m *Manager) discard(ctx context.Context, id string) {
	dir := filepath.Join(m.cfg.Dir, id)
	err := m.takeDown(ctx, id)
	if shelf.IsMarked(dir) {
		err = errors.Join(err, m.Keep.Shelve(dir, id))
	} else {
		err = errors.Join(err, removeAll(dir))
	}
	if err != nil {
		m.cfg.Logger.Error("remove a sandbox that cannot be taken over", "sandbox", id, "err", err)
	}
}

// takeDown ends and unmounts what there is of a sandbox, by what its folder says.
func (m *Manager) takeDown(ctx context.Context, id string) error {
	dir := filepath.Join(m.cfg.Dir, id)
	return errors.Join(m.cfg.Launcher.Destroy(ctx, id), unmountOld(m.cfg.Kernel, dir, about.Folder),
		m.Workspaces.Unmount(dir, maxMounts), unmountOld(m.cfg.Kernel, dir, "fs"))
}

// maxMounts is more than a spec may have.
const maxMounts = 128

// sweepFolders removes the folders of sandboxes that were being made or removed.
func (m *Manager) sweepFolders(ctx context.Context, known map[string]bool) error {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return fmt.Errorf("look for folders of sandboxes: %w", err)
	}
	for _, e := range entries {
		if !known[e.Name()] && filepath.Join(m.cfg.Dir, e.Name()) != m.cfg.Shelf.Dir() {
			m.discard(ctx, e.Name())
		}
	}
	return nil
}

// unmountOld unmounts what a hutchd before has mounted below a sandbox's folder, unless it was killed before that.
func unmountOld(k Kernel, dir, name string) error {
	if err := unmount(k, filepath.Join(dir, name)); !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// errNoRecord is a sandbox whose record is not written yet, or not there any more.
var errNoRecord = errors.New("it has no record: it was being made, or removed")

// errUnready is a sandbox whose build, or creation, ended with the hutchd before.
var errUnready = errors.New("it was being built, or what its template starts was not ready")
