package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pullLimit ends a pull that hangs.
const pullLimit = 5 * time.Minute

// tmpfs is where those subjects keep their stores whose names end so.
const tmpfs = "/dev/shm"

// puller is a tool that pulls images, with a store of its own.
type puller struct {
	env  []string
	argv []string
	// empty takes the image out of the store, so that it is as before the first pull.
	empty   func(ctx context.Context) error
	version []string // a command
}

// pullSubjects are all tools with all images on all file systems.
func pullSubjects() []Subject {
	tools := []struct {
		name  string
		setup func(ctx context.Context, h *Host, dir, ref string) (*puller, error)
	}{
		{"hutch-pull", hutchPuller}, {"podman-pull", podmanPuller}, {"skopeo-umoci", umociPuller},
		{"crane-tar", cranePuller},
	}
	var list []Subject
	for _, image := range []struct {
		suffix string
		shape
	}{{"", mixed}, {"-100k", small}} {
		for _, place := range []struct{ suffix, about string }{{"", "on disk"}, {"-tmpfs", "on tmpfs"}} {
			for _, tool := range tools {
				name := tool.name + image.suffix + place.suffix
				list = append(list, Subject{
					Name: name, About: fmt.Sprintf("%s into an empty store %s, to the end of syncfs", image.shape,
						place.about), Named: true,
					Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
						dir, ref, err := h.pullInto(name, place.suffix != "", image.shape)
						if err != nil {
							return nil, err
						}
						p, err := tool.setup(ctx, h, dir, ref)
						if err != nil {
							return nil, err
						}
						return p.prepared(ctx, h, dir)
					},
				})
			}
		}
	}
	return append(list,
		Subject{Name: "hutch-pull-memory", About: "memory of hutchd and its workers while it pulls " + mixed.String(),
			Named: true, Setup: setupPullMemory},
		Subject{Name: "image-mount", About: "a pulled image's record read, folders made, its layers mounted",
			Named: true, Setup: setupImageMount})
}

// pullInto makes the folder of a store and the image.
func (h *Host) pullInto(name string, memory bool, image shape) (dir, ref string, err error) {
	r, err := h.registry()
	if err != nil {
		return "", "", err
	}
	if ref, err = r.image(image); err != nil {
		return "", "", err
	}
	if !memory {
		dir, err = h.mkdir(name, 0o700)
		return dir, ref, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(tmpfs, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return "", "", &Unavailable{HostKind, tmpfs + " is not a tmpfs", ""}
	}
	if dir, err = os.MkdirTemp(tmpfs, "hutch-bench-"); err != nil {
		return "", "", err
	}
	h.undo.Add(func() error { return removeTree(dir) })
	return dir, ref, os.Chown(dir, h.uid, h.gid)
}

// prepared measures p from argv to the end of syncfs, each time with an empty store and
// with nothing of others left to write.
func (p *puller) prepared(ctx context.Context, h *Host, dir string) (*Prepared, error) {
	proc, err := h.newProcess(p.env, p.argv...)
	if err != nil {
		return nil, err
	}
	proc.limit = pullLimit
	return &Prepared{Command: proc.line() + " && sync -f", Version: h.version(ctx, p.version...),
		Run: func(ctx context.Context) (Sample, error) {
			if err := p.empty(ctx); err != nil {
				return Sample{}, fmt.Errorf("empty the store: %w", err)
			}
			unix.Sync()
			start := time.Now()
			s, err := proc.run(ctx)
			if err == nil {
				err = syncfs(dir)
			}
			s.Wall = time.Since(start)
			return s, errors.Join(err, p.check(dir))
		}}, nil
}

// check makes sure that something was pulled.
func (p *puller) check(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%s is empty", dir)
	}
	return err
}

