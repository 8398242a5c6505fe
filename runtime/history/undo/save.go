package undo

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/treecopy"
)

// Request is what is to be kept.
type Request struct {
	Trees map[string]string // paths of the trees, by name
	// Changing says of a file that it may be changed without getting a new time.
	Changing func(name string, ino uint64) bool
	Limit    diskuse.Usage // of all checkpoints together
	Pinned   string        // a checkpoint that does not make room
}

// Save makes a checkpoint of trees that stand still. Older ones make room for it where they must; when there is none
// all the same nothing is left of it.
func (s *Store) Save(ctx context.Context, c Checkpoint, w Request) (err error) {
	s.pinned = w.Pinned
	was, err := s.compared()
	if err != nil {
		return err
	}
	roots := map[string]*os.File{}
	defer func() {
		for _, f := range roots {
			f.Close()
		}
	}()
	objects, err := os.Open(s.path("objects"))
	if err != nil {
		return err
	}
	defer objects.Close()
	now, same, need := version{}, len(was) == len(w.Trees) && s.state.Base != 0, diskuse.Usage{}
	for _, name := range slices.Sorted(maps.Keys(w.Trees)) {
		f, err := os.OpenFile(w.Trees[name], unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		roots[name] = f
		var more diskuse.Usage
		if now[name], more, err = treecopy.Look(ctx, f, was[name], objects, w.Changing); err != nil {
			return err
		}
		same, need = same && now[name] == was[name], need.Add(more)
	}
	c.Prev, c.Tree, c.Added = s.state.Head, s.state.Base, diskuse.Usage{}
	if !same || s.trees[c.Tree] == 0 {
		if c.Tree, c.Added, err = s.keep(ctx, roots, now, need, w.Limit); err != nil {
			return err
		}
	}
	next := s.state
	next.Checkpoints = append(slices.Clip(next.Checkpoints), c)
	if next.Base = c.Tree; !c.Restore {
		next.Head = c.Call
	}
	if err := s.write(next); err != nil {
		if c.Tree != s.state.Base {
			err = errors.Join(err, s.forget(c.Tree))
		}
		return err
	}
	if s.base = nil; len(s.objects) <= keepNodes {
		s.base = now
	}
	for len(s.state.Checkpoints) > MaxCheckpoints {
		if err := s.dropOldest(); err != nil {
			return err
		}
	}
	return nil
}

// compared is the version that the files were last compared with; empty where there is none.
func (s *Store) compared() (version, error) {
	if s.base != nil || s.state.Base == 0 {
		return s.base, nil
	}
	if _, known := s.trees[s.state.Base]; !known { // its checkpoint was dropped
		return nil, nil
	}
	v, _, err := s.read(s.state.Base)
	return v, err
}

// keep writes a new version.
func (s *Store) keep(ctx context.Context, roots map[string]*os.File, now version, need, limit diskuse.Usage) (n uint64,
	added diskuse.Usage, err error) {
	s.count(now) // what it shares stays when others go
	to := &treecopy.Objects{Next: s.state.NextObject, Made: map[uint64]int64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discard(to), s.uncount(now))
		}
	}()
	if err := s.room(need, limit); err != nil {
		return 0, added, err
	}
	if to.Dir, err = os.Open(s.path("objects")); err != nil {
		return 0, added, err
	}
	defer to.Dir.Close()
	for name, f := range roots {
		if err := treecopy.Fill(ctx, f, now[name], to); err != nil {
			return 0, added, err
		}
	}
	for _, bytes := range to.Made {
		added = added.Add(diskuse.Usage{Bytes: bytes, Inodes: 1})
	}
	n = s.state.NextTree
	size, err := s.writeTree(n, now)
	if err != nil {
		return 0, added, errors.Join(err, remove(s.tree(n)))
	}
	s.state.NextTree, s.state.NextObject, s.trees[n] = n+1, to.Next, size
	for number, bytes := range to.Made {
		s.objects[number] = &object{1, bytes}
	}
	added = added.Add(diskuse.Usage{Bytes: size, Inodes: 1})
	s.total = s.total.Add(added)
	return n, added, nil
}

