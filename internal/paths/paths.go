// Package paths decides where hutch keeps its things, in one place for the
// command line, the daemon and the clients.
//
//	         ordinary user                            root
//	socket   $HUTCH_SOCKET, else RUNTIME/hutchd.sock  $HUTCH_SOCKET, else /run/hutch/hutchd.sock
//	runtime  $XDG_RUNTIME_DIR/hutch, else             /run/hutch
//	         /run/user/UID/hutch if that is the
//	         user's own, else /tmp/hutch-UID
//	state    $HUTCH_ROOT, else $XDG_DATA_HOME/hutch,  $HUTCH_ROOT, else /var/lib/hutch
//	         else ~/.local/share/hutch
//	config   $HUTCH_CONFIG, else                      $HUTCH_CONFIG, else /etc/hutch/config.yaml
//	         $XDG_CONFIG_HOME/hutch/config.yaml,
//	         else ~/.config/hutch/config.yaml
//	log      STATE/hutchd.log                         STATE/hutchd.log
//
// The runtime folder does not follow $HUTCH_SOCKET: it holds only locks and
// empty mount points, which several daemons may share.
package paths

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hutch-sh/hutch/runtime/api"
)

// MaxSocket is the longest path of a Unix socket in bytes: sun_path holds 108
// with the terminating zero (unix(7)).
const MaxSocket = 107

// InstalledNetd is where make install-netd puts hutch-netd. An ordinary user's own one has no
// rights.
const InstalledNetd = "/usr/local/libexec/hutch/hutch-netd"

// Paths are one user's places. All are absolute and clean.
type Paths struct {
	Socket  string // the shared daemon's Unix socket
	Runtime string // folder for locks and mount points; gone after a reboot
	State   string // folder for images, records and the log
	Config  string // file; need not exist
	Log     string // file the shared daemon writes to

	uid int
	// ownConfig is false when $HUTCH_CONFIG names the file: its folder is then
	// the user's business.
	ownConfig bool
}

// Resolve returns the places of uid, with env as the environment (os.Getenv).
// It creates nothing. Its only look at the file system is at who owns
// /run/user/UID.
func Resolve(env func(string) string, uid int) (Paths, error) {
	return resolver{env: env, uid: uid, runUser: "/run/user", tmp: "/tmp"}.resolve()
}

// SocketID is a short name for Socket, for files about its daemon in folders that
// daemons of several sockets share.
func (p Paths) SocketID() string {
	sum := sha256.Sum256([]byte(p.Socket))
	return hex.EncodeToString(sum[:6])
}

// ConfigDigest is where the daemon of Socket leaves what command lines want to know of the configuration file.
func (p Paths) ConfigDigest() string {
	return filepath.Join(p.Runtime, "config-"+p.SocketID()+".json")
}

// Approved is where what the user has approved of the configuration file is kept.
func (p Paths) Approved() string { return filepath.Join(p.State, "approved.json") }

// resolver carries what tests replace.
type resolver struct {
	env     func(string) string
	uid     int
	runUser string
	tmp     string
}

func (r resolver) resolve() (Paths, error) {
	p := Paths{uid: r.uid, ownConfig: r.env("HUTCH_CONFIG") == ""}
	var err error
	if p.Runtime, err = r.runtime(); err != nil {
		return Paths{}, err
	}
	if p.Socket, err = r.place("HUTCH_SOCKET", func() (string, error) {
		return filepath.Join(p.Runtime, "hutchd.sock"), nil
	}); err != nil {
		return Paths{}, err
	}
	if p.State, err = r.place("HUTCH_ROOT", func() (string, error) {
		return r.home("XDG_DATA_HOME", ".local/share", "/var/lib/hutch", "HUTCH_ROOT")
	}); err != nil {
		return Paths{}, err
	}
	if p.Config, err = r.place("HUTCH_CONFIG", func() (string, error) {
		dir, err := r.home("XDG_CONFIG_HOME", ".config", "/etc/hutch", "HUTCH_CONFIG")
		return filepath.Join(dir, "config.yaml"), err
	}); err != nil {
		return Paths{}, err
	}
	p.Log = filepath.Join(p.State, "hutchd.log")
	if len(p.Socket) > MaxSocket {
		return Paths{}, api.Errorf(api.InvalidArgument, "socket path %q has %d bytes, a Unix socket's path at most %d",
			p.Socket, len(p.Socket), MaxSocket).WithOp("find socket").WithHint("Set HUTCH_SOCKET to a shorter path.")
	}
	return p, nil
}

