package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// attempts is what a child can try; every name is also a step of some probe.
var attempts = map[string]func(request) error{
	"capabilities": tryCapabilities,
	"namespaces":   func(request) error { return nil }, // the child exists
	"overlay":      tryOverlay,
	"lowerdir":     tryLowerdir,
	"proc":         tryProc,
	"nftables":     tryNFTables,
	"tproxy":       tryTProxy,
	"redirect":     tryRedirect,
	"queue":        tryQueue,
	"state":        tryState,
}

// insideProbe is a probe made in the namespaces of a sandbox.
type insideProbe struct {
	name     string // of the Check
	attempt  string
	required bool
	works    string // Detail of a yes
	fails    func(host, request, attempt) (detail, remedy string)
}

var inside = []insideProbe{
	{"namespaces", "namespaces", true, "pid, mount, net, ipc, uts and cgroup namespaces", nil},
	{"overlay", "overlay", true, "an overlay mounts in a user namespace", failsOverlay},
	{"overlay_lowerdir", "lowerdir", false, "layers are mounted one by one (fsconfig lowerdir+)", failsLowerdir},
	{"proc", "proc", true, "a fresh /proc mounts", failsProc},
	{"state_folder", "state", false, "the state folder's file system can hold an overlay's upper folder", failsState},
	{"nf_tables", "nftables", false, "tables can be made in a sandbox's network namespace", failsNFTables},
	{"nf_tables_tproxy", "tproxy", false,
		"connections of sandboxes with a network come to the proxy by tproxy, the best way", failsTProxy},
	{"nf_tables_queue", "queue", false, "connections to raw ports wait for their server, and fail as it does",
		failsQueue},
	{"nf_tables_redirect", "redirect", false, "connections could be redirected, the second best way", failsRedirect},
}

// Namespaces tries all the namespaces of a sandbox at once.
func Namespaces(ctx context.Context) Check { return oneInside(ctx, "namespaces") }

// Overlay tries an overlay mount in a user namespace (Linux 5.11).
func Overlay(ctx context.Context) Check { return oneInside(ctx, "overlay") }

// OverlayLowerdir tries the mount API that takes layers one by one (Linux 6.8);
// without it they are named in one string of limited length.
func OverlayLowerdir(ctx context.Context) Check { return oneInside(ctx, "overlay_lowerdir") }

// Proc tries a fresh mount of /proc, which an outer container that masks parts of
// its own /proc prevents.
func Proc(ctx context.Context) Check { return oneInside(ctx, "proc") }

// NFTables tries to make an nf_tables table in a network namespace of its own.
func NFTables(ctx context.Context) Check { return oneInside(ctx, "nf_tables") }

// NFTablesTproxy tries a tproxy rule as the network policy uses it.
func NFTablesTproxy(ctx context.Context) Check { return oneInside(ctx, "nf_tables_tproxy") }

// NFTablesRedirect tries a rule that redirects connections.
func NFTablesRedirect(ctx context.Context) Check { return oneInside(ctx, "nf_tables_redirect") }

// NFTablesQueue tries the rules and the queue that hold connections until they are dialled.
func NFTablesQueue(ctx context.Context) Check { return oneInside(ctx, "nf_tables_queue") }

// StateFolder tries an overlay whose upper folder lies in folder, or in its
// nearest existing parent.
func StateFolder(ctx context.Context, folder string) Check {
	return one(ctx, Options{StateFolder: folder}, "state_folder")
}

func oneInside(ctx context.Context, name string) Check { return one(ctx, Options{}, name) }

func one(ctx context.Context, o Options, name string) Check {
	for _, p := range inside {
		if p.name == name {
			return inNamespaces(ctx, o, []insideProbe{p})[0]
		}
	}
	return inconclusive(name, "no such probe")
}