// discard removes objects that were made for nothing.
func (s *Store) discard(made *treecopy.Objects) (errs error) {
	s.state.NextObject = made.Next
	for n := range made.Made {
		errs = errors.Join(errs, remove(s.path("objects", treecopy.ObjectName(n))))
	}
	return errs
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// slack is what is left free of the disk that others use as well.
var slack = diskuse.Usage{Bytes: 1 << 20, Inodes: 16}

// room drops the oldest checkpoints until there is room for more.
func (s *Store) room(need, limit diskuse.Usage) error {
	for {
		free, _, err := diskuse.FreeAt(s.dir)
		if err != nil {
			return err
		}
		// btrfs counts no inodes
		full := free.Bytes < need.Bytes+slack.Bytes || free.Inodes > 0 && free.Inodes < need.Inodes+slack.Inodes
		over := s.total.Add(need).Exceeds(limit)
		switch {
		case !full && !over:
			return nil
		case s.oldest() < 0 && over:
			return ErrNoRoom
		case s.oldest() < 0:
			return unix.ENOSPC
		}
		if err := s.dropOldest(); err != nil {
			return err
		}
	}
}

// oldest is the checkpoint that may go; -1 where none may.
func (s *Store) oldest() int {
	return slices.IndexFunc(s.state.Checkpoints, func(c Checkpoint) bool { return c.ID != s.pinned })
}

// dropOldest forgets the oldest checkpoint. There is one that may go.
func (s *Store) dropOldest() error {
	next, i := s.state, s.oldest()
	oldest := next.Checkpoints[i]
	next.Checkpoints = slices.Delete(slices.Clone(next.Checkpoints), i, i+1)
	if err := s.write(next); err != nil {
		return err
	}
	if slices.ContainsFunc(next.Checkpoints, func(c Checkpoint) bool { return c.Tree == oldest.Tree }) {
		return nil
	}
	return s.forget(oldest.Tree)
}

// Trim drops the oldest checkpoints, but not the last, until all take no more than a limit.
func (s *Store) Trim(limit diskuse.Usage) error {
	s.pinned = ""
	for len(s.state.Checkpoints) > 1 && s.total.Exceeds(limit) {
		if err := s.dropOldest(); err != nil {
			return err
		}
	}
	return nil
}

// forget removes a version that no checkpoint has.
func (s *Store) forget(n uint64) error {
	v := s.base
	if n != s.state.Base || v == nil {
		var err error
		if v, _, err = s.read(n); err != nil {
			return err
		}
	}
	if n == s.state.Base {
		s.base, s.state.Base = nil, 0
	}
	s.total = s.total.Add(diskuse.Usage{Bytes: -s.trees[n], Inodes: -1})
	delete(s.trees, n)
	return errors.Join(remove(s.tree(n)), s.uncount(v))
}

// write replaces state.json.
func (s *Store) write(next state) error {
	data, err := json.Marshal(next)
	if err == nil {
		err = replace(s.path("state.json"), data)
	}
	if err == nil {
		s.state = next
	}
	return err
}

func (s *Store) writeTree(n uint64, v version) (int64, error) {
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(v); err != nil {
		return 0, err
	}
	return int64(data.Len()), replace(s.tree(n), data.Bytes())
}

// replace writes a file: whoever reads it gets the old text or the new.
func replace(path string, data []byte) error {
	tmp := path + ".tmp"
	err := os.WriteFile(tmp, data, 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, remove(tmp))
	}
	return nil
}

// List is the checkpoints, oldest first, whether each call was undone, and what all of them take.
func (s *Store) List() (list []Checkpoint, undone map[string]bool, total diskuse.Usage) {
	undone = map[string]bool{}
	before := map[string]string{}
	for _, c := range s.state.Checkpoints {
		before[c.Call] = c.Prev
		undone[c.Call] = !c.Restore
	}
	for at := s.state.Head; at != ""; at = before[at] {
		undone[at] = false
	}
	return slices.Clone(s.state.Checkpoints), undone, s.total
}

// Find is the checkpoint before a call; of the last that was not undone where call is "".
func (s *Store) Find(call string) (Checkpoint, bool) {
	if call == "" {
		call = s.state.Head
	}
	i := slices.IndexFunc(s.state.Checkpoints, func(c Checkpoint) bool { return c.Call == call || c.ID == call })
	if i < 0 || call == "" {
		return Checkpoint{}, false
	}
	return s.state.Checkpoints[i], true
}

// Rebuild makes the trees of a checkpoint in an empty folder, each in a folder of its name. Those are what the next
// Save compares with, once Restored has said that they have taken the place of the files.
func (s *Store) Rebuild(ctx context.Context, c Checkpoint, to string) (restored func() error, err error) {
	v, _, err := s.read(c.Tree)
	if err != nil {
		return nil, err
	}
	objects, err := os.Open(s.path("objects"))
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	for name, root := range v {
		at := filepath.Join(to, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(at, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		err = treecopy.Rebuild(ctx, root, objects, f)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return func() error {
		size, err := s.writeTree(c.Tree, v)
		if err != nil {
			return err
		}
		s.total.Bytes += size - s.trees[c.Tree]
		s.trees[c.Tree] = size
		next := s.state
		next.Base, next.Head, s.base = c.Tree, c.Prev, nil
		return s.write(next)
	}, nil
}
