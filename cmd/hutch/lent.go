package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
)

// lent is what root has lent a sandbox: the folders that a start, a restore or an apply needs again, which root's
// daemon cannot open. The command line keeps its own note, by what the user calls the sandbox. What the daemon says
// about that is not asked: a sandbox may have taken it over, and would be handed whatever folder it names.
type lent struct {
	ID        string       `json:"id"`
	Name      string       `json:"name,omitempty"`
	Snapshots []string     `json:"snapshots,omitempty"` // of it, by id and by name
	Made      time.Time    `json:"made"`
	Workspace *lentFolder  `json:"workspace,omitempty"`
	Mounts    []lentFolder `json:"mounts,omitempty"`
}

type lentFolder struct {
	Path   string        `json:"path"`
	Target string        `json:"target"`
	Mode   api.MountMode `json:"mode"`
	Dev    uint64        `json:"dev"`
	Ino    uint64        `json:"ino"`
}

// maxLent is how many notes are kept: the oldest ones go.
const maxLent = 512

// lentDir is the folder of the notes. Nobody but root can look into the one that it is in.
func lentDir() (string, error) {
	p, err := paths.Resolve(os.Getenv, os.Geteuid())
	if err != nil {
		return "", err
	}
	return filepath.Join(p.State, "lent"), nil
}

// noteLent notes the folders of a sandbox that was made with spec, which has where they really are, and their
// descriptors. Its name is the user's; of the daemon's words only the id counts, which no note may have.
func noteLent(id string, spec *api.Spec, files []*os.File) error {
	if os.Getuid() != 0 {
		return nil // whose daemon opens them itself
	}
	l := lent{ID: id, Name: spec.Name, Made: time.Now().UTC()}
	add := func(path, target string, mode api.MountMode, fd *int) (lentFolder, error) {
		var st unix.Stat_t
		if err := unix.Fstat(int(files[*fd].Fd()), &st); err != nil {
			return lentFolder{}, fmt.Errorf("look at %s: %w", path, err)
		}
		return lentFolder{path, target, mode, st.Dev, st.Ino}, nil
	}
	if w := spec.Workspace; w != nil && w.FD != nil {
		f, err := add(w.Path, "/workspace", w.Mode, w.FD)
		if err != nil {
			return err
		}
		l.Workspace = &f
	}
	for _, m := range spec.Mounts {
		if m.FD == nil {
			continue
		}
		f, err := add(m.Source, m.Target, m.Mode, m.FD)
		if err != nil {
			return err
		}
		l.Mounts = append(l.Mounts, f)
	}
	return l.begin()
}

// begin saves the note of a new sandbox. What was lent to another one by its name is forgotten, also where this one has
// no folders; one of its id is there when the sandbox was there before, or when the daemon lies, and stays as it is.
func (l *lent) begin() error {
	if l.Name == "" && l.Workspace == nil && len(l.Mounts) == 0 {
		return nil // of which nobody can have noted anything
	}
	dir, err := lentDir()
	if err != nil {
		return err
	}
	all, err := readLent(dir)
	for _, o := range all {
		if o.ID == l.ID {
			return nil
		}
		if o.Name == l.Name && l.Name != "" {
			err = errors.Join(err, os.Remove(filepath.Join(dir, lentFile(o.ID))))
		}
	}
	if err != nil || l.Workspace == nil && len(l.Mounts) == 0 {
		return err
	}
	return l.save()
}

// noteForks notes that forks have the folders of what they were forked from. name is the user's, of a single one.
func noteForks(from *lent, name string, forks []api.Sandbox) (err error) {
	if from == nil {
		return nil
	}
	for i := range forks {
		f := *from
		f.ID, f.Name, f.Snapshots, f.Made = forks[i].ID, name, nil, time.Now().UTC()
		err = errors.Join(err, f.begin())
	}
	return err
}

