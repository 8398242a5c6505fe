package guest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/internal/testenv/testuser"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// The tests drive the built hutch-init as PID 1 of real namespaces. This test
// binary makes them: it runs itself as "outer" (as another user) and "inner" (as
// the first process of the namespaces, which becomes hutch-init), and is found
// inside as /self, with tools that a test needs there.
const (
	modeOuter = "test-outer"
	modeInner = "test-inner"
)

// The fds of outer and inner. 3 and 4 are what hutch-init expects.
const (
	initFD = 5 // hutch-init
	selfFD = 6 // the test binary; outer only
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if tool, ok := insideTools[os.Args[1]]; ok {
			if err := tool(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// insideTools are the modes of this binary. tools_test.go adds what commands in
// the sandbox run.
var insideTools = map[string]func(args []string) error{
	modeOuter: outer,
	modeInner: inner,
}

// ids is how the ids of a sandbox are mapped.
type ids string

const (
	rangeMap  ids = "range"  // 0-65535, by root
	singleMap ids = "single" // 0 only, setgroups denied: an ordinary user without subuids
)

// firstID is what 0 is mapped to by rangeMap.
const firstID = 100000

// eachKind runs f in a fresh sandbox of each kind that this user can make.
func eachKind(t *testing.T, f func(t *testing.T, s *sandbox)) {
	t.Helper()
	for _, k := range []ids{rangeMap, singleMap} {
		t.Run(string(k), func(t *testing.T) { f(t, newSandbox(t, k)) })
	}
}

// sandbox is a hutch-init with a client.
type sandbox struct {
	*guestapi.Client
	t     testing.TB
	ids   ids
	pid   int           // of PID 1 outside, with a range; its parent's otherwise
	ended chan struct{} // closed when PID 1 is gone
}

// eachWithoutLandlock is the same without a Landlock domain, in which much that is tried here would be refused
// before it reaches PID 1.
func eachWithoutLandlock(t *testing.T, f func(t *testing.T, s *sandbox)) {
	t.Helper()
	for _, k := range []ids{rangeMap, singleMap} {
		t.Run(string(k), func(t *testing.T) { f(t, newWalled(t, k, 0)) })
	}
}

// newSandbox starts hutch-init and sets it up, with a Landlock domain where the kernel has it.
func newSandbox(t testing.TB, kind ids) *sandbox {
	abi, err := sys.LandlockABI()
	if err != nil || abi < sys.MinLandlock {
		abi = 0
	}
	return newWalled(t, kind, abi)
}

// newWalled is the same with a Landlock domain of the given ABI; 0 is none.
func newWalled(t testing.TB, kind ids, landlock int) *sandbox {
	return newGuarded(t, kind, landlock, nil)
}

// newGuarded is the same with names that cannot be made; nil is none.
func newGuarded(t testing.TB, kind ids, landlock int, guard *guestapi.Guard) *sandbox {
	var args []string
	if guard != nil {
		args = []string{guestapi.ArgMakes}
	}
	s, peer := newRawSandbox(t, kind, args...)
	client, err := guestapi.NewClient(peer)
	if err != nil {
		t.Fatal(err)
	}
	s.Client = client
	t.Cleanup(func() {
		_ = client.Close()
		s.awaitEnd()
	})
	if err := client.Setup(t.Context(), memfile(t, "exec filter", execFilter()), nil, "", landlock, guard); err != nil {
		t.Fatal(err)
	}
	return s
}

// newRawSandbox starts hutch-init and returns hutchd's end of its channel, which
// is the caller's. args are those of hutch-init.
func newRawSandbox(t testing.TB, kind ids, args ...string) (*sandbox, *os.File) {
	t.Helper()
	testenv.Require(t, probe.Namespaces(t.Context()), probe.Proc(t.Context()))
	testenv.Programs(t, "ps") // by which the tests look inside
	peer, own := socketpair(t)
	s := &sandbox{t: t, ids: kind, ended: make(chan struct{})}
	var stderr bytes.Buffer
	cmd := command(t, kind)
	cmd.Args = append(cmd.Args, args...)
	cmd.Stderr = &stderr
	cmd.ExtraFiles = []*os.File{own, memfile(t, "init filter", allowAll()),
		initFile(t), open(t, "/proc/self/exe")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.pid = cmd.Process.Pid
	_ = own.Close()
	go func() {
		_ = cmd.Wait()
		if stderr.Len() > 0 {
			t.Log("sandbox:", stderr.String())
		}
		close(s.ended)
	}()
	return s, peer
}

// command is the process that becomes, or starts, PID 1 of a sandbox of kind.
func command(t testing.TB, kind ids) *exec.Cmd {
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", selfFD), modeInner)
	switch {
	case kind == rangeMap:
		testenv.Require(t, mayMapRange())
		namespaces(cmd, firstID, 65536)
	case os.Geteuid() == 0:
		u, err := testuser.New(t.Context(), mustrun.NoSubUID)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = u.Close() })
		cmd.Args[1] = modeOuter
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID}, Pdeathsig: syscall.SIGKILL,
		}
	default:
		namespaces(cmd, os.Geteuid(), 1)
	}
	return cmd
}

