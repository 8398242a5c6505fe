package keep

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/treecopy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Files is what the files of one sandbox are made of beside its upper folders. Who has the turn of the sandbox uses it;
// it is on record.
type Files struct {
	// Layers are of the shelf: those between the root's upper folder and its image, top-most first; Base is what they
	// take.
	Layers []string
	Base   diskuse.Usage
	// Next says that what is in fs/next takes the place of what is in fs: see RollForward.
	Next bool
}

// nextDir is, below fs, what takes the place of the upper folders: upper, and <i> for <i>/upper.
const nextDir = "next"

// upper is the name of the upper folder of the root below fs, and of that of another overlay below fs/<i>.
const upper = "upper"

// UpperFolders are those below fsDir, by the names that fs/next has for them.
func UpperFolders(fsDir string) (map[string]string, error) {
	entries, err := os.ReadDir(fsDir)
	if err != nil {
		return nil, err
	}
	trees := map[string]string{}
	for _, e := range entries {
		if name := e.Name(); name == upper {
			trees[upper] = filepath.Join(fsDir, upper)
		} else if _, err := strconv.Atoi(name); err == nil { // an overlay other than the root
			trees[name] = filepath.Join(fsDir, name, upper)
		}
	}
	return trees, nil
}

// Replace puts what make makes in a folder in the place of a stopped sandbox's files, above these layers of the shelf,
// which take so much. It is done whole or not at all, also when hutchd is killed: what is made lies beside the files,
// then the record says that it counts, and then it takes their place.
func (k *Keep) Replace(s Folder, above []string, take diskuse.Usage, make func(next string) error) error {
	next := filepath.Join(s.Dir(), "fs", nextDir)
	err := removeAll(next)
	if err == nil {
		err = os.Mkdir(next, 0o700)
	}
	if err == nil {
		err = make(next)
	}
	if err != nil {
		return errors.Join(k.cfg.DiskError("restore files", err), removeAll(next))
	}
	files := s.Files()
	was := *files
	*files = Files{Layers: above, Base: take, Next: true}
	if err := s.Save(); err != nil {
		*files = was
		return errors.Join(err, removeAll(next))
	}
	return RollForward(s)
}

// RollForward puts what is in next in its place, as often as it takes; without a word on record that it counts, it
// goes.
func RollForward(s Folder) error {
	fsDir, files := filepath.Join(s.Dir(), "fs"), s.Files()
	next := filepath.Join(fsDir, nextDir)
	if files.Next {
		entries, err := os.ReadDir(next)
		if err != nil {
			return err
		}
		for _, e := range entries {
			to := filepath.Join(fsDir, upper)
			if e.Name() != upper {
				to = filepath.Join(fsDir, e.Name(), upper)
			}
			if err := errors.Join(removeAll(to), os.Rename(filepath.Join(next, e.Name()), to)); err != nil {
				return fmt.Errorf("restore files: %w", err)
			}
		}
		files.Next = false
		if err := s.Save(); err != nil {
			files.Next = true
			return err
		}
	}
	return removeAll(next)
}

// Copy copies what is in a folder into another one, which is empty.
func (k *Keep) Copy(ctx context.Context, from, to string) (diskuse.Usage, error) {
	src, err := os.OpenFile(from, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return diskuse.Usage{}, err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return diskuse.Usage{}, err
	}
	defer dst.Close()
	used, err := treecopy.Tree(ctx, src, dst)
	if errors.Is(err, treecopy.ErrTooDeep) {
		err = api.Errorf(api.ResourceExhausted, "copy the sandbox's files: %w", err).WithHint("remove folders from it")
	}
	return used, k.cfg.DiskError("copy the sandbox's files", err)
}

// removeAll removes a tree of a sandbox's, whatever its modes are.
func removeAll(dir string) error {
	if err := rmtree.Path(dir); err != nil {
		return fmt.Errorf("remove the sandbox's folder: %w", err)
	}
	return nil
}

// newID makes a short random id: 60 bits in 12 letters.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()[:12]) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
