package images

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/registry"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/runtime/api"
)

// writeManifest records the files of a unit that this process made itself.
func writeManifest(ctx context.Context, work string) error {
	root, err := openDir(filepath.Join(work, unitRoot))
	if err != nil {
		return err
	}
	defer root.Close()
	manifest, attributes, err := createManifest(work)
	if err != nil {
		return err
	}
	return errors.Join(unpack.WriteManifest(ctx, manifest, attributes, root, unpack.Checksums(ctx), nil),
		manifest.Close(), attributes.Close())
}

// createManifest makes the files that record what is in a new unit. They are the caller's.
func createManifest(work string) (manifest, attributes *os.File, err error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if manifest, err = os.OpenFile(filepath.Join(work, manifestFile), flags, 0o600); err != nil {
		return nil, nil, err
	}
	if attributes, err = os.OpenFile(filepath.Join(work, attributesFile), flags, 0o600); err != nil {
		return nil, nil, errors.Join(err, manifest.Close())
	}
	return manifest, attributes, nil
}

// maxProblems bounds the problems of a layer that are told one by one.
const maxProblems = 20

// VerifyOptions are for Verify. The zero value only looks.
type VerifyOptions struct {
	Repair bool // layers that are damaged are fetched again from the registry; one that a sandbox uses is not touched
	// Settle waits until those who have stopped to use layers have let go of them, and keeps new ones
	// away until release is called; nil where nobody lets go behind a reply. It is called when a
	// layer was fetched, so that nobody waits for a network.
	Settle func() (release func())
}

// Verify reads every file of the layers of an image, or with ref "" of all images, and
// compares them with what was recorded when they were unpacked. A layer that several
// images have is read once.
func (s *Store) Verify(ctx context.Context, ref string, o VerifyOptions) ([]api.LayerCheck, error) {
	images, err := s.verifiable(ref)
	if err != nil {
		return nil, err
	}
	checks := layersOf(images)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.ParallelLayers)
	for i := range checks {
		g.Go(func() error { return s.verifyLayer(gctx, &checks[i]) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if e := canceled(err); e != nil {
			return nil, e.WithOp("verify images")
		}
		return nil, storeError(err, "verify images", s.dir)
	}
	if o.Repair {
		for i := range checks {
			if checks[i].Status == api.LayerDamaged {
				if err := s.repair(ctx, &checks[i], o); err != nil {
					return checks, err
				}
			}
		}
	}
	return checks, nil
}

func (s *Store) verifiable(ref string) ([]*Image, error) {
	if ref == "" {
		return s.List()
	}
	if ref == HostRef {
		return nil, api.Errorf(api.InvalidArgument, "the image %q is the machine's own", HostRef).WithField("ref").
			WithHint("What it keeps is made again whenever the machine changes.")
	}
	img, err := s.Get(ref)
	if err != nil {
		return nil, err
	}
	return []*Image{img}, nil
}

// layersOf lists the layers of images, each once, in a stable order.
func layersOf(images []*Image) []api.LayerCheck {
	var checks []api.LayerCheck
	at := make(map[string]int)
	for _, img := range images {
		for _, folder := range img.Layers {
			name := unit(folder)
			i, ok := at[name]
			if !ok {
				i = len(checks)
				at[name] = i
				checks = append(checks, api.LayerCheck{Layer: path.Base(name)})
			}
			checks[i].Images = append(checks[i].Images, img.Ref)
		}
	}
	return checks
}

// verifyLayer compares one layer with its manifest.
func (s *Store) verifyLayer(ctx context.Context, c *api.LayerCheck) error {
	name := path.Join(layersDir, c.Layer)
	lease, err := s.Lease([]string{name})
	if err != nil {
		return err
	}
	defer lease.Release()
	recorded, err := os.Open(s.path(path.Join(name, manifestFile)))
	if errors.Is(err, fs.ErrNotExist) {
		c.Status = api.LayerUnknown // unpacked by a build that recorded nothing
		return nil
	}
	if err != nil {
		return err
	}
	defer recorded.Close()
	root, err := openDir(s.path(path.Join(name, unitRoot)))
	if err != nil {
		return err
	}
	defer root.Close()
	m := comparison{c: c, lines: scan(recorded), content: unpack.Checksums(ctx)}
	m.next()
	extended, err := os.Open(s.path(path.Join(name, attributesFile)))
	switch {
	case err == nil:
		defer extended.Close()
		m.extended = scan(extended)
		m.nextExtended()
	case !errors.Is(err, fs.ErrNotExist): // else of a build that recorded none: they are not compared
		return err
	}
	if err := unpack.Walk(ctx, root, m.visit); err != nil {
		if ctx.Err() != nil {
			return err
		}
		m.problem(fmt.Sprintf("cannot be read on: %v", err)) // what damage can do, too
	}
	for m.path != "" { // what comes after the last that is there
		m.problem(fmt.Sprintf("%q is missing", m.path))
		m.next()
	}
	if err := m.lines.Err(); err != nil {
		m.problem(fmt.Sprintf("its manifest: %v", err))
	}
	if c.Status == "" {
		c.Status = api.LayerGood
	}
	return nil
}

// comparison goes through a manifest and a folder side by side: both are in the order
// of unpack.ComparePaths.
type comparison struct {
	c          *api.LayerCheck
	lines      *bufio.Scanner
	line, path string // the next of the manifest; path is "" at its end
	content    func(n *unpack.Node) (uint32, error)
	// The same of the extended attributes: nil where there are none recorded.
	extended                   *bufio.Scanner
	extendedLine, extendedPath string
}

func scan(f *os.File) *bufio.Scanner {
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<10) // two paths, every byte of them quoted as four
	return lines
}