// inNamespaces makes the probes in one child.
func inNamespaces(ctx context.Context, o Options, probes []insideProbe) []Check {
	r, done, err := prepare(o)
	defer done()
	var outcomes map[string]attempt
	var startErr error
	if err == nil {
		for _, p := range probes {
			r.Attempts = append(r.Attempts, p.attempt)
		}
		outcomes, startErr, err = runChild(ctx, sandboxLike, r)
	}
	var checks []Check
	for _, p := range probes {
		if p.attempt == "state" && o.StateFolder == "" {
			continue
		}
		c := p.check(thisHost(), r, outcomes[p.attempt], startErr, err)
		c.Required = p.required
		checks = append(checks, c)
	}
	return checks
}

// check turns the outcome of the child, or of starting it, into a finding.
func (p insideProbe) check(h host, r request, a attempt, startErr, err error) Check {
	switch {
	case err != nil:
		return inconclusive(p.name, err.Error())
	case startErr != nil && p.name == "namespaces":
		return h.noNamespaces(startErr)
	case startErr != nil:
		return inconclusive(p.name, "needs the namespaces of a sandbox, which cannot be made")
	case !a.OK():
		detail, remedy := p.fails(h, r, a)
		return no(p.name, detail, remedy)
	}
	return yes(p.name, p.works)
}

// noNamespaces explains why the namespaces of a sandbox cannot be made: for want
// of a user namespace, or because one of the others is used up.
func (h host) noNamespaces(err error) Check {
	const name = "namespaces"
	if !errors.Is(err, syscall.ENOSPC) {
		return h.noUserNamespace(name, err)
	}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		limit := "user.max_" + kind + "_namespaces"
		if v, ok := h.sysctl(limit); ok && v < 64 {
			return fixable(name, fmt.Sprintf("clone: %v: %s is %d", err, limit, v), h.sudo("sysctl -w "+limit+"=28633"))
		}
	}
	return no(name, fmt.Sprintf("clone: %v: every namespace that user.max_*_namespaces allows is in use", err),
		"sysctl -a --pattern 'user.max_.*_namespaces'")
}

// prepare makes the folders that a child works in. done removes them.
func prepare(o Options) (r request, done func(), err error) {
	done = func() {}
	if r.Scratch, err = os.MkdirTemp("", "hutch-probe-"); err != nil {
		return r, done, err
	}
	done = func() { _ = os.Remove(r.Scratch) }
	if o.StateFolder == "" {
		return r, done, nil
	}
	r.State, err = os.MkdirTemp(nearest(o.StateFolder), ".hutch-probe-")
	if err != nil {
		return r, done, fmt.Errorf("state folder: %w", err)
	}
	done = func() {
		_ = os.Remove(r.Scratch)
		// The kernel makes a folder "work" in workdir with mode 0: no ordinary user
		// can look into it, but its owner can change that.
		_ = os.Chmod(filepath.Join(r.State, "work", "work"), 0o700)
		_ = os.RemoveAll(r.State)
	}
	return r, done, nil
}

// nearest is dir, or its nearest parent that exists.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// tryCapabilities makes a change to the mounts that needs CAP_SYS_ADMIN in the
// new user namespace.
func tryCapabilities(request) error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount(/, MS_SLAVE|MS_REC): %w", err)
	}
	return nil
}

// scratch mounts a tmpfs on the scratch folder and makes names below it.
func scratch(r request, names ...string) (string, error) {
	if err := tryCapabilities(r); err != nil {
		return "", err
	}
	if err := unix.Mount("hutch-probe", r.Scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return "", fmt.Errorf("mount(tmpfs on %s): %w", r.Scratch, err)
	}
	return r.Scratch, folders(r.Scratch, names...)
}