func (l *lent) save() error {
	dir, err := lentDir()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, lentFile(l.ID)))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	all, err := readLent(dir)
	for len(all) > maxLent {
		err = errors.Join(err, os.Remove(filepath.Join(dir, lentFile(all[0].ID))))
		all = all[1:]
	}
	return err
}

// lentFile names a note. The id is the daemon's.
func lentFile(id string) string { return strings.ReplaceAll(id, "/", "_") + ".json" }

// readLent reads all notes, oldest first. One that cannot be read is as good as none.
func readLent(dir string) ([]lent, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []lent
	for _, e := range entries {
		var l lent
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil && json.Unmarshal(text, &l) == nil && e.Name() == lentFile(l.ID) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b lent) int { return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// findLent finds what was lent to the sandbox that the user calls ref: the last of that name. nil: nothing is known.
func findLent(ref string) *lent {
	return lastLent(func(l *lent) bool { return l.ID == ref || l.Name == ref && ref != "" })
}

// findSnapshot is findLent for the sandbox of a snapshot.
func findSnapshot(ref string) *lent {
	return lastLent(func(l *lent) bool { return slices.Contains(l.Snapshots, ref) })
}

func lastLent(is func(*lent) bool) *lent {
	if os.Getuid() != 0 {
		return nil
	}
	dir, err := lentDir()
	if err != nil {
		return nil
	}
	all, err := readLent(dir)
	if err != nil {
		return nil
	}
	for _, l := range slices.Backward(all) {
		if is(&l) {
			return &l
		}
	}
	return nil
}

// noteSnapshot notes that a snapshot, with the name that the user gave it, is of that sandbox. Of others of that name
// it is no more.
func noteSnapshot(sandbox, id, name string) error {
	l := findLent(sandbox)
	if l == nil || findSnapshot(id) != nil {
		return nil
	}
	for o := findSnapshot(name); name != "" && o != nil; o = findSnapshot(name) {
		o.Snapshots = slices.DeleteFunc(o.Snapshots, func(s string) bool { return s == name })
		if err := o.save(); err != nil {
			return err
		}
		if o.ID == l.ID {
			l = o
		}
	}
	l.Snapshots = append(l.Snapshots, id)
	if name != "" {
		l.Snapshots = append(l.Snapshots, name)
	}
	return l.save()
}

// forgetLent forgets what was lent to a sandbox that is removed.
func forgetLent(ref string) {
	l := findLent(ref)
	if dir, err := lentDir(); err == nil && l != nil {
		_ = os.Remove(filepath.Join(dir, lentFile(l.ID))) // maxLent bounds what stays
	}
}

// spec names the folders again, as they were. What is opened by it is to be checked.
func (l *lent) spec() (sp api.Spec) {
	if w := l.Workspace; w != nil {
		sp.Workspace = &api.Workspace{Path: w.Path, Mode: w.Mode}
	}
	for _, m := range l.Mounts {
		sp.Mounts = append(sp.Mounts, api.Mount{Source: m.Path, Target: m.Target, Mode: m.Mode})
	}
	return sp
}

// check refuses folders other than those that were lent, which are at these paths by now: the sandbox may have seen to
// that.
func (l *lent) check(opened *api.Spec, files []*os.File) error {
	if w := opened.Workspace; w != nil {
		if err := l.Workspace.check(files[*w.FD]); err != nil {
			return err
		}
	}
	for i := range opened.Mounts {
		if err := l.Mounts[i].check(files[*opened.Mounts[i].FD]); err != nil {
			return err
		}
	}
	return nil
}

func (f *lentFolder) check(opened *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(opened.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", f.Path, err)
	}
	if st.Dev != f.Dev || st.Ino != f.Ino {
		return api.Errorf(api.FailedPrecondition, "%s is another folder than the one that the sandbox had at %s",
			f.Path, f.Target).
			WithHint("put the old one back; or name the one that you mean: hutch start --workspace PATH, -v PATH:%s",
				f.Target)
	}
	return nil
}
