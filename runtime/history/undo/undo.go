// Package undo keeps what the files of one sandbox were before each of its last calls, in a folder:
//
//	state.json     the checkpoints, oldest first; what is not in it is nothing, and swept
//	trees/<n>      a version of all the trees of the sandbox (treecopy.Node), of one checkpoint or several
//	objects/<n>    the content of a file, which versions share
//
// A checkpoint costs what has changed since the one before, and nothing but a look at all files where nothing has.
// Everything is written before state.json is replaced, and removed after it: a crash leaves a checkpoint or none. The
// content is a sandbox's, and hostile: see treecopy.
package undo

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/treecopy"
)

// MaxCheckpoints is how many are kept.
const MaxCheckpoints = 50

// keepNodes is how large a version may be that stays in memory for the next comparison; larger ones are read again.
const keepNodes = 10_000

// ErrNoRoom says that what has changed takes more than all checkpoints may.
var ErrNoRoom = errors.New("the files that have changed take more than all checkpoints of the sandbox may")

// Checkpoint is what the files were before a call.
type Checkpoint struct {
	ID    string    `json:"id"`
	Call  string    `json:"call"`
	Tool  string    `json:"tool"`
	Time  time.Time `json:"time"`
	Paths []string  `json:"paths,omitempty"` // that the call named
	// Prev is the call before, in the history that the files have come by: none of it was undone.
	Prev  string        `json:"prev,omitempty"`
	Tree  uint64        `json:"tree"`
	Added diskuse.Usage `json:"added,omitzero"` // that it took beside what others had
	// Restore says that the call itself was one of Restore's.
	Restore bool `json:"restore,omitempty"`
}

// state is state.json.
type state struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
	// Head is the last call that was not undone; Base is the version that the files were last compared with.
	Head       string `json:"head,omitempty"`
	Base       uint64 `json:"base,omitempty"`
	NextTree   uint64 `json:"next_tree"`
	NextObject uint64 `json:"next_object"`
}

// version is all trees of a sandbox at a time, by name.
type version map[string]*treecopy.Node

type object struct {
	versions int // that have it
	bytes    int64
}

// Store is the checkpoints of one sandbox. One caller at a time uses it.
type Store struct {
	dir     string
	state   state
	objects map[uint64]*object
	trees   map[uint64]int64 // sizes of their files
	total   diskuse.Usage
	base    version // nil where it has to be read
	pinned  string
}

// Open reads the checkpoints in dir, which is made, and removes what a killed process has left half done.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, state: state{NextTree: 1, NextObject: 1}, objects: map[uint64]*object{},
		trees: map[uint64]int64{}}
	for _, sub := range []string{"", "trees", "objects"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	data, err := os.ReadFile(s.path("state.json"))
	if err == nil {
		err = json.Unmarshal(data, &s.state)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state.json: %w", err)
	}
	for _, c := range s.state.Checkpoints {
		if _, known := s.trees[c.Tree]; known {
			continue
		}
		v, size, err := s.read(c.Tree)
		if err != nil {
			return nil, err
		}
		s.add(c.Tree, size, v)
	}
	return s, s.sweep()
}

func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s *Store) tree(n uint64) string { return s.path("trees", strconv.FormatUint(n, 10)) }

// sweep removes what no checkpoint has, and learns what objects take.
func (s *Store) sweep() error {
	files, err := os.ReadDir(s.path("objects"))
	if err != nil {
		return err
	}
	for _, f := range files {
		n, err := strconv.ParseUint(f.Name(), 16, 64)
		var st unix.Stat_t
		if o := s.objects[n]; err == nil && o != nil {
			if err := unix.Lstat(s.path("objects", f.Name()), &st); err != nil {
				return err
			}
			o.bytes = st.Blocks * 512
			s.total = s.total.Add(diskuse.Usage{Bytes: o.bytes, Inodes: 1})
			continue
		}
		if err := os.Remove(s.path("objects", f.Name())); err != nil {
			return err
		}
	}
	if files, err = os.ReadDir(s.path("trees")); err != nil {
		return err
	}
	for _, f := range files {
		n, err := strconv.ParseUint(f.Name(), 10, 64)
		if _, known := s.trees[n]; err == nil && known {
			continue
		}
		if err := os.Remove(s.path("trees", f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// read reads a version from disk.
func (s *Store) read(n uint64) (version, int64, error) {
	data, err := os.ReadFile(s.tree(n))
	if err != nil {
		return nil, 0, err
	}
	var v version
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&v); err != nil {
		return nil, 0, fmt.Errorf("read version %d: %w", n, err)
	}
	return v, int64(len(data)), nil
}

// add counts a version; objects that are new count nothing yet.
func (s *Store) add(n uint64, size int64, v version) {
	s.trees[n] = size
	s.total = s.total.Add(diskuse.Usage{Bytes: size, Inodes: 1})
	s.count(v)
}

// count notes that a version has its objects.
func (s *Store) count(v version) {
	v.each(func(number uint64) {
		if s.objects[number] == nil {
			s.objects[number] = &object{}
		}
		s.objects[number].versions++
	})
}

// each calls use once for each object.
func (v version) each(use func(uint64)) {
	seen := map[uint64]bool{}
	for _, root := range v {
		root.Each(func(n uint64) {
			if !seen[n] {
				seen[n] = true
				use(n)
			}
		})
	}
}

// uncount undoes count, and removes what no version has any more.
func (s *Store) uncount(v version) (errs error) {
	v.each(func(n uint64) {
		o := s.objects[n]
		if o == nil {
			return
		}
		if o.versions--; o.versions > 0 {
			return
		}
		delete(s.objects, n)
		s.total = s.total.Add(diskuse.Usage{Bytes: -o.bytes, Inodes: -1})
		errs = errors.Join(errs, os.Remove(s.path("objects", treecopy.ObjectName(n))))
	})
	return errs
}