func folders(dir string, names ...string) error {
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// tryOverlay mounts with mount(2), which every kernel that can do it at all has.
func tryOverlay(r request) error {
	dir, err := scratch(r, "lower", "upper", "work", "merged")
	if err != nil {
		return err
	}
	return mountOverlay(dir)
}

func mountOverlay(dir string) error {
	options := fmt.Sprintf("userxattr,lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir)
	if err := unix.Mount("hutch-probe", filepath.Join(dir, "merged"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount(overlay, %s): %w", options, err)
	}
	return nil
}

func failsOverlay(_ host, _ request, a attempt) (detail, remedy string) {
	if a.Errno == unix.ENODEV {
		return a.String() + ": this kernel has no overlay file system", "sudo modprobe overlay"
	}
	return a.String() + ": overlays in user namespaces came with Linux 5.11", ""
}

func tryLowerdir(r request) error {
	dir, err := scratch(r, "one", "two", "upper", "work")
	if err != nil {
		return err
	}
	mount, err := sys.FSMount("overlay", []sys.FSOption{
		{Key: "userxattr"},
		{Key: "lowerdir+", Value: filepath.Join(dir, "one")}, {Key: "lowerdir+", Value: filepath.Join(dir, "two")},
		{Key: "upperdir", Value: filepath.Join(dir, "upper")}, {Key: "workdir", Value: filepath.Join(dir, "work")},
	}, 0)
	if err != nil {
		return err
	}
	return mount.Close()
}

func failsLowerdir(_ host, _ request, a attempt) (detail, remedy string) {
	return a.String() + ": images with very many layers cannot be mounted", ""
}

func tryProc(r request) error {
	dir, err := scratch(r, "proc")
	if err != nil {
		return err
	}
	target := filepath.Join(dir, "proc")
	if err := unix.Mount("proc", target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount(proc): %w", err)
	}
	return nil
}

// failsProc: the kernel lets a user namespace mount /proc only where the /proc it
// sees is whole (mount_too_revealing()), which docker's and podman's is not.
func failsProc(h host, _ request, a attempt) (detail, remedy string) {
	if a.Errno == unix.EPERM {
		return a.String() + ": parts of this machine's /proc are masked, as outer containers do", containerRemedy
	}
	return a.String(), ""
}

// tryState mounts an overlay with its upper folder in the state folder and makes
// there what layers need: a whiteout and an opaque folder.
func tryState(r request) error {
	if r.State == "" {
		return nil
	}
	if err := tryCapabilities(r); err != nil {
		return err
	}
	if err := folders(r.State, "lower", "lower/gone", "lower/opaque", "upper", "work", "merged"); err != nil {
		return err
	}
	if err := mountOverlay(r.State); err != nil {
		return err
	}
	merged := filepath.Join(r.State, "merged")
	defer func() { _ = unix.Unmount(merged, unix.MNT_DETACH) }()
	if err := os.Remove(filepath.Join(merged, "gone")); err != nil {
		return fmt.Errorf("make a whiteout: %w", err)
	}
	opaque := filepath.Join(merged, "opaque")
	if err := os.Remove(opaque); err != nil {
		return fmt.Errorf("make a whiteout: %w", err)
	}
	if err := os.Mkdir(opaque, 0o700); err != nil {
		return fmt.Errorf("make an opaque folder: %w", err)
	}
	return nil
}

func failsState(_ host, r request, a attempt) (detail, remedy string) {
	parent := filepath.Dir(r.State)
	var st unix.Statfs_t
	kind := "its file system"
	if unix.Statfs(parent, &st) == nil {
		kind = fileSystem(st.Type)
	}
	return fmt.Sprintf("%s is on %s, which cannot hold an upper folder: %s; what sandboxes write is kept in memory",
			parent, kind, strings.ReplaceAll(a.String(), r.State, parent)),
		"export HUTCH_ROOT=/path/on/ext4-xfs-btrfs-or-tmpfs"
}

func fileSystem(magic int64) string {
	names := map[int64]string{
		unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.NFS_SUPER_MAGIC: "NFS",
		unix.FUSE_SUPER_MAGIC: "FUSE", unix.TMPFS_MAGIC: "tmpfs", unix.EXT4_SUPER_MAGIC: "ext4",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.XFS_SUPER_MAGIC: "xfs",
	}
	if name := names[magic]; name != "" {
		return name
	}
	return fmt.Sprintf("file system %#x", magic)
}
