package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// EtcAllowed are the files and folders of the host that the skeleton copies,
// as patterns of path.Match. Everything that is not here is hidden, so a line
// needs a reason: a program that does not work without it, and no place for a
// secret. Only what everybody on the host may read is copied.
var EtcAllowed = []string{
	// The dynamic linker. Not ld.so.preload: it changes every program.
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-*.path",
	// Certificates of authorities, where each distribution keeps them.
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ssl/ca-bundle.pem",
	"/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/pki", "/etc/crypto-policies",
	"/var/lib/ca-certificates",
	// Links that choose an implementation; most commands of Debian's
	// alternatives do not start without them.
	"/etc/alternatives",
	// Time, language and text.
	"/etc/localtime", "/etc/timezone", "/etc/locale*", "/etc/mime.types", "/etc/magic", "/etc/magic.mime",
	"/etc/terminfo", "/etc/fonts",
	// Names of ports and protocols, which getservbyname(3) and others read.
	"/etc/services", "/etc/protocols", "/etc/rpc", "/etc/networks", "/etc/netconfig",
	"/etc/host.conf", "/etc/gai.conf",
	// Shells. Not profile.d, where tokens are exported.
	"/etc/profile", "/etc/bash.bashrc", "/etc/inputrc", "/etc/shells", "/etc/login.defs",
	// What the system is.
	"/etc/os-release", "/etc/lsb-release", "/etc/*-release", "/etc/debian_version",
	// Language runtimes that keep part of themselves in /etc.
	"/etc/python3*", "/etc/java-*-openjdk", "/etc/java", "/etc/ImageMagick-*",
	// How su, sudo and others ask who somebody is, which scripts of packages put together; not who may.
	"/etc/pam.conf", "/etc/pam.d", "/etc/security/*.conf",
	// Where TeX, chromium and LibreOffice are told where the rest of them is.
	"/etc/texmf", "/etc/chromium", "/etc/chromium.d", "/etc/libreoffice",
	// The class path of Maven. Not its settings.xml, which has passwords of repositories.
	"/etc/maven/m2.conf", "/etc/maven/logging",
}

// Hidden is one line of what the image hides, and why. Each has a test by its name in
// TestHostHides.
type Hidden struct{ What, Why string }

// NeverCopied are names that are left out wherever they are.
var NeverCopied = []Hidden{
	{"private", "folders of private keys: /etc/ssl/private, /etc/pki/tls/private"},
	{"*.key", "private keys"},
	{"*.p12", "keys and certificates in one file (PKCS #12)"},
	{"*.jks", "Java's key stores"},
	{"*.password", "passwords of Java's management agents"},
	{"*.password.template", "what those are made from, often filled in"},
	{"*.access", "who may do what over such an agent"},
	{"*~", "an editor's copy of a file that was cleaned of something"},
	{"*.dpkg-*", "the package manager's copies of what the administrator had changed"},
	{"*.gz", "nothing secret, but half of Debian's alternatives are manual pages"},
}

// MaskedFolders are folders of /usr that are left out of it: configuration, not programs.
var MaskedFolders = []Hidden{
	{"/usr/local/etc", "settings of what the administrator installed: npmrc and pip.conf with tokens of registries"},
}

// maxSourceBytes bounds a copied file. The largest in use, a linker cache and
// bundles of certificates, are below 1 MiB.
const maxSourceBytes = 8 << 20

// Source is one file, link or folder of the host that the skeleton depends on,
// and its state when it was copied.
type Source struct {
	path string // absolute, on this machine
	sourceState
}

