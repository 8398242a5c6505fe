package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Bounds of an archive that holds images. Its files are never written anywhere:
// what is bounded is the memory that their names and the JSON among them take.
const (
	maxArchiveEntries = 200_000
	maxArchiveJSON    = 4 << 20 // as much as containers/image takes of a manifest
	maxArchiveLinks   = 8       // links that lead to links
)

// tarIndex knows where the files of a tar archive lie, so that they can be read in
// any order.
type tarIndex struct {
	r     io.ReaderAt
	files map[string]tarFile // by clean name, without a leading slash
}

type tarFile struct {
	offset, size int64
	link         string // instead: the name of another file
}

// errArchive marks an archive that is damaged, or holds something else than it should.
var errArchive = errors.New("bad archive")

// indexTar reads the headers of an archive of size bytes.
func indexTar(ctx context.Context, r io.ReaderAt, size int64) (*tarIndex, error) {
	if err := refuseCompressed(r); err != nil {
		return nil, err
	}
	x := &tarIndex{r: r, files: make(map[string]tarFile)}
	section := io.NewSectionReader(r, 0, size)
	headers := tar.NewReader(section)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		h, err := headers.Next()
		if errors.Is(err, io.EOF) {
			return x, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: read the headers: %w", errArchive, err)
		}
		if n == maxArchiveEntries {
			return nil, fmt.Errorf("%w: more than %d files", errArchive, maxArchiveEntries)
		}
		// The reader stands where the content begins; what it skips it seeks over.
		offset, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if err := x.add(h, offset); err != nil {
			return nil, err
		}
	}
}

func (x *tarIndex) add(h *tar.Header, offset int64) error {
	name := entryName(h.Name)
	switch h.Typeflag {
	case tar.TypeReg:
		if h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != "" {
			return fmt.Errorf("%w: %q is sparse: make the archive without tar's --sparse", errArchive, h.Name)
		}
		x.files[name] = tarFile{offset: offset, size: h.Size}
	case tar.TypeGNUSparse:
		return fmt.Errorf("%w: %q is sparse: make the archive without tar's --sparse", errArchive, h.Name)
	case tar.TypeSymlink: // as docker save before 2024 has for layers that images share
		x.files[name] = tarFile{link: entryName(path.Join(path.Dir(name), h.Linkname))}
	case tar.TypeLink:
		x.files[name] = tarFile{link: entryName(h.Linkname)}
	}
	return nil // folders say nothing, and nothing else can hold content
}

func entryName(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// open finds a file, through links of the archive.
func (x *tarIndex) open(name string) (*io.SectionReader, error) {
	at := entryName(name)
	for range maxArchiveLinks {
		f, ok := x.files[at]
		switch {
		case !ok && at == entryName(name):
			return nil, fmt.Errorf("%w: it has no file %q", errArchive, name)
		case !ok:
			return nil, fmt.Errorf("%w: its file %q is a link to %q, which it does not have", errArchive, name, at)
		case f.link == "":
			return io.NewSectionReader(x.r, f.offset, f.size), nil
		}
		at = f.link
	}
	return nil, fmt.Errorf("%w: the links at %q go in circles", errArchive, name)
}

func (x *tarIndex) has(name string) bool { _, ok := x.files[entryName(name)]; return ok }

// read reads a small file, JSON by nature.
func (x *tarIndex) read(name string) ([]byte, error) {
	f, err := x.open(name)
	if err != nil {
		return nil, err
	}
	if f.Size() > maxArchiveJSON {
		return nil, fmt.Errorf("%w: %q has %d bytes, more than %d", errArchive, name, f.Size(), maxArchiveJSON)
	}
	data, err := io.ReadAll(f)
	if err == nil && int64(len(data)) < f.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read %q: %w", errArchive, name, err)
	}
	return data, nil
}

// compressions are how files begin that are compressed, with what undoes it.
var compressions = []struct{ magic, name, tool string }{
	{"\x1f\x8b", "gzip", "zcat"},
	{"\x28\xb5\x2f\xfd", "zstd", "zstdcat"},
	{"BZh", "bzip2", "bzcat"},
	{"\xfd7zXZ\x00", "xz", "xzcat"},
}

// compression tells how what starts with these bytes is compressed; "" is not at all.
func compression(first []byte) (name, tool string) {
	for _, c := range compressions {
		if strings.HasPrefix(string(first), c.magic) {
			return c.name, c.tool
		}
	}
	return "", ""
}

// firstBytes are the first few, less where there are not as many.
func firstBytes(r io.ReaderAt) []byte {
	var b [8]byte
	n, _ := r.ReadAt(b[:], 0) // the reader of the rest meets the error again
	return b[:n]
}

// refuseCompressed: a compressed archive would have to be decompressed by this
// process, which leaves that to confined workers, and kept a second time.
func refuseCompressed(r io.ReaderAt) error {
	name, tool := compression(firstBytes(r))
	if name == "" {
		return nil
	}
	return api.Errorf(api.InvalidArgument, "the archive is compressed with %s", name).
		WithHint("Decompress it on the way: %s FILE | hutch image import docker-archive:- (or oci-archive:-).", tool)
}
