package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/shelf"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// A snapshot is a copy of what a sandbox has written, as a layer of the shelf, and what the sandbox is. Layers are
// never written to again, so that they can be below any number of overlays. See DESIGN.md, "Snapshots and forks".

// snapshot is what is on record of one.
type snapshot struct {
	api.Snapshot
	User    uint32                  `json:"user"`
	Root    *Root                   `json:"root"`
	Spec    api.Spec                `json:"spec"`
	Record  api.Sandbox             `json:"record"`
	Layers  []string                `json:"layers"` // the first is its own
	Base    diskuse.Usage           `json:"base"`   // that all of them take
	Folders map[string]workspace.ID `json:"folders,omitempty"`
	// Template says that it is what KeepBuild has kept, and nobody's snapshot.
	Template bool `json:"template,omitempty"`
}

const snapshotNote = "files only: processes, shells and the contexts of code.run are not in it"

func snapshotPin(id string) string { return "snap-" + id }

// notCovered are where a sandbox has what is not its own.
func notCovered(sp *api.Spec) (targets []string) {
	for _, mt := range workspace.Of(sp) {
		if mt.Mode == api.ModeRW || mt.Mode == api.ModeTmpfs || mt.Volume != "" && mt.Mode == api.ModeRO {
			targets = append(targets, mt.Target)
		}
	}
	return targets
}

// CreateSnapshot takes one. The sandbox stands still for as long as the copy takes.
func (m *Manager) CreateSnapshot(ctx context.Context, by Caller, p api.SnapshotCreateParams) (api.Snapshot, error) {
	if err := p.Validate(); err != nil {
		return api.Snapshot{}, err
	}
	known, err := m.roomForSnapshot(by.User, p.Name, nil)
	if err != nil {
		return api.Snapshot{}, err
	}
	s, done, err := m.takeTurn(ctx, p.Sandbox)
	if err != nil {
		return api.Snapshot{}, err
	}
	defer done()
	sn, held, err := m.takeLayer(ctx, s)
	if err != nil {
		return api.Snapshot{}, err
	}
	defer shelf.CloseAll(held)
	sn.ID, sn.User, sn.Name, sn.Labels = newID("sn_"), by.User, p.Name, p.Labels
	if err := m.saveSnapshot(sn, known); err != nil {
		shelf.CloseAll(held)
		return api.Snapshot{}, errors.Join(err, m.collectLayers())
	}
	m.audit(ctx, s, "", api.AuditSnapshot, sn.Snapshot, 0)
	return sn.Snapshot, nil
}

// roomForSnapshot says whether a user may have one more, of that name. It returns all that there are, of which known
// were read before.
func (m *Manager) roomForSnapshot(user uint32, name string, known catalogue) (catalogue, error) {
	now, _, err := m.catalogue(known)
	if err != nil {
		return nil, err
	}
	all := now.of(user)
	if len(all) >= api.MaxSnapshots {
		return nil, api.Errorf(api.ResourceExhausted,
			"there are %d snapshots, which is the most that one user may have",
			len(all)).WithHint("remove some: hutch snapshot rm SNAPSHOT")
	}
	for _, sn := range all {
		if name != "" && sn.Name == name {
			return nil, api.Errorf(api.AlreadyExists, "the name %q belongs to snapshot %s", name, sn.ID).
				WithField("name").WithHint("choose another name, or remove it: hutch snapshot rm %s", name)
		}
	}
	return now, nil
}