type sourceState struct {
	mode         uint32
	uid, gid     uint32
	ino          uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stateOf(p string) sourceState {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return sourceState{} // absent
	}
	return sourceState{st.Mode, st.Uid, st.Gid, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// Unchanged reports whether sources are as they were when a skeleton was made of them.
func Unchanged(sources []Source) bool {
	for i := range sources {
		if stateOf(sources[i].path) != sources[i].sourceState {
			return false
		}
	}
	return true
}

// View is what a host may show: the result of looking at it, without reading
// any file.
type View struct {
	host    Root
	binds   []Bind
	roots   []string // allowed paths that exist, patterns expanded
	sources []Source
	nodes   []node

	conffiles map[string]string // of packages, with their digests
	folders   map[string]bool   // that those are in, below /etc
}

// node is one thing to copy into the skeleton.
type node struct {
	path   string
	kind   uint32 // S_IFDIR, S_IFREG or S_IFLNK
	mode   uint32
	target string // of a link
	md5    string // that a file must have to be shown, if any
}

// Look walks over everything that is allowed.
func Look(host Root) (*View, error) {
	v := &View{host: host, binds: host.Binds("")}
	for _, pattern := range EtcAllowed {
		v.note(path.Dir(pattern)) // in which it may turn up
		found, err := filepath.Glob(host.path(pattern))
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		for _, p := range found {
			v.roots = append(v.roots, "/"+strings.TrimPrefix(strings.TrimPrefix(p, host.Dir), "/"))
		}
	}
	slices.Sort(v.roots)
	v.roots = slices.Compact(v.roots)
	for _, p := range v.roots {
		if err := v.visit(p); err != nil {
			return nil, err
		}
	}
	v.visitConffiles()
	// What is synthesised depends on these.
	for _, p := range []string{"/etc/passwd", "/etc/group", "/usr", "/usr/local", "/bin/bash", "/usr/bin/bash"} {
		v.note(p)
	}
	// In these a store can turn up. A store itself changes with every installation.
	for _, p := range slices.Concat(stores, programData) {
		v.note(path.Dir(p))
	}
	if host.Opt {
		v.note("/")
	}
	for _, p := range slices.Concat(programFolders, systemProfiles) {
		v.note(path.Join("/", p))
	}
	return v, nil
}

// note records that the skeleton depends on a host path.
func (v *View) note(p string) sourceState {
	st := stateOf(v.host.path(p))
	v.sources = append(v.sources, Source{v.host.path(p), st})
	return st
}

// visit adds a file, a link or a folder with what is below it. What may not be
// shown is left out without an error.
func (v *View) visit(p string) error {
	if neverShown(path.Base(p)) {
		return nil
	}
	st := v.note(p)
	switch st.mode & unix.S_IFMT {
	case unix.S_IFLNK:
		v.visitLink(p)
	case unix.S_IFREG:
		if st.mode&0o004 == 0 || st.size > maxSourceBytes {
			return nil
		}
		v.nodes = append(v.nodes, node{path: p, kind: unix.S_IFREG, mode: shownMode(st.mode)})
	case unix.S_IFDIR:
		if st.mode&0o005 != 0o005 {
			return nil
		}
		return v.visitDir(p)
	}
	return nil
}

// neverShown reports whether a name is left out wherever it is.
func neverShown(name string) bool {
	return slices.ContainsFunc(NeverCopied, func(h Hidden) bool {
		ok, _ := path.Match(h.What, name)
		return ok
	})
}

// shownMode is that of a copy of a file.
func shownMode(mode uint32) uint32 {
	if mode&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

func (v *View) visitDir(p string) error {
	entries, err := os.ReadDir(v.host.path(p))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	v.nodes = append(v.nodes, node{path: p, kind: unix.S_IFDIR, mode: 0o755})
	for _, e := range entries {
		if err := v.visit(path.Join(p, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// visitLink keeps a link whose target is shown or copied too. A link that
// reaches a shown file over hidden ones (NixOS links /etc/ssl over
// /etc/static) is made to lead there directly. Others are left out.
func (v *View) visitLink(p string) {
	to, err := os.Readlink(v.host.path(p))
	if err != nil {
		return // gone meanwhile: the next check of the sources rebuilds
	}
	target := to
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(p), target)
	}
	if !v.allowed(path.Clean(target)) {
		real, ok := v.host.resolve(p)
		if !ok || !v.allowed(real) {
			return
		}
		to = real
	}
	v.nodes = append(v.nodes, node{path: p, kind: unix.S_IFLNK, target: to})
}

// allowed reports whether the clean absolute path p is visible inside.
func (v *View) allowed(p string) bool {
	if v.copied(p) || v.conffiles[p] != "" || v.folders[p] {
		return true
	}
	for _, b := range v.binds {
		if Within(p, b.Target) {
			return !slices.ContainsFunc(b.Hide, func(h string) bool { return Within(p, h) })
		}
	}
	// The merged /usr's links, such as /bin and /lib64.
	top, rest, _ := strings.Cut(p[1:], "/")
	return rest != "" && slices.Contains(programFolders, top)
}

// content reads a regular file of the host that everybody may read. ok is
// false for one that may not be shown: it changed since the look at it, or is not
// what its package brought, or it holds a private key, whatever its name.
func (v *View) content(n node) (data []byte, ok bool, err error) {
	p := n.path
	fd, err := unix.Open(v.host.path(p), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, nil
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o004 == 0 {
		return nil, false, err
	}
	data, err = io.ReadAll(io.LimitReader(f, maxSourceBytes))
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", v.host.path(p), err)
	}
	ok = !bytes.Contains(data, []byte("PRIVATE KEY-----")) && (n.md5 == "" || unmodified(data, n.md5))
	return data, ok, nil
}

// openInRoot opens a path of the host for looking at it only.
func openInRoot(dirfd int, p string) (int, error) {
	return sys.OpenInRoot(dirfd, p, unix.O_PATH, 0)
}
