package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
)

// readRecord reads the record of an image by any name that Get takes.
func (s *Store) readRecord(ref string) (record, error) {
	img, err := s.Get(ref)
	if err != nil {
		return record{}, err
	}
	data, err := os.ReadFile(s.path(refFile(img.Ref)))
	if err != nil {
		return record{}, err
	}
	return decodeStored(data)
}

// Tag gives an image one more name, in place of what had that name before.
func (s *Store) Tag(ref, name string) (*Image, error) {
	op := "tag " + ref
	if ref == HostRef || name == HostRef {
		return nil, api.Errorf(api.InvalidArgument, "the image %q is built in and has one name", HostRef).WithOp(op).
			WithHint("Choose another name, for another image.").WithField("target")
	}
	named, err := s.parseName(name)
	if err != nil {
		return nil, err
	}
	img, err := s.Get(ref)
	if err != nil {
		return nil, err
	}
	// Leased until the name is written, as in a pull: the other one may be removed now.
	lease, err := s.Lease(img.Layers)
	if err != nil {
		return nil, err
	}
	defer lease.Release()
	rec, err := s.readRecord(img.Ref)
	if err != nil {
		return nil, storeError(err, op, s.dir)
	}
	if rec.Origin == "" {
		rec.Origin = rec.Ref
	}
	rec.Ref = named.String()
	if err := s.writeRef(rec); err != nil {
		return nil, storeError(err, op, s.dir)
	}
	return s.readRef(refFile(rec.Ref))
}

// DiskUse says what images take on disk. Layers that several images have count for
// each, but once in the sum.
func (s *Store) DiskUse(ctx context.Context) (api.ImageDisk, error) {
	const op = "measure images"
	images, err := s.List()
	if err != nil {
		return api.ImageDisk{}, err
	}
	sizes, err := s.unitSizes(ctx)
	if err != nil {
		return api.ImageDisk{}, storeError(err, op, s.dir)
	}
	marked, err := s.marked()
	if err != nil {
		return api.ImageDisk{}, storeError(err, op, s.dir)
	}
	d := api.ImageDisk{Images: []api.ImageUse{}}
	users := make(map[string]map[string]bool) // ids of the images, by unit
	for _, img := range images {
		for _, l := range img.Layers {
			if users[unit(l)] == nil {
				users[unit(l)] = make(map[string]bool)
			}
			users[unit(l)][img.ID] = true
		}
	}
	for _, img := range images {
		use := api.ImageUse{Ref: img.Ref, ID: img.ID, InUse: s.imageInUse(img)}
		for _, l := range img.Layers {
			use.Bytes += sizes[unit(l)]
			if len(users[unit(l)]) == 1 {
				use.UniqueBytes += sizes[unit(l)]
			}
		}
		d.Images = append(d.Images, use)
	}
	for name, n := range sizes {
		d.Bytes += n
		if !marked[name] && path.Dir(name) == layersDir && !s.unitInUse(name) {
			d.UnusedBytes += n
		}
	}
	return d, nil
}

// unitSizes measures every unit.
func (s *folder) unitSizes(ctx context.Context) (map[string]int64, error) {
	sizes := make(map[string]int64)
	for _, d := range []string{layersDir, hostDir} {
		entries, err := os.ReadDir(s.path(d))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			use, err := diskuse.Trees(ctx, diskuse.Usage{}, filepath.Join(s.path(d), e.Name()))
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			if err != nil {
				return nil, err
			}
			sizes[path.Join(d, e.Name())] = use.Bytes
		}
	}
	return sizes, nil
}

// unitInUse reports whether anybody, of any process, has a lease on a unit.
func (s *folder) unitInUse(name string) bool {
	if s.leases.held(name) {
		return true
	}
	dir, err := openDir(s.path(name))
	if err != nil {
		return false // gone
	}
	defer unlockNow(dir)
	return flockNow(dir, unix.LOCK_EX) != nil
}

// imageInUse reports whether somebody has a lease on all layers of an image, as a
// sandbox of it has. An image that is part of another one in use counts, too.
func (s *Store) imageInUse(img *Image) bool {
	for _, l := range img.Layers {
		if !s.unitInUse(unit(l)) {
			return false
		}
	}
	return len(img.Layers) > 0
}

// Prune removes layers that no image has and, with all, before that the images that no
// sandbox uses and keep (nil: none) does not claim. It returns their references and the bytes freed.
func (s *Store) Prune(all bool, keep func(ref string) bool) (removed []string, freed int64, err error) {
	const op = "prune images"
	images, err := s.List()
	if err != nil {
		return nil, 0, err
	}
	var errs []error
	for _, img := range images {
		if !all || s.imageInUse(img) || keep != nil && keep(img.Ref) {
			continue
		}
		if err := os.Remove(s.path(refFile(img.Ref))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove image %s: %w", img.Ref, err))
			continue
		}
		removed = append(removed, img.Ref)
	}
	freed, err = s.GC(nil)
	return removed, freed, storeError(errors.Join(append(errs, err)...), op, s.dir)
}