// place is the absolute path that the variable name holds, else what otherwise
// returns.
func (r resolver) place(name string, otherwise func() (string, error)) (string, error) {
	v := r.env(name)
	if v == "" {
		return otherwise()
	}
	if !filepath.IsAbs(v) {
		return "", api.Errorf(api.InvalidArgument, "%s=%q is not an absolute path", name, v).
			WithOp("find folders").WithHint("Set %s to a path that starts with /.", name)
	}
	return filepath.Clean(v), nil
}

// home is the hutch folder below an XDG base folder. Relative XDG variables are
// ignored, as the XDG base directory specification demands.
func (r resolver) home(xdg, below, root, override string) (string, error) {
	if r.uid == 0 {
		return root, nil
	}
	if v := r.env(xdg); filepath.IsAbs(v) {
		return filepath.Join(v, "hutch"), nil
	}
	home := r.env("HOME")
	if !filepath.IsAbs(home) {
		return "", api.Errorf(api.InvalidArgument, "HOME=%q is not an absolute path, and neither %s nor %s is set",
			home, override, xdg).
			WithOp("find folders").WithHint("Set HOME, or %s.", override)
	}
	return filepath.Join(home, below, "hutch"), nil
}

func (r resolver) runtime() (string, error) {
	if r.uid == 0 {
		return "/run/hutch", nil
	}
	if v := r.env("XDG_RUNTIME_DIR"); filepath.IsAbs(v) {
		return filepath.Join(v, "hutch"), nil
	}
	user := strconv.Itoa(r.uid)
	dir := filepath.Join(r.runUser, user)
	if st, err := os.Lstat(dir); err == nil && st.IsDir() && owner(st) == r.uid {
		return filepath.Join(dir, "hutch"), nil
	}
	return filepath.Join(r.tmp, "hutch-"+user), nil
}

func owner(st os.FileInfo) int { return int(st.Sys().(*syscall.Stat_t).Uid) }

// Sibling finds another binary of this build: beside the running one, then in
// ../libexec/hutch. PATH is not searched, so that a binary of another build, or
// of somebody else, is never taken.
func Sibling(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	return siblingOf(exe, name)
}

func siblingOf(exe, name string) (string, error) {
	dir := filepath.Dir(exe)
	tried := []string{
		filepath.Join(dir, name),
		filepath.Join(filepath.Dir(dir), "libexec", "hutch", name),
	}
	for _, path := range tried {
		if isProgram(path) {
			return path, nil
		}
	}
	return "", api.Errorf(api.NotFound, "no executable %s or %s", tried[0], tried[1]).
		WithOp("find " + name).WithHint("Install hutch again: its binaries belong in one folder.")
}

// Installed finds a binary for a program that is not of hutch's own build: in the folders of path, as PATH has them, or
// as the hutch there would find it. Folders that are not absolute are passed over: what lies in a working directory is
// anybody's.
func Installed(name, path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if isProgram(filepath.Join(dir, name)) {
			return filepath.Join(dir, name), nil
		}
		if hutch, err := filepath.EvalSymlinks(filepath.Join(dir, "hutch")); err == nil && isProgram(hutch) {
			if found, err := siblingOf(hutch, name); err == nil { // else it is another program of that name
				return found, nil
			}
		}
	}
	return "", api.Errorf(api.NotFound, "no %s beside this program, and neither it nor hutch in PATH, %s", name, path).
		WithOp("find " + name).
		WithHint("install hutch (make install) and put its folder into PATH, or name the file: Binary")
}

func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