// mayMapRange is whether this user writes a map of many ids by itself.
func mayMapRange() probe.Check {
	c := probe.Check{Name: "id_range", Status: probe.Yes}
	if uid := os.Geteuid(); uid != 0 {
		c.Status = probe.No
		c.Detail = fmt.Sprintf("uid %d maps one id by itself; newuidmap is not used here", uid)
		c.Remedy = "run the tests as root, too"
	}
	return c
}

func namespaces(cmd *exec.Cmd, first, count int) {
	gid := first
	if count == 1 {
		gid = os.Getegid()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: first, Size: count}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: count}},
		GidMappingsEnableSetgroups: count > 1,
		Credential:                 &syscall.Credential{NoSetGroups: count == 1},
		Pdeathsig:                  syscall.SIGKILL,
	}
}

// outer is an ordinary user who makes a sandbox.
func outer(args []string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{modeInner}, args...)...)
	cmd.Stderr = os.Stderr
	for fd := 3; fd <= selfFD; fd++ {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), "inherited"))
	}
	namespaces(cmd, os.Geteuid(), 1)
	return cmd.Run()
}

// awaitEnd fails the test if PID 1 outlives its channel.
func (s *sandbox) awaitEnd() {
	s.t.Helper()
	testenv.Within(s.t, s.ended, 20*time.Second, "hutch-init is alive, and its channel was closed")
}

// result is what a command did.
type result struct {
	out, errOut string
	guestapi.Event
}

func (r result) code() int { return syscall.WaitStatus(r.Status).ExitStatus() }

// start runs req on pipes and returns a function that waits for its end.
func (s *sandbox) start(req guestapi.Request) (*guestapi.Exec, func() result, error) {
	s.t.Helper()
	var ends [3]*os.File
	ends[0] = open(s.t, "/dev/null")
	var text [2]chan string
	for i := range text {
		r, w, err := os.Pipe()
		if err != nil {
			s.t.Fatal(err)
		}
		s.own(w)
		ends[i+1], text[i] = w, make(chan string, 1)
		go func() {
			data, _ := io.ReadAll(r)
			_ = r.Close()
			text[i] <- string(data)
		}()
	}
	if req.Env == nil {
		req.Env = []string{"PATH=/usr/bin:/bin"}
	}
	e, err := s.Start(s.t.Context(), req, ends[:])
	for _, f := range ends {
		_ = f.Close()
	}
	if err != nil {
		return nil, nil, err
	}
	return e, func() result {
		s.t.Helper()
		ev, err := e.Wait(s.t.Context())
		if err != nil {
			s.t.Fatal("wait:", err)
		}
		return result{<-text[0], <-text[1], ev}
	}, nil
}