// nextExtended goes on to the next node that has attributes. A damaged line is no node's,
// so that one is missed.
func (m *comparison) nextExtended() {
	m.extendedLine, m.extendedPath = "", ""
	for m.extendedPath == "" && m.extended.Scan() {
		m.extendedLine = m.extended.Text()
		m.extendedPath, _ = unpack.PathOf(m.extendedLine)
	}
}

// attributes compares those of a node that the layer has.
func (m *comparison) attributes(n *unpack.Node) {
	if m.extended == nil {
		return
	}
	for m.extendedPath != "" && unpack.ComparePaths(m.extendedPath, n.Path) < 0 {
		m.nextExtended() // its node is missing, which is told
	}
	was := ""
	if m.extendedPath == n.Path {
		was = m.extendedLine
	}
	switch line, err := n.AttributesLine(); {
	case err != nil:
		m.problem(fmt.Sprintf("%q cannot be read: %v", n.Path, err))
	case line != was:
		m.problem(fmt.Sprintf("%q has other extended attributes", n.Path))
	}
}

func (m *comparison) next() {
	m.line, m.path = "", ""
	for m.lines.Scan() {
		p, err := unpack.PathOf(m.lines.Text())
		if err == nil && p != "" {
			m.line, m.path = m.lines.Text(), p
			return
		}
		m.problem("its manifest has a line that is none")
	}
}

func (m *comparison) problem(what string) {
	m.c.Status = api.LayerDamaged
	if len(m.c.Problems) < maxProblems {
		m.c.Problems = append(m.c.Problems, what)
	} else {
		m.c.MoreProblems++
	}
}

func (m *comparison) visit(n *unpack.Node) error {
	for m.path != "" && unpack.ComparePaths(m.path, n.Path) < 0 {
		m.problem(fmt.Sprintf("%q is missing", m.path))
		m.next()
	}
	m.c.Files++
	if m.path != n.Path {
		m.problem(fmt.Sprintf("%q was not in the layer", n.Path))
		return nil
	}
	// The worker that wrote the manifest was uid 0 of a user namespace, whoever this is.
	if n.Stat.Uid == uint32(os.Geteuid()) {
		n.Stat.Uid = 0
	}
	if n.Stat.Gid == uint32(os.Getegid()) {
		n.Stat.Gid = 0
	}
	line, err := n.Line(m.content)
	switch {
	case err != nil:
		m.problem(fmt.Sprintf("%q cannot be read: %v", n.Path, err))
	case line != m.line:
		m.problem(fmt.Sprintf("%q %s", n.Path, difference(m.line, line)))
	default:
		m.attributes(n)
	}
	if n.Stat.Mode&unix.S_IFMT == unix.S_IFREG {
		m.c.Bytes += n.Stat.Size
	}
	m.next()
	return nil
}

