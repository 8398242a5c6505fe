package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hutch-sh/hutch/images/repair"
	"github.com/hutch-sh/hutch/images/unpack"
)

// fixLayer makes the repairing layer of an image, if it needs one, and leases
// it. It is nil when none is needed.
func (s *Store) fixLayer(ctx context.Context, diffIDs []string, layers []*layer) (*layer, error) {
	stack := repair.Stack{}
	defer stack.Close()
	for i, d := range diffIDs {
		if err := stack.Push(s.path(path.Join(s.layerUnit(d), unitRoot)), layers[i].meta.stats()); err != nil {
			return nil, err
		}
	}
	fixes, err := stack.Fixes(ctx)
	if len(fixes) == 0 || err != nil {
		return nil, err
	}
	name := s.fixUnit(diffIDs)
	unlock, err := s.lockUnit(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if l, err := s.leaseLayer(name); l != nil || err != nil {
		return l, err
	}
	t, err := s.newTmp()
	if err != nil {
		return nil, err
	}
	defer t.discard()
	work := filepath.Join(t.path, "fix")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	if err := stack.Write(ctx, filepath.Join(work, unitRoot), fixes); err != nil {
		return nil, err
	}
	if err := writeManifest(ctx, work); err != nil {
		return nil, err
	}
	return s.commitLayer(work, name, unpack.Stats{Entries: int64(len(fixes))})
}

// fixUnit names the repairing layer by the layers it lies on.
func (s *folder) fixUnit(diffIDs []string) string {
	sum := sha256.Sum256([]byte(strings.Join(diffIDs, " ")))
	return s.layerUnit("fix:" + hex.EncodeToString(sum[:]))
}
