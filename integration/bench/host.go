package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
)

// endLimit is how long everything that was started may take to end, in all.
const endLimit = 15 * time.Second

// Host is what all subjects share: a folder, a user, a root file system and the
// stack of what to undo.
type Host struct {
	dir      string // world-searchable temporary folder, owned by the user
	module   string // folder of go.mod
	hutchBin string // folder of our binaries, as given
	uid, gid int    // who the subjects run as
	cred     *syscall.Credential
	undo     cleanup.Stack

	daemon *daemon // the shared hutch daemon, when a subject asked for it
	web    *web    // nil before a subject needs it
	skel   *skeleton

	servers    *servers           // of the network's subjects
	roads      map[string]*road   // by name
	inwards    map[string]*inward // the same
	netDaemons map[string]*daemon // those whose sandboxes connect to the servers, by the name of their state folder
	images     *registry          // of the subjects that pull
}

// newHost makes the temporary folder. uid -1 means this process's own user.
func newHost(hutchBin string, uid int) (_ *Host, err error) {
	h := &Host{hutchBin: hutchBin, uid: os.Geteuid(), gid: os.Getegid()}
	if uid >= 0 && uid != h.uid {
		if h.uid != 0 {
			return nil, fmt.Errorf("-user %d: only root can run subjects as somebody else", uid)
		}
		h.uid, h.gid = uid, uid
		h.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	if h.module, err = moduleRoot(); err != nil {
		return nil, err
	}
	if h.dir, err = os.MkdirTemp("", "hutch-bench-"); err != nil {
		return nil, err
	}
	h.undo.Add(func() error { return removeTree(h.dir) })
	// Subreaper: a daemon or a runtime's helper that outlives its parent becomes
	// our child, so that none can be left behind unnoticed.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("become subreaper: %w", err), h.close())
	}
	h.undo.Add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		defer cancel()
		return reapAll(ctx)
	})
	if err := errors.Join(os.Chmod(h.dir, 0o755), os.Chown(h.dir, h.uid, h.gid)); err != nil {
		return nil, errors.Join(err, h.close())
	}
	for _, name := range []string{"home", "run"} {
		if _, err := h.mkdir(name, 0o700); err != nil {
			return nil, errors.Join(err, h.close())
		}
	}
	return h, nil
}

// close undoes everything that subjects set up.
func (h *Host) close() (err error) {
	h.undo.Run(&err)
	return err
}

// path is a name below the temporary folder.
func (h *Host) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

// mkdir makes a folder of the user below the temporary folder.
func (h *Host) mkdir(name string, mode fs.FileMode) (string, error) {
	dir := h.path(name)
	if err := os.MkdirAll(dir, mode); err != nil {
		return "", err
	}
	return dir, errors.Join(os.Chmod(dir, mode), os.Chown(dir, h.uid, h.gid))
}

// write makes a file of the user below the temporary folder.
func (h *Host) write(name string, content []byte) (string, error) {
	file := h.path(name)
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return "", err
	}
	return file, os.Chown(file, h.uid, h.gid)
}

// copyBinary copies an executable to where the user reaches it: a checkout below
// /root does not.
func (h *Host) copyBinary(from string) (_ string, err error) {
	dir, err := h.mkdir("bin", 0o755)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(from))
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return to, errors.Join(err, out.Close(), os.Chmod(to, 0o755))
}

// environ is the environment of every subject: nothing of the caller's, so that
// results do not depend on it.
func (h *Host) environ(extra ...string) []string {
	return append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + h.path("home"),
		"XDG_RUNTIME_DIR=" + h.path("run"),
		"LC_ALL=C",
	}, extra...)
}

// needTool finds a program of the distribution.
func needTool(name, pkg string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &Unavailable{MissingTool, name + " is not in PATH", "install the package " + pkg}
	}
	return path, nil
}

// skeleton is a root file system that takes everything from the host's /usr:
// the same for all peers that need a folder or a list of mounts.
type skeleton struct {
	dir     string
	links   map[string]string // "/bin" -> "usr/bin", of a merged /usr
	folders []string          // host folders that are bound beside /usr
}

// rootFS makes the skeleton, once.
func (h *Host) rootFS() (*skeleton, error) {
	if h.skel != nil {
		return h.skel, nil
	}
	dir, err := h.mkdir("rootfs", 0o755)
	if err != nil {
		return nil, err
	}
	s := &skeleton{dir: dir, links: map[string]string{}}
	for _, name := range []string{"usr", "proc", "dev", "sys", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		host, in := "/"+name, filepath.Join(dir, name)
		st, err := os.Lstat(host)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case st.IsDir():
			s.folders = append(s.folders, host)
			err = os.Mkdir(in, 0o755)
		default:
			if s.links[host], err = os.Readlink(host); err == nil {
				err = os.Symlink(s.links[host], in)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	h.skel = s
	return s, nil
}

// moduleRoot is the folder of the nearest go.mod at or above the working
// directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod at or above %s: run this in a checkout", dir)
		}
	}
}

// removeTree removes a folder that must not hold mounts any more: removing what
// is mounted would delete somebody else's files.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4]+"/", dir+"/") {
			return fmt.Errorf("%s is still mounted: %s is left as it is", f[4], dir)
		}
	}
	return os.RemoveAll(dir)
}
