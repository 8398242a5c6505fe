package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Digest is what command lines ask of a file each time. The daemon, which has read the file, leaves it for them, so
// that they need no parser: Publish.
type Digest struct {
	SHA256 string       `json:"sha256"` // of the file that it is about
	Image  string       `json:"image"`
	Mode   api.ExecMode `json:"mode"`
	Held   []string     `json:"held,omitempty"` // see Config
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Publish leaves c's digest at path, whose folder is nobody else's; of a configuration without a file there is none to
// leave.
func (c *Config) Publish(path string) error {
	if c.sum == "" {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	text, err := json.Marshal(Digest{SHA256: c.sum, Image: c.Image, Mode: c.Mode, Held: c.Held})
	if err != nil {
		return err
	}
	return replaceFile(path, text)
}

// replaceFile puts a file that only this user can read and write into the place of path's, at once.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // which it has not any more when it was renamed
	if _, err = f.Write(text); err == nil {
		err = os.Rename(f.Name(), path)
	}
	return errors.Join(err, f.Close())
}

// LoadDigest is Load for who needs no more than a Digest. It reads the one at published where that is about the file as
// it is.
func LoadDigest(path, approved, published string, parser yamltree.Parser) (Digest, error) {
	if text, err := os.ReadFile(path); err == nil {
		var d Digest
		if left, err := readOwn(published); err == nil && json.Unmarshal(left, &d) == nil && d.SHA256 == sumOf(text) {
			return d, nil
		}
	}
	c, err := LoadApproved(path, approved, parser)
	return Digest{Image: c.Image, Mode: c.Mode, SHA256: c.sum, Held: c.Held}, err
}

// readOwn reads a file that nobody else has written: where commands run is in it, and the folder may be one that
// somebody else has made in /tmp before there was a daemon.
func readOwn(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.Mode().IsRegular() || st.Mode().Perm()&0o022 != 0 || int(sys.Uid) != os.Geteuid() || sys.Nlink != 1 {
		return nil, errors.New("it is somebody else's")
	}
	return io.ReadAll(f)
}
