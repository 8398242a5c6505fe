package images

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/images/unpack"
)

// Options of a store. The zero value is for a process with a range of ids and
// the containers configuration of its user.
type Options struct {
	// SingleUID says that only id 0 is mapped in this user namespace. Layers
	// are then unpacked without chown, apart from those of a range: each file
	// keeps its intended owner in the attribute user.hutch.owner.
	SingleUID bool
	// Logger gets debug lines; nil discards them.
	Logger *slog.Logger
	// RegistriesConf, AuthFile and PolicyFile replace the files that
	// containers-registries.conf(5), containers-auth.json(5) and
	// containers-policy.json(5) name. Empty means those.
	RegistriesConf, AuthFile, PolicyFile string
	// Limits of one layer; zero fields mean unpack.DefaultLimits.
	Limits unpack.Limits
	// ParallelLayers is how many layers of one pull are downloaded at once;
	// 0 means 3.
	ParallelLayers int
	// Stall is how long a registry may send nothing of a layer; 0 means a minute.
	Stall time.Duration
}

// Store is a folder of images. Its methods may be used by any number of
// goroutines, and any number of processes may open the same folder.
type Store struct {
	*folder
	opts       Options
	registries *registry.Config

	host    hostCache
	workers unpack.Workers // of tests
}

// Open makes the folder dir if need be (0700), checks its version and removes
// what dead processes left half done. dir must be private to the user: images
// can hold set-uid files.
func Open(dir string, opts Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("image store %q: %w", dir, err)
	}
	s := &Store{opts: opts, folder: &folder{dir: dir, singleUID: opts.SingleUID, log: opts.Logger}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opts.ParallelLayers <= 0 {
		s.opts.ParallelLayers = 3
	}
	if s.opts.Stall <= 0 {
		s.opts.Stall = registry.DefaultStall
	}
	s.opts.Limits = s.opts.Limits.WithDefaults()
	s.registries = &registry.Config{
		RegistriesConf: opts.RegistriesConf, AuthFile: opts.AuthFile, PolicyFile: opts.PolicyFile, Stall: s.opts.Stall,
		Logger: s.log, Temp: s.path(tmpDir), Empty: s.path(locksDir), OwnLookaside: s.ownLookaside,
	}
	if err := s.prepare(); err != nil {
		return nil, storeError(err, "open the image store", dir)
	}
	if err := s.sweep(); err != nil {
		return nil, storeError(err, "sweep the image store", dir)
	}
	return s, nil
}

// Registries are those that its images come from.
func (s *Store) Registries() *registry.Config { return s.registries }

// ownLookaside points containers-registries.d(5) at an empty place of the store's.
func (s *Store) ownLookaside() (string, error) {
	dir := s.path("registries.d")
	if _, err := os.Lstat(filepath.Join(dir, "default.yaml")); err == nil {
		return dir, nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	content := fmt.Sprintf("default-docker:\n  lookaside: %q\n", "file://"+s.path("sigstore"))
	return dir, s.writeFile("registries.d/default.yaml", []byte(content), false)
}

// Close releases the leases this process holds. Folders stay.
func (s *Store) Close() error {
	s.host.mu.Lock()
	s.host.watch.Close()
	s.host.watch = nil
	s.host.mu.Unlock()
	return s.leases.closeAll()
}

// flights merges calls for the same work within the process; between processes
// the lock file of each layer does (lock.go).
type flights struct {
	mu sync.Mutex
	m  map[string]*flight
}
