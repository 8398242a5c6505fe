package images

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// storeVersion is the version of the folder layout (DESIGN.md). A store of
// another version is refused rather than guessed at.
const storeVersion = "1\n"

// folder is a store on disk: where what lies, who holds it, and how it is changed so that a reader sees the old or the
// new, whoever is killed (DESIGN.md, "The store").
type folder struct {
	dir       string
	singleUID bool // as of Options
	log       *slog.Logger
	leases    leases
	pulls     flights // of this process, by what is locked
}

// Dir is the store's absolute folder, which all relative names start from.
func (s *folder) Dir() string { return s.dir }

func (s *folder) path(name string) string { return filepath.Join(s.dir, name) }

func (s *folder) prepare() error {
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

func (s *folder) checkVersion() error {
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
func (s *folder) writeFile(name string, data []byte, durable bool) error {
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
func (s *folder) folderName(digest string) string {
	name := strings.Replace(digest, ":", "-", 1)
	if s.singleUID {
		name += singleSuffix
	}
	return name
}
