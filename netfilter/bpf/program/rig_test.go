package program

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/bpf/bpftest"
)

// This binary plays three parts: the tests; TestLoader, in a child that has hutch-netd's
// rights and nothing else; and the programs in a sandbox (worker_test.go).
func TestMain(m *testing.M) {
	if os.Getenv(workerVar) != "" {
		work()
		return
	}
	os.Exit(leak.Main(m))
}

// What a refused program sees: of a kernel without bpf_set_retval only EPERM.
var (
	refusal      = "EACCES"
	refusedErrno = unix.EACCES
)

const (
	workerVar = "HUTCH_BPF_WORKER"
	errnosVar = "HUTCH_BPF_ERRNOS"
)

// TestLoader is not a test but load's child: it puts the programs in force in the cgroup
// that is fd 3, and sends the maps over fd 4.
func TestLoader(t *testing.T) {
	if os.Getenv(errnosVar) == "" {
		t.Log("done by others")
		return
	}
	bpftest.CheckRights(t)
	cgroup, conn := os.NewFile(3, "cgroup"), must(packet.New(os.NewFile(4, "packet")))(t)
	defer cgroup.Close()
	defer conn.Close()
	level := must(Level(cgroup))(t)
	var s *Set
	if os.Getenv(errnosVar) == "yes" {
		s = must(Load(level + 1))(t)
	} else {
		s = must(load(level+1, false))(t)
	}
	defer s.Close()
	if err := s.Attach(cgroup); err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(cgroup); !errors.Is(err, ErrAttached) {
		t.Fatalf("attached twice: %v", err)
	}
	files := must(s.Files())(t)
	defer packet.CloseAll(files)
	if err := conn.Send(s.Errnos, files...); err != nil {
		t.Fatal(err)
	}
}

// rig is a folder of sandboxes with the programs in force.
type rig struct {
	t      testing.TB
	dir    string
	files  []*os.File // the maps
	maps   *bpf.Maps
	events *bpf.Reader
}

func newRig(t testing.TB, errnos string) *rig {
	t.Helper()
	r := &rig{t: t, dir: bpftest.Cgroup(t, 0)}
	r.files = loaded(t, r.dir, errnos)
	r.maps = must(bpf.Open(r.files))(t)
	t.Cleanup(func() { _ = r.maps.Close() })
	r.events = must(r.maps.Events())(t)
	t.Cleanup(func() { _ = r.events.Close() })
	return r
}

// loaded runs TestLoader in a child.
func loaded(t testing.TB, dir, errnos string) []*os.File {
	t.Helper()
	near, far, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn := must(packet.New(near))(t)
	defer conn.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestLoader$", "-test.v")
	cmd.Env = append(os.Environ(), errnosVar+"="+errnos)
	cmd.ExtraFiles = []*os.File{bpftest.Open(t, dir), far}
	cmd.SysProcAttr = bpftest.Rights()
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	_ = far.Close()
	if err != nil {
		t.Fatalf("load with CAP_BPF and CAP_NET_ADMIN: %v\n%s", err, out)
	}
	var can bool
	files, err := conn.Recv(&can)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packet.CloseAll(files) })
	if errnos == "yes" && !can {
		t.Log("this kernel has no bpf_set_retval: EPERM everywhere")
		refusal, refusedErrno = "EPERM", unix.EPERM
	}
	return files
}

// sandbox makes a sandbox's cgroup, with a policy unless it is nil.
func (r *rig) sandbox(name string, p *bpf.Policy) (cgroup uint64, s *bpf.Sandbox) {
	r.t.Helper()
	dir := filepath.Join(r.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	cgroup = inode(r.t, dir)
	if p != nil {
		s = must(r.maps.Add(cgroup, *p))(r.t)
	}
	return cgroup, s
}

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// worker is a process in a cgroup with a network namespace of its own.
type worker struct {
	t   testing.TB
	pid int
	in  io.WriteCloser
	out *bufio.Reader
}

// worker starts one in a cgroup below the rig's.
func (r *rig) worker(cgroup string) *worker { return startWorker(r.t, filepath.Join(r.dir, cgroup)) }

func startWorker(t testing.TB, dir string) *worker {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), workerVar+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(bpftest.Open(t, dir).Fd()),
		Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL,
	}
	w := &worker{t: t, in: must(cmd.StdinPipe())(t), out: bufio.NewReader(must(cmd.StdoutPipe())(t))}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = w.in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	return w
}

// do has the worker do something; the answer is "ok" or the errno's name.
func (w *worker) do(format string, args ...any) string {
	w.t.Helper()
	if _, err := fmt.Fprintf(w.in, format+"\n", args...); err != nil {
		w.t.Fatal(err)
	}
	line, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("worker: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// event is the next one; there must be one.
func (r *rig) event() bpf.Event {
	r.t.Helper()
	r.events.SetDeadline(time.Now().Add(testenv.Patience(20 * time.Second)))
	e, err := r.events.Read()
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// quiet fails when there is an event.
func (r *rig) quiet() {
	r.t.Helper()
	r.events.SetDeadline(time.Now())
	if e, err := r.events.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Errorf("event %+v, %v; want none", e, err)
	}
}

// must is for calls that may not fail.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// at is an address that may be reached.
func at(addr string, proto bpf.Proto) bpf.Address {
	a := netip.MustParseAddrPort(addr)
	return bpf.Address{Addr: a.Addr(), Port: a.Port(), Proto: proto, Verdict: bpf.Allow, Rule: 7}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
