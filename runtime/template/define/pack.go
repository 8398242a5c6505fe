package define

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/gitignore"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Files are what the steps of a template copy, below one folder that no link leads out of.
type Files struct {
	root    *os.Root
	ignored *gitignore.List
	again   bool // something that is ignored may hold what is not
	parts   []part
}

// part is one file or folder, and what it is called in the archive.
type part struct {
	path, as string
}

// ignoreFile is what docker has for files that are no part of a context.
const ignoreFile = ".dockerignore"

// Resolve looks for what t's steps copy below dir, and completes the steps. Files.Close must follow.
func (t *Template) Resolve(dir string) (_ *Files, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, api.Errorf(api.NotFound, "%w", err).WithOp("read the files that steps copy")
	}
	f := &Files{root: root}
	defer func() {
		if err != nil {
			_ = root.Close()
		}
	}()
	text, err := root.ReadFile(ignoreFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f.ignored, f.again = ignoring(string(text))
	for _, c := range t.Copies {
		target, err := f.add(c)
		if err != nil {
			return nil, err
		}
		t.Spec.Steps[c.Step].Copy = &api.TemplateCopy{Sources: c.Sources, Target: target}
	}
	return f, nil
}

// Close closes the folder.
func (f *Files) Close() error { return f.root.Close() }

// ignoring reads a .dockerignore: all its patterns are relative to the folder that it is in.
func ignoring(text string) (*gitignore.List, bool) {
	var lines []string
	again := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		not := ""
		if rest, ok := strings.CutPrefix(line, "!"); ok {
			not, line, again = "!", strings.TrimSpace(rest), true
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		lines = append(lines, not+"/"+strings.TrimPrefix(path.Clean(line), "/"))
	}
	return gitignore.Parse(strings.Join(lines, "\n")), again
}

// add finds what one step copies, and returns the folder that it goes to: as COPY has it, a folder's content, and a
// file under its own name or, where the target does not end with a slash, under that.
func (f *Files) add(c Copy) (target string, err error) {
	var found []string
	for _, pattern := range c.Sources {
		clean := strings.TrimPrefix(path.Clean("/"+pattern), "/")
		if clean == "" {
			clean = "."
		}
		names, err := fs.Glob(f.root.FS(), clean)
		if err != nil {
			return "", wrong(c.Line, "copy %s: %v", pattern, err)
		}
		if len(names) == 0 {
			return "", api.Errorf(api.NotFound, "line %d: copy %s: no such file below %s", c.Line, pattern,
				f.root.Name()).
				WithHint("paths are relative to the folder of the context, and nothing outside of it can be copied")
		}
		found = append(found, names...)
	}
	prefix := strconv.Itoa(c.Step)
	target = path.Clean(c.Target)
	f.parts = append(f.parts, part{"", prefix})
	for _, name := range found {
		st, err := f.root.Stat(name)
		if err != nil {
			return "", wrong(c.Line, "copy %s: %v", name, err)
		}
		switch {
		case st.IsDir():
			f.parts = append(f.parts, part{name, prefix})
		case strings.HasSuffix(c.Target, "/") || len(found) > 1 || len(c.Sources) > 1:
			f.parts = append(f.parts, part{name, prefix + "/" + path.Base(name)})
		default:
			f.parts = append(f.parts, part{name, prefix + "/" + path.Base(target)})
			target = path.Dir(target)
		}
	}
	return target, nil
}

// Pack writes the archive that template.create takes.
func (f *Files) Pack(ctx context.Context, w io.Writer) error {
	out := tar.NewWriter(w)
	for _, p := range f.parts {
		if err := f.pack(ctx, out, p); err != nil {
			return err
		}
	}
	return out.Close()
}

func (f *Files) pack(ctx context.Context, out *tar.Writer, p part) error {
	if p.path == "" { // the step's own entry, should it copy nothing else
		return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: p.as + "/", Mode: 0o755, Format: tar.FormatPAX})
	}
	st, err := f.root.Stat(p.path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return f.file(out, p.path, p.as, st)
	}
	inherited := map[string]bool{}
	return fs.WalkDir(f.root.FS(), p.path, func(at string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		skip := f.skips(at, d.IsDir(), inherited[path.Dir(at)])
		inherited[at] = skip
		if skip && d.IsDir() && !f.again {
			return fs.SkipDir
		}
		if skip || at == p.path {
			return nil
		}
		as := p.as + "/" + strings.TrimPrefix(at, p.path+"/")
		if p.path == "." {
			as = p.as + "/" + at
		}
		st, err := f.root.Lstat(at)
		if err != nil {
			return err
		}
		return f.file(out, at, as, st)
	})
}

// skips says that .dockerignore names a path, or what it lies in.
func (f *Files) skips(at string, folder, above bool) bool {
	if at == "." {
		return false
	}
	switch f.ignored.Match(at, folder) {
	case gitignore.Ignore:
		return true
	case gitignore.Include:
		return false
	}
	return above
}

// file writes one file, link or folder; of others there is no copy.
func (f *Files) file(out *tar.Writer, at, as string, st fs.FileInfo) error {
	h := &tar.Header{Name: as, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	switch {
	case st.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
		return out.WriteHeader(h)
	case st.Mode()&fs.ModeSymlink != 0:
		to, err := f.root.Readlink(at)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, to, 0o777
		return out.WriteHeader(h)
	case !st.Mode().IsRegular():
		return nil
	}
	file, err := f.root.OpenFile(at, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(file, h.Size))
	if err == nil && n < h.Size {
		err = fmt.Errorf("%s has become shorter meanwhile", at)
	}
	return err
}

// ReadFile reads a file that defines a template.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if n, err := io.Copy(&b, io.LimitReader(f, MaxFile+1)); err != nil || n > MaxFile {
		return nil, errors.Join(err, fmt.Errorf("%s has more than %d bytes", name, MaxFile))
	}
	return b.Bytes(), nil
}
