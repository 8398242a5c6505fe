package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/host"
)

// HostOptions choose what the built-in image shows of the machine.
type HostOptions struct {
	// Root is the root folder of the host, "/" if empty. Tests point it at a
	// tree of their own.
	Root string
	// Opt shows the host's /opt, which can hold anything and is hidden by
	// default.
	Opt bool
	// Platform that is wanted, "os/arch[/variant]"; empty is this machine's, which
	// is the only one there is.
	Platform string
}

// HostImage is the built-in image "host": the host's own /usr, read-only, over
// a skeleton of files without secrets. It needs no network and no registry.
type HostImage struct {
	// Config is how to run it: a PATH, LANG=C.UTF-8 and a shell.
	Config Config
	// Rootfs is the skeleton as Lower and the host's folders as Binds.
	Rootfs Rootfs
	// ID changes whenever the skeleton's content does.
	ID string
	// Platform is the machine's.
	Platform string
}

// hostRecheck is how long a skeleton whose sources cannot be watched is used without looking at the host
// again. Looking costs one lstat for each of its few hundred sources.
const hostRecheck = time.Second

// hostCache remembers the skeleton this process uses, and keeps it from being
// collected by others.
type hostCache struct {
	mu      sync.Mutex
	root    host.Root
	img     *HostImage
	lease   *Lease
	sources []host.Source
	checked time.Time   // when sources were compared
	watch   *host.Watch // of sources; may be nil
}

// current reports whether the skeleton is what the host is now.
func (c *hostCache) current() bool {
	if c.watch.Quiet() || c.watch == nil && time.Since(c.checked) < hostRecheck {
		return true
	}
	return c.compare()
}

// compare looks at every source, which it has watched from before that on.
func (c *hostCache) compare() bool {
	c.watch, c.checked = host.NewWatch(c.watch, c.sources), time.Now()
	return host.Unchanged(c.sources)
}

// Host describes the built-in image. The first call of all builds its
// skeleton (about 100 ms), the first of a process looks for it (6 ms); later
// ones reuse it until a source on the host changes. A skeleton stays until
// this store is closed or another one replaces it; sandboxes must Lease it.
func (s *Store) Host(h HostOptions) (*HostImage, error) {
	want, err := parsePlatform(h.Platform)
	if err != nil {
		return nil, err
	}
	if own := (platform{OS: "linux", Arch: runtime.GOARCH}); !want.accepts(own) {
		return nil, wrongPlatform(HostRef, want, []string{own.String()})
	}
	root := host.Root{Dir: filepath.Clean("/" + h.Root), Opt: h.Opt}
	c := &s.host
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.img != nil && c.root == root && c.current() {
		return c.img, nil
	}
	img, sources, lease, err := s.leasedHost(root)
	if err != nil {
		return nil, storeError(err, "prepare the image "+HostRef, s.dir)
	}
	if c.lease != nil {
		c.lease.Release()
	}
	c.root, c.img, c.lease, c.sources = root, img, lease, sources
	if !c.compare() { // it has changed meanwhile: the next call looks again
		c.watch.Close()
		c.watch, c.checked = nil, time.Time{}
	}
	return img, nil
}

// leasedHost builds or finds a skeleton and leases it. Another process may
// collect an unused one between the two, hence the second try.
func (s *Store) leasedHost(root host.Root) (*HostImage, []host.Source, *Lease, error) {
	var errs []error
	for range 2 {
		img, sources, err := s.buildHost(root)
		if err != nil {
			return nil, nil, nil, err
		}
		lease, err := s.Lease(img.Rootfs.Lower)
		if err == nil {
			return img, sources, lease, nil
		}
		errs = append(errs, err)
	}
	return nil, nil, nil, errors.Join(errs...)
}

// skeletonMask is a skeleton's second folder beside unitRoot: laid over /usr it hides parts of it.
const skeletonMask = "mask"

// buildHost finds the skeleton of a host, or makes it.
func (s *Store) buildHost(root host.Root) (*HostImage, []host.Source, error) {
	v, err := host.Look(root)
	if err != nil {
		return nil, nil, err
	}
	id := v.ID()
	name := path.Join(hostDir, id)
	if _, err := os.Lstat(s.path(name)); err != nil {
		if err := s.buildSkeleton(v, name); err != nil {
			return nil, nil, err
		}
	}
	env, cmd := root.Run()
	return &HostImage{
		Config:   Config{Env: env, Cmd: cmd},
		Rootfs:   Rootfs{Lower: []string{path.Join(name, unitRoot)}, Binds: root.Binds(path.Join(name, skeletonMask))},
		ID:       id,
		Platform: "linux/" + runtime.GOARCH,
	}, v.Sources(), nil
}

// buildSkeleton makes a skeleton aside and commits it by a rename.
func (s *Store) buildSkeleton(v *host.View, name string) error {
	t, err := s.newTmp()
	if err != nil {
		return err
	}
	defer t.discard()
	work := filepath.Join(t.path, "host")
	if err := v.Build(filepath.Join(work, unitRoot), filepath.Join(work, skeletonMask)); err != nil {
		return err
	}
	return commitDir(work, s.path(name))
}

// commitDir renames a finished folder to its name. An older one of the same
// name stays: names tell contents.
func commitDir(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a file system without RENAME_NOREPLACE
		err = os.Rename(from, to) // fails with ENOTEMPTY when it exists
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("commit %s: %w", to, err)
	}
	return nil
}
