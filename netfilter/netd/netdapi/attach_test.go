package netdapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/bpf/bpftest"
)

func TestMain(m *testing.M) {
	if os.Getenv(socketVar) != "" {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			os.Exit(int(err.(unix.Errno)))
		}
		_ = unix.Close(s)
		return
	}
	os.Exit(leak.Main(m))
}

// socketVar makes this binary try to make a socket: it exits with the errno.
const socketVar = "HUTCH_NETD_SOCKET"

// nobody is an ordinary user.
func nobody() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: bpftest.Nobody, Gid: bpftest.Nobody}}
}

// installed is hutch-netd in a place that ordinary users reach, with its capabilities if
// asked for.
func installed(t *testing.T, capable bool) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hutch-netd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data, err := os.ReadFile(testenv.Bin(t, "hutch-netd"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "hutch-netd")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	if capable {
		// struct vfs_cap_data of revision 2, effective (linux/capability.h)
		words := []uint32{0x02000001, 1 << unix.CAP_NET_ADMIN, 0, 1 << (unix.CAP_BPF - 32), 0}
		var attr []byte
		for _, w := range words {
			attr = binary.LittleEndian.AppendUint32(attr, w)
		}
		if err := unix.Setxattr(path, "security.capability", attr, 0); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

var hooks = []ebpf.AttachType{
	ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect, ebpf.AttachCGroupUDP4Sendmsg,
	ebpf.AttachCGroupUDP6Sendmsg, ebpf.AttachCGroupInetSockCreate, ebpf.AttachCGroupInetEgress,
}

// attached counts a cgroup's programs, and fails unless it is the same at each hook.
func attached(t *testing.T, cgroup *os.File) int {
	t.Helper()
	n := -1
	for _, at := range hooks {
		got, err := link.QueryPrograms(link.QueryOptions{Target: int(cgroup.Fd()), Attach: at})
		if err != nil {
			t.Fatal(err)
		}
		if n >= 0 && n != len(got.Programs) {
			t.Errorf("%d programs at %s, %d at another", len(got.Programs), at, n)
		}
		n = len(got.Programs)
	}
	return n
}

// socket makes a socket in a cgroup: its errno or 0.
func socket(t *testing.T, cgroup string) unix.Errno {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), socketVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(bpftest.Open(t, cgroup).Fd())}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return unix.Errno(exit.ExitCode())
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// TestAttach: an ordinary user has a cgroup of his enforced, by the capabilities of the file.
// He gets five maps and nothing else, and they are in force.
func TestAttach(t *testing.T) {
	dir := bpftest.Cgroup(t, bpftest.Nobody)
	cgroup := bpftest.Open(t, dir)
	path := installed(t, true)
	a, err := attach(path, nobody(), cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(a)
	for _, f := range a.Maps {
		info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
		if err != nil || !strings.Contains(string(info), "map_type:") {
			t.Errorf("no map, %v:\n%s", err, info)
		}
	}
	if n := attached(t, cgroup); n != 1 {
		t.Errorf("%d programs, want 1", n)
	}
	sandbox := filepath.Join(dir, "sb")
	if err := os.Mkdir(sandbox, 0o755); err != nil {
		t.Fatal(err)
	}
	maps, err := bpf.Open(a.Maps)
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	denied := unix.EPERM
	if a.Errnos {
		denied = unix.EACCES
	}
	if got := socket(t, sandbox); got != denied {
		t.Errorf("unknown to the maps: %v, want %v", got, denied)
	}
	var st unix.Stat_t
	if err := unix.Stat(sandbox, &st); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Add(st.Ino, bpf.Policy{}); err != nil {
		t.Fatal(err)
	}
	if got := socket(t, sandbox); got != 0 {
		t.Errorf("known to the maps: %v", got)
	}

	// A second time would stack: the first stays as it is.
	if _, err := attach(path, nobody(), cgroup); !refusedWith(err, Attached) {
		t.Errorf("the second time: %v", err)
	}
	if n := attached(t, cgroup); n != 1 {
		t.Errorf("%d programs, want 1", n)
	}
	if got := socket(t, sandbox); got != 0 {
		t.Errorf("after the second time: %v", got)
	}
}

func refusedWith(err error, code Code) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Code == code
}

// TestAttachRoot: root's monitor made the cgroup for the uid of its daemon.
func TestAttachRoot(t *testing.T) {
	cgroup := bpftest.Open(t, bpftest.Cgroup(t, bpftest.Nobody))
	a, err := Attach(installed(t, false), cgroup)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(a)
	if n := attached(t, cgroup); n != 1 {
		t.Errorf("%d programs, want 1", n)
	}
}

// TestAttachRace: of several at once at most one comes through, and none is left by half.
func TestAttachRace(t *testing.T) {
	cgroup := bpftest.Open(t, bpftest.Cgroup(t, bpftest.Nobody))
	path := installed(t, true)
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() {
			var a *Attachment
			if a, errs[i] = attach(path, nobody(), cgroup); errs[i] == nil {
				closeAll(a)
			}
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !refusedWith(err, Attached) {
			t.Error(err)
		}
	}
	if n := attached(t, cgroup); n != won || won > 1 {
		t.Errorf("%d came through, %d programs are attached", won, n)
	}
}

// TestMisuse: what hutch-netd is not for. Nothing is attached by any of it.
func TestMisuse(t *testing.T) {
	dir := bpftest.Cgroup(t, bpftest.Nobody)
	cgroup := bpftest.Open(t, dir)
	capable, plain := installed(t, true), installed(t, false)
	root := bpftest.Open(t, hierarchy(t, dir))
	rootsOwn := bpftest.Open(t, bpftest.Cgroup(t, 0))
	shared := bpftest.Cgroup(t, bpftest.Nobody)
	if err := os.Chmod(shared, 0o775); err != nil {
		t.Fatal(err)
	}
	inNamespace := nobody()
	inNamespace.Credential = nil
	inNamespace.Cloneflags = unix.CLONE_NEWUSER
	inNamespace.UidMappings = []syscall.SysProcIDMap{{HostID: bpftest.Nobody, Size: 1}}
	inNamespace.GidMappings = []syscall.SysProcIDMap{{HostID: bpftest.Nobody, Size: 1}}

	for _, tt := range []struct {
		name   string
		path   string
		attr   *syscall.SysProcAttr
		cgroup *os.File
		want   Code
	}{
		{"somebody else's cgroup", capable, nobody(), rootsOwn, NotOwner},
		{"a cgroup that others may write", capable, nobody(), bpftest.Open(t, shared), Writable},
		{"the root cgroup", capable, nobody(), root, Root},
		{"the root cgroup, as root", capable, nil, root, Root},
		{"a file of a cgroup", capable, nobody(), bpftest.Open(t, filepath.Join(dir, "cgroup.procs")), NotCgroup},
		{"another folder", capable, nobody(), bpftest.Open(t, "/proc"), NotCgroup},
		{"a file without capabilities", plain, nobody(), cgroup, NoRights},
		{"a user namespace", capable, inNamespace, cgroup, UserNamespace},
		{"root of a user namespace", plain, inNamespace, cgroup, UserNamespace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if a, err := attach(tt.path, tt.attr, tt.cgroup); !refusedWith(err, tt.want) {
				t.Errorf("%+v, %v; want code %d (%s)", a, err, tt.want, reasons[tt.want])
			}
			if tt.want != Root && tt.want != NotCgroup {
				if n := attached(t, tt.cgroup); n != 0 {
					t.Errorf("%d programs are attached", n)
				}
			}
		})
	}
	t.Run("no_new_privs", func(t *testing.T) {
		err := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if perr := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); perr != nil {
				err <- perr
				return
			}
			_, aerr := attach(capable, nobody(), cgroup)
			err <- aerr
		}()
		if err := <-err; !refusedWith(err, NoNewPrivs) {
			t.Error(err)
		}
	})
	if n := attached(t, cgroup); n != 0 {
		t.Errorf("%d programs are attached", n)
	}
	// The twin: nothing but what was wrong kept it from being done.
	a, err := attach(capable, nobody(), cgroup)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(a)
}

