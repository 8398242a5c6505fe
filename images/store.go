package images

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// storeVersion is the version of the folder layout (DESIGN.md). A store of
// another version is refused rather than guessed at.
const storeVersion = "1\n"

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
	dir  string
	opts Options
	log  *slog.Logger

	registries *registry.Config

	pulls   flights
	leases  leases
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
	s := &Store{dir: dir, opts: opts, log: opts.Logger}
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

// Dir is the store's absolute folder, which all relative names start from.
func (s *Store) Dir() string { return s.dir }

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

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) prepare() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	// An older umask or a copy may have opened it: others must not be able to
	// run an image's set-uid files.
	if err := os.Chmod(s.dir, 0o700); err != nil {
		return err
	}
	for _, d := range []string{layersDir, refsDir, hostDir, locksDir, tmpDir} {
		if err := os.Mkdir(s.path(d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := sys.Spread(s.path(tmpDir)); err != nil { // layers are unpacked there
		s.log.Debug("spread layers over the disk", "err", err)
	}
	return s.checkVersion()
}

func (s *Store) checkVersion() error {
	have, err := os.ReadFile(s.path("version"))
	if errors.Is(err, fs.ErrNotExist) {
		return s.writeFile("version", []byte(storeVersion), true)
	}
	if err != nil {
		return err
	}
	if string(have) != storeVersion {
		return api.Errorf(api.FailedPrecondition, "%s has layout version %q, this build knows %q",
			s.dir, strings.TrimSpace(string(have)), strings.TrimSpace(storeVersion)).
			WithHint("Use another state folder (HUTCH_ROOT), or remove %s; images are pulled again.", s.dir)
	}
	return nil
}

// writeFile writes a small file of the store by rename, so that a reader sees
// the old content or the new. With durable a power cut leaves one of them too;
// without, a later syncfs must come before anything refers to it.
func (s *Store) writeFile(name string, data []byte, durable bool) error {
	t, err := s.newTmp()
	if err != nil {
		return err
	}
	defer t.discard()
	fd, err := unix.Openat(t.fd(), "file", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create a temporary file for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(filepath.Join(t.path, "file"), s.path(name)); err != nil {
		return fmt.Errorf("commit %s: %w", name, err)
	}
	return nil
}

// singleSuffix ends the folders of layers unpacked with a single id.
const singleSuffix = ".1uid"

// folderName turns a digest "alg:hex" into a folder's name. Layers unpacked
// without chown differ from those with it, so they have folders of their own:
// a store stays usable when its user gains or loses subordinate ids.
func (s *Store) folderName(digest string) string {
	name := strings.Replace(digest, ":", "-", 1)
	if s.opts.SingleUID {
		name += singleSuffix
	}
	return name
}

// flights merges calls for the same work within the process; between processes
// the lock file of each layer does (lock.go).
type flights struct {
	mu sync.Mutex
	m  map[string]*flight
}
