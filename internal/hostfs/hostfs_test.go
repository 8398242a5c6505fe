package hostfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	sub, file := filepath.Join(dir, "sub"), filepath.Join(dir, "file")
	must(t, os.Mkdir(sub, 0o700))
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink("sub", filepath.Join(dir, "link")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	t.Chdir(dir)
	for _, tt := range []struct {
		path, real string
		dir        bool
		code       api.Code
	}{
		{sub, sub, true, ""},
		{"sub", sub, true, ""},
		{".", dir, true, ""},
		{"link", sub, true, ""},
		{"sub/../file", file, false, ""},
		{"none", "", false, api.NotFound},
		{"file/x", "", false, api.NotFound},
		{"fifo", "", false, api.InvalidArgument},
		{"/dev/null", "", false, api.InvalidArgument},
		{"", "", false, api.NotFound},
	} {
		t.Run(tt.path, func(t *testing.T) {
			s, err := Open(tt.path)
			if tt.code != "" {
				if api.ErrorCode(err) != tt.code {
					t.Fatalf("got %v, want %s", err, tt.code)
				}
				return
			}
			must(t, err)
			defer s.FD.Close()
			if s.Path != tt.real || s.Dir != tt.dir {
				t.Errorf("got %q, dir %t, want %q, dir %t", s.Path, s.Dir, tt.real, tt.dir)
			}
		})
	}
}

// TestOpenUnreadable has an allowed twin: the same folder, readable.
func TestOpenUnreadable(t *testing.T) {
	testenv.NotRoot(t) // root reads everything
	dir := t.TempDir()
	t.Cleanup(func() { must(t, os.Chmod(dir, 0o700)) })
	for mode, code := range map[os.FileMode]api.Code{0o700: "", 0o300: api.PermissionDenied,
		0o600: api.PermissionDenied} {
		must(t, os.Chmod(dir, mode))
		s, err := Open(dir)
		if s != nil {
			s.FD.Close()
		}
		var known *api.Error
		if code == "" && err != nil || code != "" && (!errors.As(err, &known) || known.Code != code ||
			known.Hint == "") {
			t.Errorf("mode %o: %v, want %q", mode, err, code)
		}
	}
}

func TestOpenRemoved(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	must(t, os.Mkdir(gone, 0o700))
	t.Chdir(gone)
	must(t, os.Remove(gone))
	if s, err := Open("."); err == nil {
		s.FD.Close()
		t.Error("a removed folder is accepted")
	}
}

// detached returns a path to the root of a detached mount of dir.
func detached(t *testing.T, dir string, to Owner, readOnly bool) string {
	t.Helper()
	s, err := Open(dir)
	must(t, err)
	defer s.FD.Close()
	f, err := s.Detach(to, readOnly)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
}

// TestDetachOwner: the folder's owner appears as who is to work there. For writing everybody else appears as nobody,
// for reading as himself.
func TestDetachOwner(t *testing.T) {
	testenv.Root(t) // only root maps mounts
	const base = 0x70000000
	dir := t.TempDir()
	for name, id := range map[string]int{"roots": 0, "owners": 1000, "others": 33, "far": 100000, "ours": base + 5,
		".": 1000} {
		if name != "." {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		must(t, os.Chown(filepath.Join(dir, name), id, id))
	}
	for _, tt := range []struct {
		as       uint32
		readOnly bool
		want     map[string]uint32
	}{
		{0, false, map[string]uint32{".": base, "owners": base, "roots": 65534, "others": 65534, "far": 65534,
			"ours": base + 5}},
		{5, false, map[string]uint32{".": base + 5, "owners": base + 5, "roots": 65534, "others": 65534,
			"ours": 65534}},
		{0, true, map[string]uint32{".": base, "owners": base, "roots": base + 1000, "others": base + 33, "far": 65534,
			"ours": 65534}},
		{1000, true, map[string]uint32{"owners": base + 1000, "roots": base, "others": base + 33}},
		{33, true, map[string]uint32{"owners": base + 33, "roots": base, "others": base + 1000}},
	} {
		root := detached(t, dir, Owner{Base: base, FolderOwner: api.FolderOwner{UID: tt.as, GID: tt.as}}, tt.readOnly)
		for name, want := range tt.want {
			var st unix.Stat_t
			must(t, unix.Stat(filepath.Join(root, name), &st))
			if st.Uid != want || st.Gid != want {
				t.Errorf("as %d, read-only %t: %s belongs to %d:%d, want %d", tt.as, tt.readOnly, name, st.Uid,
					st.Gid, want)
			}
		}
		// Root itself has no place in the map: what it would create could belong to nobody.
		if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o600); !tt.readOnly &&
			!errors.Is(err, unix.EOVERFLOW) {
			t.Errorf("create as uid 0: %v, want EOVERFLOW", err)
		}
	}
}

