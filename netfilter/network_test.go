package netfilter

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMain runs the tests in a user namespace of their own, as hutchd runs, and with a
// network of their own on the host's side.
func TestMain(m *testing.M) {
	if os.Getenv("HUTCH_TEST_IN_USERNS") == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), "HUTCH_TEST_IN_USERNS=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		if err := cmd.Run(); err != nil {
			os.Stderr.WriteString("in a user namespace: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	// A worker of the fuzzing engine has the network of its parent, which is made.
	if slices.Contains(os.Args, "-test.fuzzworker") {
		os.Exit(m.Run())
	}
	if err := makeHost(); err != nil {
		os.Stderr.WriteString("make a network: " + err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// makeHost gives the test's namespace loopback, with one address more, and a network that
// cannot be reached.
func makeHost() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	_, nowhere, _ := net.ParseCIDR("203.0.113.0/24")
	return errors.Join(netlink.LinkSetUp(lo),
		netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("fd00::7"), Mask: net.CIDRMask(128, 128)},
			Flags: unix.IFA_F_NODAD}),
		netlink.RouteAdd(&netlink.Route{Dst: nowhere, Type: unix.RTN_UNREACHABLE}))
}

// keeper is what hutch-launch is to an engine.
type keeper struct {
	mu    sync.Mutex
	files map[string]*os.File
}

func (k *keeper) keep(key string, f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return rc.Control(func(fd uintptr) {
		dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			k.files[key] = os.NewFile(uintptr(dup), key)
		}
	})
}

func (k *keeper) unkeep(key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.files[key]; f != nil {
		delete(k.files, key)
		return f.Close()
	}
	return nil
}

func newEngine(t testing.TB, k *keeper) *Engine {
	held := k.files
	k.files = map[string]*os.File{}
	for key, f := range held { // what is handed over stays with the keeper as well
		if err := k.keep(key, f); err != nil {
			t.Fatal(err)
		}
	}
	e := New(Config{
		Denied: func(string, api.DeniedEvent) {}, Keep: k.keep, Unkeep: k.unkeep, Logger: slog.New(slog.DiscardHandler),
	}, held)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

var allowOne = api.NetPolicy{Mode: api.NetAllow, Allow: []string{"example.test"}}

func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestLife: what is opened is closed, by who adopted it as well, and nothing is kept.
func TestLife(t *testing.T) {
	k := &keeper{}
	before := openFDs(t)
	dir := t.TempDir()
	e := newEngine(t, k)
	var open []*Network
	for i := range 10 {
		id := filepath.Join("sb", string(rune('a'+i)))[3:]
		if err := os.Mkdir(filepath.Join(dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
		n, err := e.Open(id, filepath.Join(dir, id), allowOne, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Update(api.NetPolicy{Mode: api.NetAllow,
			Allow: []string{"udp://ntp.test:123", "tcp://db.test:5432"}}); err != nil {
			t.Fatal(err)
		}
		open = append(open, n)
	}
	for _, n := range open[:5] {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := n.Update(allowOne); err == nil {
			t.Error("a closed network was updated")
		}
	}
	// The next daemon finds those that are left.
	for _, n := range open[5:] {
		_ = n.names.Close()
		_ = n.proxy.Close()
		_ = n.ns.Close()
	}
	_ = e.Close()
	next := newEngine(t, k)
	for _, n := range open[5:9] {
		again, err := next.Adopt(n.id, filepath.Join(dir, n.id),
			api.NetPolicy{Mode: api.NetAllow, Allow: []string{"udp://ntp.test:123"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := next.Adopt("none", dir, allowOne); err == nil {
		t.Error("a network was adopted of which there is nothing")
	}
	next.Adopted()
	if len(k.files) > 0 {
		t.Errorf("kept: %v", k.files)
	}
	_ = next.Close()
	if after := openFDs(t); after > before+1 { // the poller's
		t.Errorf("%d files are open, before %d", after, before)
	}
}

// TestAdoptWithout: of a network without its resolver nothing is served.
func TestAdoptWithout(t *testing.T) {
	k := &keeper{}
	e, dir := newEngine(t, k), t.TempDir()
	n, err := e.Open("a", dir, allowOne, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = n.names.Close()
	_ = n.proxy.Close()
	_ = n.ns.Close()
	_ = k.unkeep("net/a/dns")
	next := newEngine(t, k)
	if n, err := next.Adopt("a", dir, allowOne); err == nil {
		_ = n.Close()
		t.Error("adopted without a resolver")
	}
	if len(k.files) > 0 {
		t.Errorf("kept: %v", k.files)
	}
}

func BenchmarkOpen(b *testing.B) {
	k := &keeper{}
	e, dir := newEngine(b, k), b.TempDir()
	for b.Loop() {
		n, err := e.Open("a", dir, allowOne, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
		e.ready.filler.Wait()
		b.StartTimer()
	}
}
