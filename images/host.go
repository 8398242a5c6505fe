package images

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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
	root    hostRoot
	img     *HostImage
	lease   *Lease
	sources []source
	checked time.Time  // when sources were compared
	watch   *hostWatch // of sources; may be nil
}

// current reports whether the skeleton is what the host is now.
func (c *hostCache) current() bool {
	if c.watch.quiet() || c.watch == nil && time.Since(c.checked) < hostRecheck {
		return true
	}
	return c.compare()
}

// compare looks at every source, which it has watched from before that on.
func (c *hostCache) compare() bool {
	c.watch, c.checked = watchHost(c.watch, c.sources), time.Now()
	return unchanged(c.sources)
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
	root := hostRoot{dir: filepath.Clean("/" + h.Root), opt: h.Opt}
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
		c.watch.close()
		c.watch, c.checked = nil, time.Time{}
	}
	return img, nil
}

// leasedHost builds or finds a skeleton and leases it. Another process may
// collect an unused one between the two, hence the second try.
func (s *Store) leasedHost(root hostRoot) (*HostImage, []source, *Lease, error) {
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

// hostRoot is a host whose programs are shown.
type hostRoot struct {
	dir string
	opt bool
}

func (r hostRoot) path(p string) string { return filepath.Join(r.dir, p) }

// isDir reports whether p is a folder of the host and not a symlink to one.
func (r hostRoot) isDir(p string) bool {
	st, err := os.Lstat(r.path(p))
	return err == nil && st.IsDir()
}

// programFolders are the top-level folders that hold programs. Where /usr is
// merged the first four are symlinks into it; elsewhere (Alpine, Debian before
// 12) they are folders of their own and are shown beside it.
var programFolders = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// stores are the folders that programs of NixOS and Guix are links into.
var stores = []string{"/nix/store", "/gnu/store"}

// programData are folders of /var in which programs keep parts of themselves that they have made, as TeX its formats
// and indexes.
var programData = []string{"/var/lib/texmf"}

// systemProfiles are where NixOS and Guix keep the programs of the running
// system. /run is hidden, so PATH names what the links lead to.
var systemProfiles = []string{"/run/current-system/sw", "/run/current-system/profile"}

// binds lists the host folders to show. masks is the folder, relative to the
// store, that holds the hiding layer for /usr.
func (r hostRoot) binds(masks string) []Bind {
	var binds []Bind
	add := func(target string) {
		binds = append(binds, Bind{Source: r.path(target), Target: target, Recursive: true})
	}
	for _, d := range programFolders {
		if r.isDir("/" + d) {
			add("/" + d)
		}
	}
	if r.isDir("/usr") {
		binds = append(binds, Bind{
			Source: r.path("/usr"), Target: "/usr", Recursive: true, Overlay: path.Join(masks, "usr"), Hide: r.hidden(),
		})
	}
	for _, d := range slices.Concat(stores, programData) {
		if r.isDir(d) {
			add(d)
		}
	}
	if r.opt && r.isDir("/opt") {
		add("/opt")
	}
	return binds
}

// hidden are the masked folders that exist on this host and are reached
// without symlinks; a mask over a symlink would cover what it leads to.
func (r hostRoot) hidden() []string {
	var found []string
	for _, m := range maskedFolders {
		p, ok := m.what, true
		for d := p; d != "/"; d = path.Dir(d) {
			ok = ok && r.isDir(d)
		}
		if ok {
			found = append(found, p)
		}
	}
	return found
}

// config is how the host image is run.
func (r hostRoot) config() Config {
	paths := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, p := range systemProfiles {
		if real, ok := r.resolve(p); ok && r.shown(real) {
			paths = append(paths, path.Join(real, "bin"))
		}
	}
	cfg := Config{Env: []string{"PATH=" + strings.Join(paths, ":"), "LANG=C.UTF-8"}, Cmd: []string{r.shell()}}
	return cfg
}

// shell is the shell inside: bash if the host has it.
func (r hostRoot) shell() string {
	for _, sh := range []string{"/bin/bash", "/usr/bin/bash"} {
		if real, ok := r.resolve(sh); ok && r.shown(real) {
			return sh
		}
	}
	return "/bin/sh"
}

// resolve follows all symlinks of p as the host would, within its root.
func (r hostRoot) resolve(p string) (string, bool) {
	dir, err := unix.Open(r.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(dir)
	fd, err := openInRoot(dir, p)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(r.dir, real)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return "/" + rel, true
}

// shown reports whether the resolved host path p is visible inside through a
// bind.
func (r hostRoot) shown(p string) bool {
	for _, b := range r.binds("") {
		if within(p, b.Target) {
			for _, h := range b.Hide {
				if within(p, h) {
					return false
				}
			}
			return true
		}
	}
	return false
}

// within reports whether the clean absolute path p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