// TestIDMap: whoever the owner is, each id inside has one on disk and no two the same.
func TestIDMap(t *testing.T) {
	const base = 0x70000000
	for _, first := range []uint32{0, base} {
		for _, owner := range []uint32{0, 1, 1000, 65535, 65536, base, base + 1, base + 1000, base + 65535, base +
			65536, 1<<32 - 2} {
			for _, as := range []uint32{0, 1, 1000, 65535} {
				lines := idMap(first, base, owner, as)
				disk, inside := map[int]bool{}, map[int]bool{}
				for _, l := range lines {
					for i := range l.Size {
						disk[l.ContainerID+i], inside[l.HostID+i] = true, true
					}
				}
				if lines[0] != (syscall.SysProcIDMap{ContainerID: int(owner), HostID: int(base + as), Size: 1}) ||
					len(disk) != api.IDCount || len(inside) != api.IDCount || !inside[base] || !inside[base+65535] ||
					len(lines) > 5 {
					t.Errorf("first %d, owner %d as %d: %+v", first, owner, as, lines)
				}
			}
		}
	}
}

func TestDetachReadOnly(t *testing.T) {
	testenv.Root(t) // only root maps mounts
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o666))
	for _, readOnly := range []bool{false, true} {
		root := detached(t, dir, Owner{Base: 231072}, readOnly)
		f, err := os.OpenFile(filepath.Join(root, "f"), os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		if errors.Is(err, unix.EROFS) != readOnly {
			t.Errorf("readOnly %t: %v", readOnly, err)
		}
	}
}

const locksVar = "HUTCH_TEST_LOCKS"

// TestDetachLocked: whoever has the mount and CAP_SYS_ADMIN in a user namespace of his own, as a daemon of root's has
// that a sandbox may have taken over, can take none of its flags off, neither of the detached mount nor of one that he
// has attached.
func TestDetachLocked(t *testing.T) {
	if fd := os.Getenv(locksVar); fd != "" {
		tree, err := strconv.Atoi(fd)
		must(t, err)
		must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		clear := func(what string) {
			for name, flag := range map[string]uint64{"RDONLY": unix.MOUNT_ATTR_RDONLY,
				"NOSUID": unix.MOUNT_ATTR_NOSUID, "NODEV": unix.MOUNT_ATTR_NODEV} {
				err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
					&unix.MountAttr{Attr_clr: flag})
				if !errors.Is(err, unix.EPERM) {
					fmt.Printf("clear %s, %s: %v\n", name, what, err)
				}
			}
		}
		clear("detached")
		must(t, unix.MoveMount(tree, "", unix.AT_FDCWD, "/mnt", unix.MOVE_MOUNT_F_EMPTY_PATH))
		clear("attached")
		if err := unix.Mount("", "/mnt", "", unix.MS_REMOUNT|unix.MS_BIND, ""); !errors.Is(err, unix.EPERM) {
			fmt.Printf("remount: %v\n", err)
		}
		if err := os.WriteFile("/mnt/new", nil, 0o600); !errors.Is(err, unix.EROFS) {
			fmt.Printf("write: %v\n", err)
		}
		copied, err := unix.OpenTree(unix.AT_FDCWD, "/mnt", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE)
		must(t, err)
		tree = copied
		clear("copied")
		must(t, unix.Unmount("/mnt", unix.MNT_DETACH))
		fmt.Println("tried")
		return
	}
	testenv.Root(t) // only root maps mounts
	const base = 0x70000000
	dir := t.TempDir()
	must(t, os.Chown(dir, 1234, 1234))
	s, err := Open(dir)
	must(t, err)
	defer s.FD.Close()
	f, err := s.Detach(Owner{Base: base}, true)
	must(t, err)
	defer f.Close()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: api.IDCount}}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestDetachLocked$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), locksVar+"=3"), []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids,
		GidMappings: ids,
		Credential:  &syscall.Credential{Uid: 0, Gid: 0}, GidMappingsEnableSetgroups: true}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "tried\nPASS\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestDetachUnmappable wants a reason where a file system knows no id maps.
func TestDetachUnmappable(t *testing.T) {
	testenv.Root(t) // only root maps mounts
	s, err := Open("/proc/self")
	must(t, err)
	defer s.FD.Close()
	_, err = s.Detach(Owner{Base: 231072}, true)
	var known *api.Error
	if !errors.As(err, &known) || known.Code != api.Unavailable || !strings.Contains(err.Error(), "/proc/") {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"/a/b-c": "/a/b-c", "a b": "'a b'", "it's": `'it'\''s'`, "": "''",
		"$x": "'$x'"} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}