// columns of a manifest's line, as far as they are told apart.
var columns = []string{"is of another kind", "has another mode", "has another owner", "has another size",
	"has another time"}

// difference says what differs between two lines for the same path.
func difference(was, is string) string {
	a, b := strings.SplitN(was, " ", 6), strings.SplitN(is, " ", 6)
	var all []string
	for i, what := range columns {
		if i < len(a) && i < len(b) && a[i] != b[i] {
			all = append(all, what)
		}
	}
	if a[len(a)-1] != b[len(b)-1] {
		all = append(all, "has another content")
	}
	return strings.Join(all, ", ")
}

// repair fetches a layer again and puts it in the place of the damaged one, which
// nobody uses meanwhile.
func (s *Store) repair(ctx context.Context, c *api.LayerCheck, o VerifyOptions) error {
	op := "repair layer " + c.Layer
	var last error
	for _, ref := range c.Images {
		if last = s.repairFrom(ctx, ref, path.Join(layersDir, c.Layer), o); last == nil {
			c.Status = api.LayerRepaired
			return nil
		}
	}
	return remoteError(last, op, s.dir)
}

func (s *Store) repairFrom(ctx context.Context, ref, name string, o VerifyOptions) error {
	rec, err := s.readRecord(ref)
	if err != nil {
		return err
	}
	from := rec.pulledAs()
	if from == "" {
		return api.Errorf(api.FailedPrecondition, "the image %s came from no registry", ref).
			WithHint("Import or build it again.")
	}
	named, err := registry.Parse(from)
	if err != nil {
		return err
	}
	// By digest: the tag may stand for another image by now.
	exact, err := reference.WithDigest(reference.TrimNamed(named), digest.Digest(rec.Digest))
	if err != nil {
		return err
	}
	want, err := parsePlatform(rec.Platform)
	if err != nil {
		return err
	}
	r, err := s.openRemote(ctx, exact, want)
	if err != nil {
		return err
	}
	defer r.close()
	i := slices.IndexFunc(r.config.RootFS.DiffIDs, func(d string) bool { return s.layerUnit(d) == name })
	if i < 0 {
		return api.Errorf(api.FailedPrecondition, "%s is not a layer of %s but was made for it", path.Base(name), ref).
			WithHint("Remove the image (hutch image rm %s) and pull it again.", ref)
	}
	unlock, err := s.lockUnit(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	t, work, err := s.newUnit()
	if err != nil {
		return err
	}
	defer t.discard()
	st, err := s.stream(ctx, r, r.layers[i], digest.Digest(r.config.RootFS.DiffIDs[i]), work, newReporter(nil))
	if err != nil {
		return err
	}
	if err := writeMeta(work, st); err != nil {
		return err
	}
	if o.Settle != nil {
		defer o.Settle()()
	}
	return s.exchange(work, name)
}

// exchange puts work in the place of a unit that nobody uses; the old one is then where
// work was.
func (s *Store) exchange(work, name string) error {
	if err := s.sync(); err != nil { // before it can be seen: a power cut must not leave a worse one
		return err
	}
	dir, err := openDir(s.path(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	err = flockNow(dir, unix.LOCK_EX)
	if s.leases.held(name) || errors.Is(err, unix.EWOULDBLOCK) {
		return api.Errorf(api.FailedPrecondition, "the layer %s is in use", path.Base(name)).
			WithHint("Remove the sandboxes of its images first: hutch ps -a.")
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, work, unix.AT_FDCWD, s.path(name), unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}
