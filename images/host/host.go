// Package host looks at the machine whose programs the built-in image shows: which of its folders are shown, what of
// /etc they need, and which names tell nothing about the machine. It makes the lowest layer of that image, a skeleton
// of files without secrets, and says when it is out of date. The store of images keeps it (images/host.go).
package host

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bind shows a folder of the host, read-only, nosuid and nodev.
type Bind struct {
	// Source is an absolute path of the host, without symlinks.
	Source string `json:"source"`
	// Target is an absolute path in the root filesystem; its folder exists in
	// the overlay and no part of it is a symlink.
	Target string `json:"target"`
	// Recursive bind mounts take the mounts below Source with them. In a user
	// namespace any other bind of a folder with mounts below it fails.
	Recursive bool `json:"recursive"`
	// Overlay, unless empty, is a folder relative to the store that hides parts
	// of Source when it is the upper of two lower folders: mount a read-only
	// overlay of [Overlay, Source] at Target. That shows neither host paths nor
	// device names in the sandbox's mountinfo, but the kernel refuses it in a
	// user namespace when the host has a mount below Source: then bind Source
	// and cover each folder of Hide.
	Overlay string `json:"overlay,omitempty"`
	// Hide are absolute paths in the root filesystem that an empty read-only
	// folder must cover when Overlay is empty or could not be mounted.
	Hide []string `json:"hide,omitempty"`
}

// Root is a host whose programs are shown.
type Root struct {
	// Dir is the root folder of the host; Opt shows its /opt.
	Dir string
	Opt bool
}

func (r Root) path(p string) string { return filepath.Join(r.Dir, p) }

// isDir reports whether p is a folder of the host and not a symlink to one.
func (r Root) isDir(p string) bool {
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

// Binds lists the host folders to show. masks is the folder, relative to the
// store, that holds the hiding layer for /usr.
func (r Root) Binds(masks string) []Bind {
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
	if r.Opt && r.isDir("/opt") {
		add("/opt")
	}
	return binds
}

// hidden are the masked folders that exist on this host and are reached
// without symlinks; a mask over a symlink would cover what it leads to.
func (r Root) hidden() []string {
	var found []string
	for _, m := range MaskedFolders {
		p, ok := m.What, true
		for d := p; d != "/"; d = path.Dir(d) {
			ok = ok && r.isDir(d)
		}
		if ok {
			found = append(found, p)
		}
	}
	return found
}

// Run is how the image is run: its environment and its command.
func (r Root) Run() (env, cmd []string) {
	paths := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, p := range systemProfiles {
		if real, ok := r.resolve(p); ok && r.shown(real) {
			paths = append(paths, path.Join(real, "bin"))
		}
	}
	return []string{"PATH=" + strings.Join(paths, ":"), "LANG=C.UTF-8"}, []string{r.shell()}
}

// shell is the shell inside: bash if the host has it.
func (r Root) shell() string {
	for _, sh := range []string{"/bin/bash", "/usr/bin/bash"} {
		if real, ok := r.resolve(sh); ok && r.shown(real) {
			return sh
		}
	}
	return "/bin/sh"
}

// resolve follows all symlinks of p as the host would, within its root.
func (r Root) resolve(p string) (string, bool) {
	dir, err := unix.Open(r.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
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
	rel, err := filepath.Rel(r.Dir, real)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return "/" + rel, true
}

// shown reports whether the resolved host path p is visible inside through a
// bind.
func (r Root) shown(p string) bool {
	for _, b := range r.Binds("") {
		if Within(p, b.Target) {
			for _, h := range b.Hide {
				if Within(p, h) {
					return false
				}
			}
			return true
		}
	}
	return false
}

// Within reports whether the clean absolute path p is dir or lies below it.
func Within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
