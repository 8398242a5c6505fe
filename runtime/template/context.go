package template

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// maxContextEntries bounds the files that the steps of one template copy.
const maxContextEntries = 200_000

// takeContext keeps the archive that the client sends through a pipe, and notes the digests of what each step copies.
// Nothing of it is unpacked here: a worker in the sandbox of a build does that.
func (n *making) takeContext(ctx context.Context, steps []api.TemplateStep, index int, fds packet.Taker) error {
	pipe, err := takePipe(index, fds)
	if err != nil {
		return err
	}
	defer pipe.Close()
	defer context.AfterFunc(ctx, func() { _ = pipe.SetReadDeadline(time.Unix(1, 0)) })()
	f, err := os.OpenFile(filepath.Join(n.dir, contextFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("keep the files of a template: %w", err)
	}
	defer f.Close()
	digests, err := copyContext(f, pipe, len(steps))
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	for i := range steps {
		switch d := digests[i]; {
		case steps[i].Copy == nil && d != "":
			return badContext("it has files of step %d, which copies none", i)
		case steps[i].Copy != nil && d == "":
			return badContext("it has no files of step %d, which copies some", i)
		case d != "":
			c := *steps[i].Copy
			c.Digest = d
			steps[i].Copy = &c
		}
	}
	return f.Close()
}

func badContext(format string, args ...any) error {
	return api.Errorf(api.InvalidArgument, "context: "+format, args...).WithField("context").
		WithHint("it is a tar archive of files, folders and symbolic links, whose names begin with the number of their step, from 0, and a slash")
}

// takePipe takes the read end of a pipe as a file that deadlines work on.
func takePipe(index int, fds packet.Taker) (*os.File, error) {
	f, err := fds.Take(index)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Statfs_t
	flags := 0
	fd := -1
	var dupErr error
	rc, err := f.SyscallConn()
	if err == nil {
		err = rc.Control(func(given uintptr) {
			_ = unix.Fstatfs(int(given), &st)
			flags, _ = unix.FcntlInt(given, unix.F_GETFL, 0)
			fd, dupErr = unix.FcntlInt(given, unix.F_DUPFD_CLOEXEC, 0)
		})
	}
	if err = cmp.Or(err, dupErr); err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	if st.Type != unix.PIPEFS_MAGIC || flags&unix.O_PATH != 0 || flags&unix.O_ACCMODE == unix.O_WRONLY {
		_ = unix.Close(fd)
		return nil, badContext("it is not the read end of a pipe")
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("context: %w", err)
	}
	return os.NewFile(uintptr(fd), "context"), nil
}

// copyContext writes an archive anew, with nothing in it but what a step can copy, and returns the digest of each
// step's part.
func copyContext(w io.Writer, r io.Reader, steps int) ([]string, error) {
	sums := make([]hash.Hash, steps)
	in, out := tar.NewReader(io.LimitReader(r, api.MaxTemplateContext+1<<20)), tar.NewWriter(w)
	var bytes int64
	for n := 0; ; n++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badContext("%v", err)
		}
		step, err := stepOf(h, steps)
		if err != nil {
			return nil, err
		}
		if bytes += h.Size; n >= maxContextEntries || bytes > api.MaxTemplateContext {
			return nil, api.Errorf(api.ResourceExhausted, "context: more than %d files, or than %d bytes",
				maxContextEntries, api.MaxTemplateContext).WithField("context").
				WithHint("leave out what is not needed: .dockerignore names it")
		}
		own := &tar.Header{Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Mode: h.Mode & 0o7777,
			ModTime: h.ModTime, Size: h.Size, Format: tar.FormatPAX}
		if err := out.WriteHeader(own); err != nil {
			return nil, badContext("%v", err)
		}
		if sums[step] == nil {
			sums[step] = sha256.New()
		}
		_, name, _ := strings.Cut(h.Name, "/")
		fmt.Fprintf(sums[step], "%q %c %o %q %d\n", strings.TrimSuffix(name, "/"), h.Typeflag, own.Mode,
			h.Linkname, h.Size)
		if _, err := io.Copy(io.MultiWriter(out, sums[step]), in); err != nil {
			return nil, fmt.Errorf("context: %w", err)
		}
	}
	digests := make([]string, steps)
	for i, s := range sums {
		if s != nil {
			digests[i] = "sha256:" + hex.EncodeToString(s.Sum(nil))
		}
	}
	return digests, out.Close()
}

// stepOf checks an entry and returns the step that it belongs to.
func stepOf(h *tar.Header, steps int) (int, error) {
	first, rest, _ := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
	step, err := strconv.Atoi(first)
	if err != nil || step < 0 || step >= steps || strconv.Itoa(step) != first {
		return 0, badContext("%q does not begin with the number of a step", h.Name)
	}
	if rest != "" && (!filepath.IsLocal(rest) || filepath.Clean(rest) != rest) || strings.ContainsRune(h.Name, 0) ||
		len(h.Name) > 4096 {
		return 0, badContext("%q leads elsewhere", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return step, nil
	case tar.TypeReg, tar.TypeSymlink:
		if rest != "" && (h.Typeflag == tar.TypeSymlink) == (h.Linkname != "") {
			return step, nil
		}
	}
	return 0, badContext("%q is neither a file nor a folder nor a symbolic link", h.Name)
}

// sendContext writes the part of a kept archive that belongs to one step, with the names that it has in the sandbox.
func sendContext(w io.Writer, archive io.Reader, step int) error {
	prefix := strconv.Itoa(step) + "/"
	in, out := tar.NewReader(archive), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return fmt.Errorf("read the files of a template: %w", err)
		}
		name, ok := strings.CutPrefix(h.Name, prefix)
		if !ok || name == "" {
			continue
		}
		h.Name = name
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}
