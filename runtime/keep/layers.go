package keep

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// takeLayer copies what a sandbox has written, of which the caller has the turn, to a new layer, which held keeps.
func (k *Keep) takeLayer(ctx context.Context, s Sandbox) (_ *snapshot, held []*os.File, err error) {
	below := s.Files()
	if len(below.Layers) >= api.MaxForkDepth {
		return nil, nil, api.Errorf(api.FailedPrecondition,
			"sandbox %s is a fork of a fork, %d deep, and overlayfs takes no more", s.ID(), len(below.Layers)).
			WithHint("make an image of it, and a sandbox of that: hutch commit %s IMAGE", s.ID())
	}
	n, err := k.shelf.NewLayer()
	if err != nil {
		return nil, nil, k.cfg.DiskError("make a layer", err)
	}
	var own diskuse.Usage
	var folders map[string]workspace.ID
	err = s.Still(ctx, "snapshot", func() (err error) {
		if folders, err = s.Folders(); err == nil {
			own, err = k.copyWritten(ctx, filepath.Join(s.Dir(), "fs"), n.Dir)
		}
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, n.Discard())
	}
	sp, record := s.Now()
	all, err := k.shelf.Lock()
	if err != nil {
		return nil, nil, errors.Join(err, n.Discard())
	}
	defer all.Close()
	id := newID("ly_")
	if err := n.Add(id); err != nil {
		return nil, nil, errors.Join(err, n.Discard())
	}
	if held, err = k.shelf.Use([]string{id}); err != nil {
		return nil, nil, err
	}
	sn := &snapshot{
		Root: s.Root(), Spec: sp, Record: record, Layers: append([]string{id}, below.Layers...),
		Base: below.Base.Add(own), Folders: folders,
	}
	sn.Snapshot = api.Snapshot{
		Sandbox: s.ID(), Image: record.Image, Created: time.Now().UTC().Truncate(time.Millisecond), Bytes: own.Bytes,
		Inodes:     own.Inodes,
		TotalBytes: sn.Base.Bytes, NotCovered: notCovered(&sp), Note: snapshotNote,
	}
	return sn, held, nil
}

// copyWritten copies the upper folders below fsDir to a layer: root/, and over/<i>/ of the others.
func (k *Keep) copyWritten(ctx context.Context, fsDir, layer string) (sum diskuse.Usage, err error) {
	trees, err := UpperFolders(fsDir)
	if err != nil {
		return sum, err
	}
	if err := os.Mkdir(filepath.Join(layer, "over"), 0o700); err != nil {
		return sum, k.cfg.DiskError("copy the sandbox's files", err)
	}
	for name, from := range trees {
		to := filepath.Join(layer, "over", name)
		if name == upper {
			to = filepath.Join(layer, "root")
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return sum, k.cfg.DiskError("copy the sandbox's files", err)
		}
		used, err := k.Copy(ctx, from, to)
		if err != nil {
			return sum, err
		}
		sum = sum.Add(used)
	}
	return sum, nil
}

// Collect removes the layers of the shelf that nothing needs any more: no snapshot, no stopped sandbox, and none
// that runs, whichever daemon's, whose lock on them is gone while its hutchd is replaced. They are gone for everybody
// when it returns; what they hold goes behind its back.
func (k *Keep) Collect() error {
	known, _, err := k.catalogue(nil)
	if err != nil {
		return err
	}
	all, err := k.shelf.Lock()
	if err != nil {
		return err
	}
	wanted, err := k.wantedLayers(known)
	var finish func() error
	if err == nil {
		finish, err = k.shelf.Collect(wanted)
	}
	if err = errors.Join(err, all.Close()); err != nil {
		return fmt.Errorf("collect layers of snapshots: %w", err)
	}
	if finish == nil || k.sandboxes.Behind(finish) {
		return nil
	}
	return finish()
}

// CollectOf is Collect after the end of a sandbox with these layers.
func (k *Keep) CollectOf(layers []string) error {
	if len(layers) == 0 {
		return nil
	}
	return k.Collect()
}

// wantedLayers are those that something needs; known are snapshots that were read before.
func (k *Keep) wantedLayers(known catalogue) (map[string]bool, error) {
	now, broken, err := k.catalogue(known)
	if err = cmp.Or(err, broken); err != nil { // better too much is kept
		return nil, err
	}
	wanted := map[string]bool{}
	for _, sn := range now {
		for _, l := range sn.Layers {
			wanted[l] = true
		}
	}
	records, err := filepath.Glob(filepath.Join(k.shelf.Box("*"), recordFile))
	if err != nil {
		return nil, err
	}
	running, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(k.cfg.Dir)), "*", "sandboxes", "*",
		recordFile))
	if err != nil {
		return nil, err
	}
	for _, path := range append(records, running...) {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // removed, started or stopped meanwhile: whoever does that has a lock on the layers
		}
		var from struct {
			Layers []string `json:"layers"`
		}
		if err := json.Unmarshal(data, &from); err == nil {
			for _, l := range from.Layers {
				wanted[l] = true
			}
		}
	}
	return wanted, nil
}

// Use keeps layers from being collected until release is called, which collects what nothing needs then.
func (k *Keep) Use(layers []string) (release func() error, err error) {
	held, err := k.shelf.Use(layers)
	if err != nil {
		return nil, err
	}
	return func() error { shelf.CloseAll(held); return k.CollectOf(layers) }, nil
}

// Roots are the folders of layers, of the root of a sandbox.
func (k *Keep) Roots(layers []string) (list []string) {
	for _, id := range layers {
		list = append(list, filepath.Join(k.shelf.LayerDir(id), "root"))
	}
	return list
}

// Again is the image of a root that was resolved before, whose layers are held until Release. That of the machine is
// made anew, since the machine may have changed.
func (k *Keep) Again(ctx context.Context, root *spec.Root, progress func(api.Progress)) (*spec.Root, error) {
	if root.Ref == spec.HostImage {
		return k.images.Resolve(ctx, spec.HostImage, "", "", progress)
	}
	held := *root
	var err error
	if held.Release, err = k.images.Hold(root.Lower); err != nil {
		return nil, err
	}
	return &held, nil
}
