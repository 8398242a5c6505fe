package images

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestInUserNamespace runs tests as hutchd does: as uid 0 of a user and mount
// namespace. It starts this test binary again for that, told by insideVar.
const (
	insideVar   = "HUTCH_TEST_IMAGES_INSIDE" // "single" or "range"
	registryVar = "HUTCH_TEST_IMAGES_REGISTRY"
	storeVar    = "HUTCH_TEST_IMAGES_STORE" // a folder of uid 0 inside
)

var insideTests = map[string]func(*testing.T){
	"overlay": insideOverlay, "host": insideHost, "unmapped": insideUnmapped, "implied": insideImplied,
	"twice": insideTwice,
}

// rangeBase is the host uid of uid 0 in the range map, which only root can
// make without newuidmap. No account need exist for it.
const rangeBase = 2_000_000_000

func TestInUserNamespace(t *testing.T) {
	testenv.Axes(t, testenv.User)
	if os.Getenv(insideVar) != "" {
		for name, f := range insideTests {
			t.Run(name, f)
		}
		return
	}
	testenv.Require(t, probe.Overlay(t.Context()))
	registry := it.StartRegistry(t)
	pushForInside(t, registry)
	for _, kind := range []string{"single", "range"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "range" && os.Geteuid() != 0 {
				testenv.Require(t, probe.Check{Name: "root", Status: probe.No,
					Detail: "a range of ids is mapped without newuidmap",
					Remedy: "run the tests as root"})
			}
			runInside(t, kind, registry)
		})
	}
}

func runInside(t *testing.T, kind, registry string) {
	// By an fd, because uid 0 inside may not reach the folder of the binary.
	exe, err := os.Open("/proc/self/exe")
	must(t, err)
	defer exe.Close()
	store, err := os.MkdirTemp("", "hutch-images-inside-")
	must(t, err)
	defer os.RemoveAll(store)
	base, size := os.Geteuid(), 1
	gid := os.Getegid()
	if kind == "range" {
		base, gid, size = rangeBase, rangeBase, 65536
	}
	must(t, os.Chown(store, base, gid))
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestInUserNamespace$", "-test.v", "-test.count=1")
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Env = append(os.Environ(), insideVar+"="+kind, registryVar+"="+registry, storeVar+"="+store, "HOME="+store,
		"XDG_RUNTIME_DIR="+store)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: size}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: size}},
		Credential:  &syscall.Credential{NoSetGroups: true},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("tests inside: %v", err)
	}
	for name := range insideTests {
		if !bytes.Contains(out, []byte("--- PASS: TestInUserNamespace/"+name)) {
			t.Errorf("%s did not pass", name)
		}
	}
}

// insideStore opens the store of a test inside.
func insideStore(t *testing.T) (s *Store, single bool, registry string) {
	t.Helper()
	single = os.Getenv(insideVar) == "single"
	s, err := Open(filepath.Join(os.Getenv(storeVar), filepath.Base(t.Name())), Options{SingleUID: single})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, single, os.Getenv(registryVar)
}