// hierarchy is the mount point above a cgroup.
func hierarchy(t *testing.T, dir string) string {
	t.Helper()
	for {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		if st.Ino == 1 {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// TestMalformed: messages that are no request, and sockets that are not the protocol's.
func TestMalformed(t *testing.T) {
	cgroup := bpftest.Open(t, bpftest.Cgroup(t, bpftest.Nobody))
	fd := int(cgroup.Fd())
	path := installed(t, true)
	for _, tt := range []struct {
		name string
		kind int
		send func(s int) error
		want []Code // none: no answer
	}{
		{"empty", unix.SOCK_SEQPACKET, func(s int) error { return unix.Sendmsg(s, nil, nil, nil, 0) },
			[]Code{BadRequest}},
		{"no fd", unix.SOCK_SEQPACKET, func(s int) error { return unix.Sendmsg(s, []byte{Version}, nil, nil, 0) },
			[]Code{BadRequest}},
		{"no byte", unix.SOCK_SEQPACKET, func(s int) error { return unix.Sendmsg(s, nil, unix.UnixRights(fd), nil, 0) },
			[]Code{BadRequest}},
		{"two fds", unix.SOCK_SEQPACKET, func(s int) error {
			return unix.Sendmsg(s, []byte{Version}, unix.UnixRights(fd, fd), nil, 0)
		}, []Code{BadRequest}},
		{"many fds", unix.SOCK_SEQPACKET, func(s int) error {
			return unix.Sendmsg(s, []byte{Version}, unix.UnixRights(slices.Repeat([]int{fd}, 200)...), nil, 0)
		}, []Code{BadRequest}},
		{"another version", unix.SOCK_SEQPACKET, func(s int) error {
			return unix.Sendmsg(s, []byte{Version + 1}, unix.UnixRights(fd), nil, 0)
		}, []Code{BadRequest}},
		{"a long message", unix.SOCK_SEQPACKET, func(s int) error {
			return unix.Sendmsg(s, make([]byte, 1000), unix.UnixRights(fd), nil, 0)
		}, []Code{BadRequest}},
		{"hung up", unix.SOCK_SEQPACKET, func(s int) error { return unix.Shutdown(s, unix.SHUT_WR) },
			[]Code{BadRequest}},
		{"a stream", unix.SOCK_STREAM, func(int) error { return nil }, nil},
		{"datagrams", unix.SOCK_DGRAM, func(int) error { return nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, tt.kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
			defer near.Close()
			if err := tt.send(pair[0]); err != nil {
				t.Fatal(err)
			}
			p, err := start(path, nobody(), far)
			_ = far.Close()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				t.Error(err)
			}
			// What was sent is there, and nothing else comes.
			if err := unix.SetNonblock(pair[0], true); err != nil {
				t.Fatal(err)
			}
			b, oob := make([]byte, 4096), make([]byte, 4096)
			n, oobn, _, err := receive(pair[0], b, oob)
			if tt.want == nil {
				if n > 0 {
					t.Errorf("an answer of %d bytes", n)
				}
				return
			}
			reply, derr := Decode(b[:n])
			if err != nil || derr != nil || reply.Code != tt.want[0] || oobn != 0 {
				t.Errorf("reply %+v with %d bytes of fds, %v, %v; want %d", reply, oobn, err, derr, tt.want)
			}
		})
	}
	if n := attached(t, cgroup); n != 0 {
		t.Errorf("%d programs are attached", n)
	}
}

// TestReply: replies arrive as they were, and others are none.
func TestReply(t *testing.T) {
	for code := range codes {
		want := Reply{Refusal: Refusal{Code: code, Errno: unix.EPERM, Text: "why"}, Errnos: true}
		if got, err := Decode(want.Encode()); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if reasons[code] == "" {
			t.Errorf("code %d has no reason", code)
		}
	}
	long := Reply{Refusal: Refusal{Text: strings.Repeat("x", 5000)}}
	if got, err := Decode(long.Encode()); err != nil || len(got.Text) != maxText {
		t.Errorf("a long text: %d bytes, %v", len(got.Text), err)
	}
	if msg := (&Refusal{Code: 200}).Error(); !strings.Contains(msg, "200") {
		t.Error(msg)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Reply{Refusal: Refusal{Code: Kernel, Errno: unix.EINVAL, Text: "x"}}.Encode())
	f.Add([]byte{Version})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Reply
		var err error
		cost.Input(t, b, func(b []byte) { r, err = Decode(b) })
		if err == nil && !slices.Equal(r.Encode(), b) {
			t.Errorf("%x became %+v", b, r)
		}
		_ = r.Error()
	})
}

