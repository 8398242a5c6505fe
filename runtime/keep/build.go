package keep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/runtime/keep/shelf"
)

// usrDir is, in a layer that SaveBuild has made, what was written to a writable /usr.
const usrDir = "usr"

// Usr are the folders of layers with what templates have written to a writable /usr, top-most first.
func (k *Keep) Usr(layers []string) (list []string) {
	for _, id := range layers {
		at := filepath.Join(k.shelf.LayerDir(id), usrDir)
		if _, err := os.Lstat(at); err == nil {
			list = append(list, at)
		}
	}
	return list
}

// SaveBuild keeps what a sandbox of the image "host" has written, of which no image can be made, under an id of the
// caller's: sandboxes of a template are made over it. DropBuild removes it; what is made of it keeps what it needs.
func (k *Keep) SaveBuild(ctx context.Context, ref, id string) error {
	s, done, err := k.sandboxes.Turn(ctx, ref)
	if err != nil {
		return err
	}
	defer done()
	sn, held, err := k.takeLayer(ctx, s)
	if err != nil {
		return err
	}
	defer shelf.CloseAll(held)
	layer := k.shelf.LayerDir(sn.Layers[0])
	err = os.Rename(filepath.Join(layer, "over", "0"), filepath.Join(layer, usrDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("keep what was built: %w", err), k.Collect())
	}
	sn.ID, sn.User, sn.Template = id, s.User(), true
	if err := k.saveSnapshot(sn, nil); err != nil {
		shelf.CloseAll(held)
		return errors.Join(err, k.Collect())
	}
	return nil
}

// Build is what a sandbox goes on from that is made over what SaveBuild has kept under an id, until done is called.
func (k *Keep) Build(id string) (from Origin, done func(), err error) {
	sn, err := k.readSnapshot(id)
	if err != nil {
		return from, nil, fmt.Errorf("what the steps of a template have made: %w", err)
	}
	held, err := k.shelf.Use(sn.Layers)
	if err != nil {
		return from, nil, fmt.Errorf("what the steps of a template have made: %w", err)
	}
	from = Origin{Root: sn.Root, Layers: sn.Layers, Record: sn.Record, Built: true}
	return from, func() { shelf.CloseAll(held) }, nil
}

// HasBuild says whether SaveBuild has kept something under an id.
func (k *Keep) HasBuild(id string) bool {
	sn, err := k.readSnapshot(id)
	return err == nil && sn.Template
}

// Builds are the ids of all that is kept so.
func (k *Keep) Builds() (list []string, err error) {
	ids, err := k.shelf.Snapshots()
	for _, id := range ids {
		if k.HasBuild(id) {
			list = append(list, id)
		}
	}
	return list, err
}

// DropBuild ends what SaveBuild has begun.
func (k *Keep) DropBuild(id string) error {
	if err := k.shelf.RemoveSnapshot(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was built: %w", err)
	}
	return errors.Join(k.images.Unpin(snapshotPin(id)), k.Collect())
}