// saveSnapshot puts a snapshot on record, with a pin of its image. Of the others those that are not known are read with
// the shelf locked.
func (m *Manager) saveSnapshot(sn *snapshot, known catalogue) error {
	all, err := m.cfg.Shelf.Lock()
	if err != nil {
		return err
	}
	defer all.Close()
	if sn.Template {
		// It counts for nobody.
	} else if _, err := m.roomForSnapshot(sn.User, sn.Name, known); err != nil { // others may have been faster
		return err
	}
	if sn.Root.Ref != hostImage {
		if err := m.cfg.Images.Pin(snapshotPin(sn.ID), sn.Root.Lower); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(sn, "", "  ")
	if err == nil {
		err = m.cfg.Shelf.WriteSnapshot(sn.ID, data)
	}
	if err != nil {
		return errors.Join(diskError("note a snapshot", err), m.cfg.Images.Unpin(snapshotPin(sn.ID)))
	}
	return nil
}

// takeLayer copies what a sandbox has written, of which the caller has the turn, to a new layer, which held keeps.
func (m *Manager) takeLayer(ctx context.Context, s *Sandbox) (_ *snapshot, held []*os.File, err error) {
	if len(s.layers) >= api.MaxForkDepth {
		return nil, nil, api.Errorf(api.FailedPrecondition,
			"sandbox %s is a fork of a fork, %d deep, and overlayfs takes no more", s.id, len(s.layers)).
			WithHint("make an image of it, and a sandbox of that: hutch commit %s IMAGE", s.id)
	}
	n, err := m.cfg.Shelf.NewLayer()
	if err != nil {
		return nil, nil, diskError("make a layer", err)
	}
	var own diskuse.Usage
	var folders map[string]workspace.ID
	err = m.still(ctx, s, "snapshot", func() (err error) {
		if folders, err = s.foldersNow(); err == nil {
			own, err = copyWritten(ctx, filepath.Join(s.dir, "fs"), n.Dir)
		}
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, n.Discard())
	}
	all, err := m.cfg.Shelf.Lock()
	if err != nil {
		return nil, nil, errors.Join(err, n.Discard())
	}
	defer all.Close()
	id := newID("ly_")
	if err := n.Add(id); err != nil {
		return nil, nil, errors.Join(err, n.Discard())
	}
	if held, err = m.cfg.Shelf.Use([]string{id}); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	sp, record := s.spec, s.record
	s.mu.Unlock()
	sn := &snapshot{
		Root: s.root, Spec: sp, Record: record, Layers: append([]string{id}, s.layers...), Base: s.base.Add(own),
		Folders: folders,
	}
	sn.Snapshot = api.Snapshot{
		Sandbox: s.id, Image: record.Image, Created: time.Now().UTC().Truncate(time.Millisecond), Bytes: own.Bytes,
		Inodes:     own.Inodes,
		TotalBytes: sn.Base.Bytes, NotCovered: notCovered(&sp), Note: snapshotNote,
	}
	return sn, held, nil
}

// foldersNow says which folders of the host's a sandbox has.
func (s *Sandbox) foldersNow() (map[string]workspace.ID, error) {
	if s.stopped {
		return s.folders.IDs, nil
	}
	return workspace.IDsNow(&s.spec, s.dir)
}

// copyWritten copies the upper folders below fsDir to a layer: root/, and over/<i>/ of the others.
func copyWritten(ctx context.Context, fsDir, layer string) (sum diskuse.Usage, err error) {
	entries, err := os.ReadDir(fsDir)
	if err != nil {
		return sum, err
	}
	if err := os.Mkdir(filepath.Join(layer, "over"), 0o700); err != nil {
		return sum, diskError("copy the sandbox's files", err)
	}
	for _, e := range entries {
		from, to := filepath.Join(fsDir, e.Name(), "upper"), filepath.Join(layer, "over", e.Name())
		switch {
		case e.Name() == "upper":
			from, to = filepath.Join(fsDir, "upper"), filepath.Join(layer, "root")
		case !isIndex(e.Name()):
			continue
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return sum, diskError("copy the sandbox's files", err)
		}
		used, err := copyInto(ctx, from, to)
		if err != nil {
			return sum, err
		}
		sum = sum.Add(used)
	}
	return sum, nil
}

// isIndex says that name is the folder of an overlay other than the root.
func isIndex(name string) bool {
	_, err := strconv.Atoi(name)
	return err == nil
}

// catalogue is all snapshots, of all users, by id. What is on record of one never changes, so that who is to lock the
// shelf reads them before.
type catalogue map[string]*snapshot

// catalogue reads what is on record but for what is known. broken is why one of them cannot be read.
func (m *Manager) catalogue(known catalogue) (now catalogue, broken, err error) {
	ids, err := m.cfg.Shelf.Snapshots()
	if err != nil {
		return nil, nil, fmt.Errorf("look for snapshots: %w", err)
	}
	now = make(catalogue, len(ids))
	for _, id := range ids {
		sn := known[id]
		if sn == nil {
			if sn, err = m.readSnapshot(id); errors.Is(err, fs.ErrNotExist) {
				continue // removed just now
			}
			if err != nil {
				broken = err
				continue
			}
		}
		now[id] = sn
	}
	return now, broken, nil
}

// of are a user's, oldest first.
func (c catalogue) of(user uint32) (list []*snapshot) {
	for _, sn := range c {
		if sn.User == user && !sn.Template {
			list = append(list, sn)
		}
	}
	slices.SortFunc(list,
		func(a, b *snapshot) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return list
}

// snapshots are a user's, oldest first.
func (m *Manager) snapshots(user uint32) ([]*snapshot, error) {
	all, _, err := m.catalogue(nil)
	return all.of(user), err
}

func (m *Manager) readSnapshot(id string) (*snapshot, error) {
	data, err := m.cfg.Shelf.ReadSnapshot(id)
	if err != nil {
		return nil, err
	}
	var sn snapshot
	if err := json.Unmarshal(data, &sn); err != nil || sn.Root == nil || sn.ID != id || len(sn.Layers) == 0 {
		return nil, fmt.Errorf("snapshot %s: what is on record is none: %w", id, cmp.Or(err, errNotRecord))
	}
	return &sn, nil
}

// snapshotOf finds a user's snapshot by id or name.
func (m *Manager) snapshotOf(user uint32, ref string) (*snapshot, error) {
	sn, err := m.readSnapshot(ref)
	if err == nil && sn.User == user && !sn.Template {
		return sn, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all, err := m.snapshots(user)
	if err != nil {
		return nil, err
	}
	for _, sn := range all {
		if ref != "" && sn.Name == ref {
			return sn, nil
		}
	}
	return nil, api.Errorf(api.NotFound, "no snapshot %q", ref).WithField("snapshot").
		WithHint("hutch snapshot ls lists the snapshots")
}

// Snapshots lists a user's.
func (m *Manager) Snapshots(_ context.Context, by Caller, p api.SnapshotListParams) (api.Snapshots, error) {
	all, err := m.snapshots(by.User)
	if err != nil {
		return api.Snapshots{}, err
	}
	list := []api.Snapshot{}
	for _, sn := range all {
		if p.Sandbox == "" || sn.Sandbox == p.Sandbox {
			list = append(list, sn.Snapshot)
		}
	}
	return api.Snapshots{Snapshots: list}, nil
}

// RemoveSnapshot removes one. What was forked from it keeps what it needs.
func (m *Manager) RemoveSnapshot(_ context.Context, by Caller, p api.SnapshotParams) (none api.Empty, err error) {
	sn, err := m.snapshotOf(by.User, p.Snapshot)
	if err != nil {
		return none, err
	}
	if err := m.cfg.Shelf.RemoveSnapshot(sn.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("remove snapshot %s: %w", sn.ID, err)
	}
	return none, errors.Join(m.cfg.Images.Unpin(snapshotPin(sn.ID)), m.collectLayers())
}

// collectLayers removes the layers of the shelf that nothing needs any more: no snapshot, no stopped sandbox, and none
// that runs, whichever daemon's, whose lock on them is gone while its hutchd is replaced. They are gone for everybody
// when it returns; what they hold goes behind its back.
func (m *Manager) collectLayers() error {
	known, _, err := m.catalogue(nil)
	if err != nil {
		return err
	}
	all, err := m.cfg.Shelf.Lock()
	if err != nil {
		return err
	}
	wanted, err := m.wantedLayers(known)
	var finish func() error
	if err == nil {
		finish, err = m.cfg.Shelf.Collect(wanted)
	}
	if err = errors.Join(err, all.Close()); err != nil {
		return fmt.Errorf("collect layers of snapshots: %w", err)
	}
	if finish == nil || m.removeBehind(finish) {
		return nil
	}
	return finish()
}

// removeBehind has something removed that nobody sees any more. It says no when the daemon ends, or much is to be
// removed already: then the caller does it, and waits.
func (m *Manager) removeBehind(remove func() error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.backlog.Load() >= maxBehind {
		return false
	}
	m.backlog.Add(1)
	m.removals.Go(func() {
		defer m.backlog.Add(-1)
		m.removing <- struct{}{}
		defer func() { <-m.removing }()
		if err := remove(); err != nil {
			m.cfg.Logger.Error("remove layers of snapshots", "err", err)
		}
	})
	return true
}

// collectOf is collectLayers behind the end of a sandbox with these.
func (m *Manager) collectOf(layers []string) error {
	if len(layers) == 0 {
		return nil
	}
	return m.collectLayers()
}

// wantedLayers are those that something needs; known are snapshots that were read before.
func (m *Manager) wantedLayers(known catalogue) (map[string]bool, error) {
	now, broken, err := m.catalogue(known)
	if err = cmp.Or(err, broken); err != nil { // better too much is kept
		return nil, err
	}
	wanted := map[string]bool{}
	for _, sn := range now {
		for _, l := range sn.Layers {
			wanted[l] = true
		}
	}
	records, err := filepath.Glob(filepath.Join(m.cfg.Shelf.Box("*"), "record.json"))
	if err != nil {
		return nil, err
	}
	running, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(m.cfg.Dir)), "*", "sandboxes", "*",
		"record.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(records, running...) {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // removed, started or stopped meanwhile: whoever does that has a lock on the layers
		}
		if from, err := readSaved(data); err == nil {
			for _, l := range from.Layers {
				wanted[l] = true
			}
		}
	}
	return wanted, nil
}
