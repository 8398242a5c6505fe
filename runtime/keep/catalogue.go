package keep

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// snapshotPin is the name of the pin of the image of a snapshot.
func snapshotPin(id string) string { return "snap-" + id }

// snapshot is what is on record of one.
type snapshot struct {
	api.Snapshot
	User    uint32                  `json:"user"`
	Root    *spec.Root              `json:"root"`
	Spec    api.Spec                `json:"spec"`
	Record  api.Sandbox             `json:"record"`
	Layers  []string                `json:"layers"` // the first is its own
	Base    diskuse.Usage           `json:"base"`   // that all of them take
	Folders map[string]workspace.ID `json:"folders,omitempty"`
	// Template says that it is what SaveBuild has kept, and nobody's snapshot.
	Template bool `json:"template,omitempty"`
}

// roomForSnapshot says whether a user may have one more, of that name. It returns all that there are, of which known
// were read before.
func (k *Keep) roomForSnapshot(user uint32, name string, known catalogue) (catalogue, error) {
	now, _, err := k.catalogue(known)
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
func (k *Keep) saveSnapshot(sn *snapshot, known catalogue) error {
	all, err := k.shelf.Lock()
	if err != nil {
		return err
	}
	defer all.Close()
	if sn.Template {
		// It counts for nobody.
	} else if _, err := k.roomForSnapshot(sn.User, sn.Name, known); err != nil { // others may have been faster
		return err
	}
	if sn.Root.Ref != spec.HostImage {
		if err := k.images.Pin(snapshotPin(sn.ID), sn.Root.Lower); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(sn, "", "  ")
	if err == nil {
		err = k.shelf.WriteSnapshot(sn.ID, data)
	}
	if err != nil {
		return errors.Join(k.cfg.DiskError("note a snapshot", err), k.images.Unpin(snapshotPin(sn.ID)))
	}
	return nil
}

// catalogue is all snapshots, of all users, by id. What is on record of one never changes, so that who is to lock the
// shelf reads them before.
type catalogue map[string]*snapshot

// catalogue reads what is on record but for what is known. broken is why one of them cannot be read.
func (k *Keep) catalogue(known catalogue) (now catalogue, broken, err error) {
	ids, err := k.shelf.Snapshots()
	if err != nil {
		return nil, nil, fmt.Errorf("look for snapshots: %w", err)
	}
	now = make(catalogue, len(ids))
	for _, id := range ids {
		sn := known[id]
		if sn == nil {
			if sn, err = k.readSnapshot(id); errors.Is(err, fs.ErrNotExist) {
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
func (k *Keep) snapshots(user uint32) ([]*snapshot, error) {
	all, _, err := k.catalogue(nil)
	return all.of(user), err
}

// errNotRecord is a record that can be read, and says too little, or speaks of another.
var errNotRecord = errors.New("it lacks what it must say, or is another's")

func (k *Keep) readSnapshot(id string) (*snapshot, error) {
	data, err := k.shelf.ReadSnapshot(id)
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
func (k *Keep) snapshotOf(user uint32, ref string) (*snapshot, error) {
	sn, err := k.readSnapshot(ref)
	if err == nil && sn.User == user && !sn.Template {
		return sn, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all, err := k.snapshots(user)
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