// initFile is hutch-init as hutch-launch hands it out: in memory, where no Landlock domain refuses it to workers.
func initFile(t testing.TB) *os.File {
	t.Helper()
	data, err := os.ReadFile(testenv.Bin(t, "hutch-init"))
	if err != nil {
		t.Fatal(err)
	}
	return memfile(t, "hutch-init", data)
}

// own makes f the sandbox root's, as what hutchd makes is: root here is nobody in
// a mapped range.
func (s *sandbox) own(f *os.File) {
	s.t.Helper()
	if s.ids != rangeMap {
		return
	}
	if err := f.Chown(firstID, firstID); err != nil {
		s.t.Fatal(err)
	}
}

// run runs req to its end.
func (s *sandbox) run(req guestapi.Request) result {
	s.t.Helper()
	_, wait, err := s.start(req)
	if err != nil {
		s.t.Fatalf("start %q: %v", req.Argv, err)
	}
	return wait()
}

// sh runs a shell script as root and returns what it printed; it must exit 0.
func (s *sandbox) sh(script string) string {
	s.t.Helper()
	r := s.run(guestapi.Request{Argv: []string{"sh", "-c", script}})
	if r.Status != 0 {
		s.t.Fatalf("%s: status %#x, stderr %q", script, r.Status, r.errOut)
	}
	return strings.TrimSpace(r.out)
}

// startFails starts req, which must fail for reason.
func (s *sandbox) startFails(req guestapi.Request, reason guestapi.Reason) *guestapi.StartError {
	s.t.Helper()
	_, _, err := s.start(req)
	var failure *guestapi.StartError
	if !errors.As(err, &failure) || failure.Reason != reason {
		s.t.Fatalf("start %q as %q: error %v, want reason %s", req.Argv, req.User, err, reason)
	}
	return failure
}

func socketpair(t testing.TB) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "hutchd's end"), os.NewFile(uintptr(fds[1]), "init's end")
}

func open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func memfile(t testing.TB, name string, data []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f
}

// filter encodes instructions as seccomp(2) takes them.
func filter(code ...unix.SockFilter) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, code)
	return b.Bytes()
}

const (
	retAllow = 0x7fff0000 // SECCOMP_RET_ALLOW
	retErrno = 0x00050000 // SECCOMP_RET_ERRNO
)

func allowAll() []byte {
	return filter(unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: retAllow})
}

// execFilter makes sysinfo(2) fail with ENOTUNIQ, so that a command can tell
// that it is in force.
func execFilter() []byte {
	return filter(
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SYSINFO, Jf: 1},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: retErrno | uint32(unix.ENOTUNIQ)},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: retAllow},
	)
}

// within returns a context that ends after d, for things that must happen.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// etcPasswd and etcGroup are the accounts of the test's root.
const (
	etcPasswd = "root:x:0:0:root:/root:/bin/bash\n" +
		"broken line\n" +
		"dev:x:1000:1000:Dev:/home/dev:/bin/sh\n" +
		"nohome:x:1001:1001:::\n"
	etcGroup = "root:x:0:\nadm:x:4:syslog,dev\nwheel:x:10:root\nvideo:x:44:dev,other\ndev:x:1000:\nfar:x:70000:root,dev\n"
)

// rootFiles are the contents of the test's root, below the mount point.
func rootFiles(root string) error {
	for _, dir := range []string{"usr", "etc", "proc", "dev", "dev/pts", "tmp", "root", "home", "home/dev", "old"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{"etc/passwd", etcPasswd}, {"etc/group", etcGroup},
	} {
		if err := os.WriteFile(filepath.Join(root, f.name), []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(copyFile("/proc/self/exe", filepath.Join(root, "self")),
		copyFile("/etc/ld.so.cache", filepath.Join(root, "etc/ld.so.cache"))) // as images have it
}

// copyFile copies a file, if it exists.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