func syncfs(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

func hutchPuller(ctx context.Context, h *Host, dir, ref string) (*puller, error) {
	d, err := h.startDaemonWith(ctx, h.hutchEnvIn(dir, filepath.Base(dir)))
	if err != nil {
		return nil, err
	}
	layers := filepath.Join(dir, "data", "images", "layers")
	return &puller{
		env: d.env, argv: []string{d.hutch, "image", "pull", "-q", ref}, version: []string{d.hutch, "version"},
		empty: func(ctx context.Context) error {
			if left, err := os.ReadDir(layers); err != nil || len(left) == 0 {
				return err
			}
			if _, err := h.outputWithin(ctx, pullLimit, d.env, d.hutch, "image", "rm", ref); err != nil {
				return err
			}
			if left, err := os.ReadDir(layers); err != nil || len(left) > 0 {
				return errors.Join(fmt.Errorf("%d layers are left", len(left)), err)
			}
			return nil
		},
	}, nil
}

// podmanPuller measures podman with the kernel's overlayfs, as root has it.
func podmanPuller(_ context.Context, h *Host, dir, ref string) (*puller, error) {
	podman, err := h.rootTool("podman", "podman")
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	store := []string{podman, "--root", root, "--runroot", filepath.Join(dir, "run"), "--storage-driver", "overlay",
		"--cgroup-manager", "cgroupfs", "--events-backend", "none"}
	// It keeps its folder mounted on itself.
	h.undo.Add(func() error {
		err := unix.Unmount(filepath.Join(root, "overlay"), 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	})
	command := func(args ...string) []string { return append(append([]string{}, store...), args...) }
	return &puller{
		argv: command("pull", "-q", "--tls-verify=false", ref), version: []string{podman, "--version"},
		empty: func(ctx context.Context) error {
			_, err := h.outputWithin(ctx, pullLimit, nil, command("rmi", "--all", "--force")...)
			return err
		},
	}, nil
}

// umociPuller measures two tools as their manuals combine them: a layout on disk, and a
// bundle unpacked from it.
func umociPuller(_ context.Context, h *Host, dir, ref string) (*puller, error) {
	skopeo, err := h.rootTool("skopeo", "skopeo")
	if err != nil {
		return nil, err
	}
	umoci, err := h.rootTool("umoci", "umoci")
	if err != nil {
		return nil, err
	}
	at := filepath.Join(dir, "layout") + ":1"
	line := shellLine([]string{skopeo, "copy", "-q", "--src-tls-verify=false", "docker://" + ref, "oci:" + at}) +
		" && " +
		shellLine([]string{umoci, "unpack", "--image", at, filepath.Join(dir, "bundle")})
	return &puller{
		argv: []string{"sh", "-c", line}, version: []string{skopeo, "--version"},
		empty: func(context.Context) error { return emptyFolder(dir) },
	}, nil
}

// cranePuller measures the flattened stream of an image through tar: no store.
func cranePuller(_ context.Context, h *Host, dir, ref string) (*puller, error) {
	crane, err := exec.LookPath("crane")
	if err != nil {
		crane = filepath.Join(h.module, ".cache", "tools", "bin", "crane")
		if _, err := os.Stat(crane); err != nil {
			return nil, &Unavailable{MissingTool, "crane is neither in PATH nor in .cache/tools/bin",
				"GOBIN=$PWD/.cache/tools/bin internal/build/go.sh install github.com/google/go-containerregistry/cmd/crane@v0.20.6"}
		}
	}
	if h.uid != os.Geteuid() {
		if crane, err = h.copyBinary(crane); err != nil {
			return nil, err
		}
	}
	line := shellLine([]string{crane, "export", "--insecure", ref, "-"}) + " | " +
		shellLine([]string{"tar", "-x", "-C", dir})
	return &puller{
		argv: []string{"sh", "-c", line}, version: []string{crane, "version"},
		empty: func(context.Context) error { return emptyFolder(dir) },
	}, nil
}

// rootTool finds a program that is only compared as root runs it: without, it pays for
// more than hutch does (fuse-overlayfs), or leaves out what hutch does (owners).
func (h *Host) rootTool(name, pkg string) (string, error) {
	if h.uid != 0 {
		return "", &Unavailable{HostKind, name + " is compared as root only", "run bench as root"}
	}
	return needTool(name, pkg)
}

func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
	}
	return err
}
