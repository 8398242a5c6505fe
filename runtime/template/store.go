package template

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/runtime/api"
)

// store keeps templates below a folder:
//
//	<name>/template.json   what it is
//	<name>/context.tar     the files that its steps copy
//	.built/<name>.json     what came of its steps
//	.tmp/<random>/         being made or removed
//	.lock                  held while something is put here or taken away
//	.building              held, shared, by each build, and by who removes what is left of builds
//
// Names of templates begin with a letter or digit. All changes are renames, so that a crash leaves a template or none;
// several daemons may have the folder.
type store struct{ dir string }

const (
	definitionFile = "template.json"
	contextFile    = "context.tar"
)

// kept is what template.json holds.
type kept struct {
	Spec    api.TemplateSpec `json:"spec"`
	User    uint32           `json:"user"`
	Created time.Time        `json:"created"`
}

// builtRecord is what <name>.json below .built holds.
type builtRecord struct {
	api.TemplateBuilt
	Keep string `json:"keep,omitempty"` // in the place of an image
	Spec string `json:"spec"`           // digest of the definition
}

func (st store) path(names ...string) string {
	return filepath.Join(append([]string{st.dir}, names...)...)
}
func (st store) file(name string) string { return st.path(name, definitionFile) }

// open makes the folders, and sweeps.
func (st store) open() error {
	for _, sub := range []string{".built", ".tmp"} {
		if err := os.MkdirAll(st.path(sub), 0o700); err != nil {
			return fmt.Errorf("make the folder of templates: %w", err)
		}
	}
	entries, err := os.ReadDir(st.path(".tmp"))
	if err != nil {
		return fmt.Errorf("look for templates: %w", err)
	}
	all, err := st.lock(".lock", unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer all.Close()
	for _, e := range entries {
		f, err := os.Open(st.path(".tmp", e.Name()))
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil { // else another daemon is about it
			err = rmtree.Path(st.path(".tmp", e.Name()))
		}
		if f.Close(); err != nil {
			return fmt.Errorf("remove what is left of a template: %w", err)
		}
	}
	return nil
}

// lock waits for a lock, which ends when the file is closed.
func (st store) lock(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(st.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the templates: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock the templates: %w", err)
		}
		return f, nil
	}
}

// read reads a template. Its name becomes part of a path: fs.ErrNotExist for what is none.
func (st store) read(name string) (*kept, error) {
	if !isWord(name) {
		return nil, fs.ErrNotExist
	}
	data, err := os.ReadFile(st.file(name))
	if err != nil {
		return nil, err
	}
	var k kept
	if err := json.Unmarshal(data, &k); err != nil || k.Spec.Name != name {
		return nil, fmt.Errorf("template %s: %s is not one: %w", name, st.file(name),
			cmp.Or(err, errors.New("it is another template's")))
	}
	return &k, nil
}

// names are those of the templates that somebody has made.
func (st store) names() (list []string, err error) {
	entries, err := os.ReadDir(st.dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			list = append(list, e.Name())
		}
	}
	return list, err
}

// built is what came of the steps of a template; nil when nothing has.
func (st store) built(name string) *builtRecord {
	data, err := os.ReadFile(st.path(".built", name+".json"))
	var b builtRecord
	if err != nil || json.Unmarshal(data, &b) != nil || b.Key == "" {
		return nil
	}
	return &b
}

// allBuilt is of all templates.
func (st store) allBuilt() (list []*builtRecord, err error) {
	entries, err := os.ReadDir(st.path(".built"))
	for _, e := range entries {
		if b := st.built(strings.TrimSuffix(e.Name(), ".json")); b != nil {
			list = append(list, b)
		}
	}
	return list, err
}

// setBuilt replaces what built returns.
func (st store) setBuilt(name string, b *builtRecord) error {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	tmp := st.path(".tmp", rand.Text())
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("note what was built: %w", err)
	}
	return os.Rename(tmp, st.path(".built", name+".json"))
}

// making is a template that is nobody's yet.
type making struct {
	dir  string
	lock *os.File
}

func (st store) begin() (*making, error) {
	dir := st.path(".tmp", rand.Text())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a template: %w", err)
	}
	f, err := os.Open(dir)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	if err != nil {
		return nil, fmt.Errorf("make a template: %w", err)
	}
	return &making{dir, f}, nil
}

func (n *making) discard() {
	_ = rmtree.Path(n.dir) // it is not there when it was put in its place
	_ = n.lock.Close()
}

// put gives a template its name.
func (st store) put(n *making, k *kept, replace bool) error {
	k.Created = time.Now().UTC().Truncate(time.Millisecond)
	data, err := json.MarshalIndent(k, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(n.dir, definitionFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep template %s: %w", k.Spec.Name, err)
	}
	all, err := st.lock(".lock", unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer all.Close()
	names, err := st.names()
	if err != nil {
		return err
	}
	if len(names) >= api.MaxTemplates {
		return api.Errorf(api.ResourceExhausted, "there are %d templates, which is the most", len(names)).
			WithHint("remove some: hutch template rm NAME")
	}
	to := st.path(k.Spec.Name)
	err = unix.Renameat2(unix.AT_FDCWD, n.dir, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		if !replace {
			return api.Errorf(api.AlreadyExists, "there is a template %q", k.Spec.Name).WithField("name").
				WithHint("choose another name, or replace it: hutch template create --replace")
		}
		err = unix.Renameat2(unix.AT_FDCWD, n.dir, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) // the old one is discarded
	}
	if err != nil {
		return fmt.Errorf("keep template %s: %w", k.Spec.Name, err)
	}
	return nil
}

// remove removes a template.
func (st store) remove(name string) error {
	all, err := st.lock(".lock", unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer all.Close()
	going := st.path(".tmp", rand.Text())
	if err := os.Rename(st.path(name), going); err != nil {
		return err
	}
	if err := os.Remove(st.path(".built", name+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return rmtree.Path(going)
}

// digestOf is that of a definition.
func digestOf(t *api.TemplateSpec) string {
	data, _ := json.Marshal(t) // it came as JSON
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