// pushForInside pushes the images that the tests inside pull.
func pushForInside(t *testing.T, registry string) {
	base := it.Tar(
		it.Dir("./"), it.Dir("etc/"), it.Text("etc/gone", "lower"), it.Text("etc/stays", "lower"), it.Dir("opaque/"),
		it.Text("opaque/hidden", "lower"),
		it.File{Name: "bin/su", Mode: 0o4755, Content: "elf", UID: 0},
		it.File{Name: "mail", UID: 8, GID: 12, Content: "m"},
		it.File{Name: "home/app/", Type: '5', Mode: 0o700, UID: 1000, GID: 1000}, it.Dir("again/"),
		it.Text("again/old", "lower"),
		it.Text("secret", "lower"), it.Dir("both/"), it.Text("both/x", "lower"),
		it.File{Name: "cap", Content: "elf",
			Xattrs: map[string]string{"security.capability": "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}},
	)
	top := it.Tar(
		it.Whiteout("etc", "gone"), it.Dir("opaque/"), it.Text("opaque/new", "upper"), it.Opaque("opaque"),
		it.Whiteout(".", "again"), it.Dir("again/"), it.Text("again/new", "upper"),
		it.Whiteout("both", "x"), it.Opaque("both"), it.Dir("both/"),
		// A layer must not be able to rename, alias or hide by attributes of
		// overlayfs.
		it.File{Name: "stolen/", Type: '5', Xattrs: map[string]string{"user.overlay.redirect": "/etc",
			"user.overlay.opaque": "y"}},
		it.File{Name: "secret2", Xattrs: map[string]string{"user.overlay.metacopy": "",
			"user.overlay.redirect": "/secret", "user.overlay.origin": "x"}},
	)
	push(t, registry, "inside", it.Image{Layers: []it.Layer{it.NewLayer(base, it.Gzip), it.NewLayer(top, it.Zstd)}})
	push(t, registry, "reset",
		it.Image{Layers: []it.Layer{it.NewLayer(base, it.Gzip),
			it.NewLayer(it.Tar(it.Text(".wh..wh..opq", ""), it.Text("only", "x")), it.Gzip)}})
	// The same layer more than once, as builders emit for steps without effect.
	empty, a, b := it.NewLayer(it.Tar(), it.Gzip),
		it.NewLayer(it.Tar(it.Dir("d/"), it.Text("d/a", "a"), it.Text("d/b", "a")), it.Gzip),
		it.NewLayer(it.Tar(it.Text("d/b", "b"), it.Whiteout("d", "a"), it.Text("c", "b")), it.Gzip)
	push(t, registry, "twice", it.Image{Layers: []it.Layer{empty, a, empty, b, empty, a, empty}})
	// Layers without entries for the folders above their files.
	push(t, registry, "implied", it.Image{Layers: []it.Layer{
		it.NewLayer(it.Tar(it.File{Name: "tmp/", Type: '5', Mode: 0o1777},
			it.File{Name: "home/", Type: '5', Mode: 0o711},
			it.File{Name: "home/app/", Type: '5', Mode: 0o700, UID: 1000, GID: 1000},
			it.File{Name: "gone/", Type: '5', Mode: 0o700}), it.Gzip),
		it.NewLayer(it.Tar(it.Text("tmp/x", "x"), it.Text("home/app/new/file", "y"), it.Whiteout(".", "gone")),
			it.Gzip),
		it.NewLayer(it.Tar(it.Text("home/app/z", "z"), it.Text("gone/z", "z")), it.Gzip),
	}})
	push(t, registry, "unmapped",
		it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.File{Name: "f", UID: 70_000}), it.Gzip)}})
}

// mountRootfs mounts an image as hutch-launch does, and its binds if any.
func mountRootfs(t *testing.T, s *Store, r Rootfs) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"upper", "work", "merged"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	var lower []string
	for _, l := range r.Lower {
		lower = append(lower, filepath.Join(s.Dir(), l))
	}
	merged := filepath.Join(dir, "merged")
	must(t, unix.Mount("overlay", merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr",
			strings.Join(lower, ":"), dir, dir)))
	t.Cleanup(func() { must(t, unix.Unmount(merged, unix.MNT_DETACH)) })
	for _, b := range r.Binds {
		mountBind(t, s, merged, b)
	}
	return merged
}

func mountBind(t *testing.T, s *Store, root string, b Bind) {
	t.Helper()
	target := filepath.Join(root, b.Target)
	if b.Overlay != "" {
		err := unix.Mount("overlay", target, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV,
			fmt.Sprintf("lowerdir=%s:%s,userxattr", filepath.Join(s.Dir(), b.Overlay), b.Source))
		if err == nil {
			t.Logf("%s is an overlay", b.Target)
			return
		}
		t.Logf("overlay of %s: %v; bound instead", b.Source, err)
	}
	must(t, unix.Mount(b.Source, target, "", unix.MS_BIND|unix.MS_REC, ""))
	must(t, unix.MountSetattr(-1, target, unix.AT_RECURSIVE, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
	}))
	for _, h := range b.Hide {
		must(t, unix.Mount("tmpfs", filepath.Join(root, h), "tmpfs", unix.MS_RDONLY, ""))
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func insideOverlay(t *testing.T) {
	s, single, registry := insideStore(t)
	img, err := s.Pull(t.Context(), it.Ref(registry, "inside", "v1"), PullOptions{})
	must(t, err)
	root := mountRootfs(t, s, img.Rootfs())
	for dir, want := range map[string]string{
		"etc": "stays", "opaque": "new", "again": "new", "both": "", "stolen": "",
		".": "again bin both cap etc home mail opaque secret secret2 stolen",
	} {
		if got := names(t, filepath.Join(root, dir)); got != want {
			t.Errorf("%s holds %q, want %q", dir, got, want)
		}
	}
	if data, err := os.ReadFile(filepath.Join(root, "secret2")); err != nil || len(data) != 0 {
		t.Errorf("secret2 is %q, %v", data, err)
	}
	for p, want := range map[string]string{"bin/su": "104755 0:0", "mail": "100644 8:12",
		"home/app": "40700 1000:1000"} {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(root, p), &st))
		if single {
			want = strings.Fields(want)[0] + " 0:0"
		}
		if got := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid); got != want {
			t.Errorf("%s is %s, want %s", p, got, want)
		}
	}
	buf := make([]byte, 64)
	n, err := unix.Getxattr(filepath.Join(root, "mail"), unpack.OwnerXattr, buf)
	if single != (err == nil && string(buf[:max(n, 0)]) == "8:12") {
		t.Errorf("kept owner %q, %v", buf[:max(n, 0)], err)
	}
	n, err = unix.Getxattr(filepath.Join(root, "cap"), "security.capability", buf)
	t.Logf("file capability: %d bytes, %v", n, err)

	reset, err := s.Pull(t.Context(), it.Ref(registry, "reset", "v1"), PullOptions{})
	must(t, err)
	if got := names(t, mountRootfs(t, s,
		Rootfs{Lower: append(reset.Rootfs().
			Lower, slices.Repeat([]string{"tmp"}, 2-len(reset.Layers))...)})); got != "only" {
		t.Errorf("an opaque root shows %q", got)
	}
	must(t, s.Remove(img.Ref, nil))
	must(t, s.Remove(reset.Ref, nil))
	wantClean(t, s, 0)
}