// TestInstall: make install-netd gives a group what it takes, and nobody else.
func TestInstall(t *testing.T) {
	testenv.Programs(t, "make", "setcap")
	cgroup := bpftest.Open(t, bpftest.Cgroup(t, bpftest.Nobody))
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(testenv.Bin(t, "hutch-netd"))
	dir, err := os.MkdirTemp("", "hutch-netd-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"install-netd", "uninstall-netd"} {
		cmd := exec.Command("make", "-s", "-f", filepath.Join(root, "Makefile"), target, "NETD_DIR="+dir+"/libexec",
			"NETD_GROUP=nogroup")
		cmd.Dir = filepath.Dir(bin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		if target == "uninstall-netd" {
			break
		}
		path := dir + "/libexec/hutch-netd"
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o750 || st.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%v, %v", st, err)
		}
		stranger := nobody()
		stranger.Credential.Gid = bpftest.Nobody - 1
		if a, err := attach(path, stranger, cgroup); !errors.Is(err, unix.EACCES) {
			t.Errorf("not of the group: %+v, %v", a, err)
		}
		a, err := attach(path, nobody(), cgroup)
		if err != nil {
			t.Fatal(err)
		}
		closeAll(a)
	}
	if _, err := os.Stat(dir + "/libexec"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("uninstalled: %v", err)
	}
}

func closeAll(a *Attachment) {
	for _, f := range a.Maps {
		_ = f.Close()
	}
}
