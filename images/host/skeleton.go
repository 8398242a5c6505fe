package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/unpack"
)

// layout is part of a skeleton's name: change it when the code below makes
// another skeleton from the same host.
const layout = "2"

// ID names the skeleton by the state of its sources, so that a later process
// finds it again after a few hundred lstat calls.
func (v *View) ID() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %+v\n", layout, v.binds)
	for _, src := range v.sources {
		fmt.Fprintf(sum, "%q %+v\n", src.path, src.sourceState)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// buildMask makes at mask the upper lower-folder for /usr: an empty opaque folder in
// place of each hidden one.
func buildMask(mask string, root Root) error {
	usr := filepath.Join(mask, "usr")
	if err := mkdirAll(usr, 0o755); err != nil {
		return err
	}
	for _, p := range root.hidden() {
		dir := filepath.Join(mask, p)
		if err := mkdirAll(dir, 0o755); err != nil {
			return err
		}
		err := unix.Setxattr(dir, "user.overlay.opaque", []byte("y"), 0)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return unpack.ErrAttributes
		}
		if err != nil {
			return fmt.Errorf("mark %s opaque: %w", dir, err)
		}
	}
	return nil
}

// mkdirAll is os.MkdirAll with modes that no umask changes.
func mkdirAll(dir string, mode os.FileMode) error {
	if st, err := os.Lstat(dir); err == nil && st.IsDir() {
		return nil
	}
	if err := mkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// Sources are what the skeleton is made of: it is out of date when one has changed.
func (v *View) Sources() []Source { return v.sources }

// Build makes the skeleton at root, and the layer that hides parts of /usr at mask.
func (v *View) Build(root, mask string) error {
	if err := (&skeleton{root: root}).build(v); err != nil {
		return err
	}
	return buildMask(mask, v.host)
}

// skeleton writes the lowest layer of the host image. Its paths are those
// inside; everything belongs to uid 0.
type skeleton struct{ root string }

func (s *skeleton) dir(p string, mode uint32) error {
	full := filepath.Join(s.root, p)
	if err := mkdirAll(full, 0o755); err != nil {
		return err
	}
	return unix.Chmod(full, mode)
}

func (s *skeleton) file(p string, mode uint32, data []byte) error {
	full := filepath.Join(s.root, p)
	if err := mkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(full, data, 0o600); err != nil {
		return err
	}
	return unix.Chmod(full, mode)
}

func (s *skeleton) symlink(p, target string) error {
	full := filepath.Join(s.root, p)
	if err := mkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(target, full); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// stubs are the folders every root filesystem has, empty, with their modes.
// /root is readable by root alone, as on any system.
var stubs = []struct {
	path string
	mode uint32
}{
	{"/", 0o755}, {"/dev", 0o755}, {"/etc", 0o755}, {"/home", 0o755}, {"/media", 0o755}, {"/mnt", 0o755},
	{"/opt", 0o755}, {"/proc", 0o755}, {"/root", 0o700}, {"/run", 0o755}, {"/srv", 0o755}, {"/sys", 0o755},
	{"/tmp", 0o1777}, {"/usr", 0o755}, {"/var", 0o755}, {"/var/cache", 0o755}, {"/var/lib", 0o755},
	{"/var/log", 0o755}, {"/var/spool", 0o755}, {"/var/tmp", 0o1777}, {"/workspace", 0o755},
}

// build makes the stubs, the links of a merged /usr, the synthesised files and
// the copies. Synthesised paths are not in EtcAllowed, so nothing is written
// twice.
func (s *skeleton) build(v *View) error {
	for _, d := range stubs {
		if err := s.dir(d.path, d.mode); err != nil {
			return err
		}
	}
	for _, b := range v.binds {
		if err := s.dir(b.Target, 0o755); err != nil {
			return err
		}
	}
	for _, d := range programFolders {
		if to, err := os.Readlink(v.host.path("/" + d)); err == nil {
			if err := s.symlink("/"+d, to); err != nil {
				return err
			}
		}
	}
	for _, l := range [][2]string{{"/etc/mtab", "../proc/self/mounts"}, {"/var/run", "../run"},
		{"/var/lock", "../run/lock"}} {
		if err := s.symlink(l[0], l[1]); err != nil {
			return err
		}
	}
	if err := s.synthesize(v.host); err != nil {
		return err
	}
	return s.copyNodes(v)
}

func (s *skeleton) copyNodes(v *View) error {
	for _, n := range v.nodes {
		var err error
		switch n.kind {
		case unix.S_IFDIR:
			err = s.dir(n.path, n.mode)
		case unix.S_IFLNK:
			err = s.symlink(n.path, n.target)
		case unix.S_IFREG:
			data, ok, readErr := v.content(n)
			if err = readErr; ok && err == nil {
				err = s.file(n.path, n.mode, data)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// synthesize writes the files of /etc that on the host name its users, its
// network or its machine. resolv.conf, hostname and machine-id are empty, to be
// covered when a sandbox starts.
func (s *skeleton) synthesize(host Root) error {
	files := []struct {
		path string
		data []byte
	}{
		{"/etc/passwd", passwd(host.read("/etc/passwd"), host.shell())},
		{"/etc/group", group(host.read("/etc/group"))},
		{"/etc/nsswitch.conf",
			[]byte("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n")},
		{"/etc/hosts", []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")},
		{"/etc/resolv.conf", nil},
		{"/etc/hostname", nil},
		{"/etc/machine-id", nil},
		// What is in a sandbox is the sandbox's: without subordinate ids a user of its own finds that root has the
		// workspace.
		{"/etc/gitconfig", []byte("[safe]\n\tdirectory = *\n")},
	}
	for _, f := range files {
		if err := s.file(f.path, 0o644, f.data); err != nil {
			return err
		}
	}
	return nil
}

// read gives the content of a host file; nil when it cannot be read.
func (r Root) read(p string) []byte {
	data, err := os.ReadFile(r.path(p))
	if err != nil || len(data) > maxSourceBytes {
		return nil
	}
	return data
}

// systemAccounts are the accounts and groups that distributions define
// themselves and that their programs look up by name. Others, people above
// all, are not shown.
var systemAccounts = map[string]bool{
	"daemon": true, "bin": true, "sys": true, "sync": true, "games": true, "man": true, "lp": true, "mail": true,
	"news": true, "uucp": true, "proxy": true, "www-data": true, "backup": true, "list": true, "irc": true,
	"_apt":     true,
	"operator": true, "ftp": true, "adm": true, "shutdown": true, "halt": true,
	"tty": true, "disk": true, "kmem": true, "dialout": true, "fax": true, "voice": true, "cdrom": true, "floppy": true,
	"tape": true, "sudo": true, "wheel": true, "audio": true, "dip": true, "src": true, "shadow": true, "utmp": true,
	"video": true, "sasl": true, "plugdev": true, "staff": true, "users": true, "input": true, "kvm": true,
	"render": true,
}

// passwd synthesises /etc/passwd: root, the system accounts of the host's and nobody. Passwords, comments and homes of
// the host are not taken over: "*" is none, and sends PAM to no /etc/shadow, which is not there.
func passwd(host []byte, shell string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "root:*:0:0:root:/root:%s\n", shell)
	for _, f := range accounts(host, 7) {
		fmt.Fprintf(&b, "%s:*:%s:%s:%s:%s:%s\n", f[0], f[2], f[3], f[0], f[5], f[6])
	}
	b.WriteString("nobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	return b.Bytes()
}

// group synthesises /etc/group, without members.
func group(host []byte) []byte {
	var b bytes.Buffer
	b.WriteString("root:x:0:\n")
	nobody := "nogroup" // Debian's name; Red Hat's and Alpine's is nobody
	for line := range strings.Lines(string(host)) {
		if strings.HasPrefix(line, "nobody:") {
			nobody = "nobody"
		}
	}
	for _, f := range accounts(host, 4) {
		fmt.Fprintf(&b, "%s:x:%s:\n", f[0], f[2])
	}
	fmt.Fprintf(&b, "%s:x:65534:\n", nobody)
	return b.Bytes()
}

// accounts are the lines of a passwd or group file, split into n fields, that
// belong to system accounts.
func accounts(file []byte, n int) [][]string {
	var found [][]string
	for line := range strings.Lines(string(file)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == n && systemAccounts[f[0]] && len(f[2]) <= 3 && f[2] != "0" {
			found = append(found, f)
		}
	}
	return found
}