func insideImplied(t *testing.T) {
	s, single, registry := insideStore(t)
	img, err := s.Pull(t.Context(), it.Ref(registry, "implied", "v1"), PullOptions{})
	must(t, err)
	root := mountRootfs(t, s, img.Rootfs())
	for p, want := range map[string]string{
		"tmp": "41777 0:0", "home": "40711 0:0", "home/app": "40700 1000:1000", "home/app/new": "40755 0:0",
		"gone":  "40755 0:0",
		"tmp/x": "100644 0:0", "home/app/z": "100644 0:0",
	} {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(root, p), &st))
		if single {
			want = strings.Fields(want)[0] + " 0:0"
		}
		if got := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid); got != want {
			t.Errorf("%s is %s, want %s", p, got, want)
		}
	}
	if len(img.Layers) != 4 {
		t.Errorf("layers %v", img.Layers)
	}
	again, err := s.Pull(t.Context(), img.Ref, PullOptions{Policy: PullAlways})
	if err != nil || !slices.Equal(again.Layers, img.Layers) {
		t.Errorf("again: %v, %v", again, err)
	}
	must(t, s.Remove(img.Ref, nil))
	wantClean(t, s, 0)
}

func insideTwice(t *testing.T) {
	s, _, registry := insideStore(t)
	img, err := s.Pull(t.Context(), it.Ref(registry, "twice", "v1"), PullOptions{})
	must(t, err)
	root := mountRootfs(t, s, img.Rootfs())
	for p, want := range map[string]string{"d/a": "a", "d/b": "a", "c": "b"} {
		if data, err := os.ReadFile(filepath.Join(root, p)); err != nil || string(data) != want {
			t.Errorf("%s is %q, %v; want %q", p, data, err, want)
		}
	}
	if img.SizeBytes != 4 {
		t.Errorf("size %d", img.SizeBytes)
	}
}

func insideUnmapped(t *testing.T) {
	s, single, registry := insideStore(t)
	_, err := s.Pull(t.Context(), it.Ref(registry, "unmapped", "v1"), PullOptions{})
	if single {
		must(t, err)
		return
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.FailedPrecondition || !strings.Contains(e.Hint, "/etc/subuid") {
		t.Errorf("uid 70000 of 65536: %v", err)
	}
	wantClean(t, s, 0)
}

func insideHost(t *testing.T) {
	s, _, _ := insideStore(t)
	img, err := s.Host(HostOptions{})
	must(t, err)
	root := mountRootfs(t, s, img.Rootfs)
	run := func(argv ...string) (string, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = "/"
		cmd.Env = img.Config.Env
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if got, err := run(img.Config.Cmd[0], "-c",
		"echo $((6*7)); id -un; ls /usr/local/etc /home /opt; cat /etc/shadow 2>&1 | grep -c root"); !strings.HasPrefix(got, "42\nroot\n") || !strings.HasSuffix(got, "\n0") {
		t.Errorf("the shell of the host image: %q, %v", got, err)
	}
	if got, err := run("/bin/sh", "-c", "touch /usr/x 2>/dev/null || touch /etc/mine && echo fine"); got != "fine" {
		t.Errorf("/usr is not read-only or /etc is: %q, %v", got, err)
	}
	if _, err := os.Stat("/usr/local/etc"); err == nil {
		if got := names(t, filepath.Join(root, "usr/local/etc")); got != "" {
			t.Errorf("/usr/local/etc shows %q", got)
		}
		if got, want := names(t, filepath.Join(root, "usr/local")), names(t, "/usr/local"); got != want {
			t.Errorf("/usr/local shows %q, want %q", got, want)
		}
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		if got, err := run("/usr/bin/python3", "-c", "import ssl, json; print(6*7)"); err != nil || got != "42" {
			t.Errorf("python3: %q, %v", got, err)
		}
	}
}
