package program

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/bpf/bpftest"
)

const tcp4, udp4, tcp6 = "connect 2 1 0 ", "connect 2 2 0 ", "connect 10 1 0 "

// expect has a worker do something and compares the answer; of a denial with its event.
func (r *rig) expect(w *worker, line, want string) bpf.Event {
	r.t.Helper()
	got := w.do("%s", line)
	if got != want {
		r.t.Errorf("%s: %s, want %s", line, got, want)
	}
	if got == "ok" {
		r.quiet()
		return bpf.Event{}
	}
	return r.event()
}

// TestPolicy: what the maps say is what holds, at once.
func TestPolicy(t *testing.T) {
	r := newRig(t, "yes")
	cgroup, s := r.sandbox("sb", &bpf.Policy{})
	_, other := r.sandbox("other",
		&bpf.Policy{Ranges: []bpf.Range{{Prefix: netip.MustParsePrefix("198.18.0.0/15"), TCP: true, UDP: true,
			Verdict: bpf.Allow}}})
	w := r.worker("sb")
	if got := w.do("listen"); got != "ok" {
		t.Fatal(got)
	}
	replace := func(p bpf.Policy) {
		t.Helper()
		if err := s.Replace(p); err != nil {
			t.Fatal(err)
		}
	}
	prefix := func(p string, v bpf.Verdict) bpf.Range {
		return bpf.Range{Prefix: netip.MustParsePrefix(p), TCP: true, Verdict: v, Rule: 9}
	}
	monotonic := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		return time.Duration(now.Nano())
	}

	// Loopback is the sandbox's own, with an empty policy, too.
	r.expect(w, tcp4+"127.0.0.1:7000", "ok")
	r.expect(w, tcp4+"0.0.0.0:7000", "ok")
	r.expect(w, tcp6+"[::1]:7000", "ok")
	r.expect(w, tcp6+"[::]:7000", "ok")
	r.expect(w, tcp6+"[::ffff:127.0.0.1]:7000", "ok")
	r.expect(w, tcp4+"198.18.0.5:7000", refusal)

	// Another sandbox's policy is none of this one's.
	if err := other.Put(at("198.18.0.5:7000", bpf.TCP)); err != nil {
		t.Fatal(err)
	}
	r.expect(w, tcp4+"198.18.0.5:7000", refusal)
	if err := s.Put(at("198.18.0.5:7000", bpf.TCP)); err != nil {
		t.Fatal(err)
	}
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")
	r.expect(w, udp4+"198.18.0.5:7000", refusal) // only TCP

	// Any port; a port of its own comes before.
	anyPort, closed := at("198.18.0.6:0", bpf.TCP), at("198.18.0.6:7000", bpf.TCP)
	closed.Verdict, closed.Rule = bpf.Deny, 3
	replace(bpf.Policy{Addresses: []bpf.Address{anyPort}})
	r.expect(w, tcp4+"198.18.0.6:7000", "ok")
	r.expect(w, tcp4+"198.18.0.5:7000", refusal) // what was Put is forgotten
	replace(bpf.Policy{Addresses: []bpf.Address{anyPort, closed}})
	if e := r.expect(w, tcp4+"198.18.0.6:7000", refusal); e.Rule != 3 {
		t.Errorf("rule %d, want 3", e.Rule)
	}

	// Ranges: the longest decides, an address comes before, each for its transports.
	replace(bpf.Policy{
		Ranges: []bpf.Range{prefix("198.18.0.0/16", bpf.Allow), prefix("198.18.7.0/24", bpf.Deny),
			prefix("fd00:1::/64", bpf.Allow)},
		Addresses: []bpf.Address{at("198.18.7.7:7000", bpf.TCP)},
	})
	r.expect(w, tcp4+"198.18.1.1:7000", "ok")
	r.expect(w, tcp6+"[fd00:1::9]:7000", "ok")
	r.expect(w, tcp4+"198.19.1.1:7000", refusal)
	if e := r.expect(w, tcp4+"198.18.7.1:7000", refusal); e.Rule != 9 {
		t.Errorf("rule %d, want 9", e.Rule)
	}
	r.expect(w, tcp4+"198.18.7.7:7000", "ok")
	r.expect(w, udp4+"198.18.1.1:7000", refusal)

	// A lease.
	lease := at("198.18.0.5:7000", bpf.TCP)
	lease.Expires = monotonic() + time.Hour
	replace(bpf.Policy{Addresses: []bpf.Address{lease}})
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")
	lease.Expires = monotonic()
	replace(bpf.Policy{Addresses: []bpf.Address{lease}})
	r.expect(w, tcp4+"198.18.0.5:7000", refusal)

	// What is allowed is reported when asked for.
	replace(bpf.Policy{TellAllowed: true, Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}})
	if got := w.do("%s", tcp4+"198.18.0.5:7000"); got != "ok" {
		t.Error(got)
	}
	if e := r.event(); e.Verdict != bpf.Allow || e.Errno != 0 || e.Rule != 7 || e.Cgroup != cgroup {
		t.Errorf("event %+v, want allowed by 7", e)
	}

	// Each errno that a refusal may have; others are EACCES, also when somebody else than
	// this package writes the map.
	for _, errno := range bpf.Errnos {
		if refusedErrno == unix.EPERM {
			break // the kernel has no other
		}
		replace(bpf.Policy{Errno: errno})
		if e := r.expect(w, tcp4+"198.18.0.5:7000", unix.ErrnoName(errno)); e.Errno != errno {
			t.Errorf("event says %d, want %d", e.Errno, errno)
		}
	}
	if err := s.Replace(bpf.Policy{Errno: unix.ENOENT}); err == nil {
		t.Error("ENOENT was taken")
	}
	raw := must(ebpf.NewMapFromFD(must(unix.Dup(int(r.files[0].Fd())))(t)))(t)
	defer raw.Close()
	for _, errno := range []int32{0, -1, int32(unix.ENOENT), 4096} {
		if err := raw.Put(cgroup, struct {
			Table uint64
			Flags uint32
			Error int32
		}{Error: errno}); err != nil {
			t.Fatal(err)
		}
		r.expect(w, tcp4+"198.18.0.5:7000", refusal)
	}

	// Without its entry a sandbox reaches nothing, its own loopback included.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.expect(w, "socket 2 1 0", refusal)
	if err := s.Put(at("198.18.0.5:7000", bpf.TCP)); err == nil {
		t.Error("a removed sandbox took an address")
	}
}

// TestSockets: kinds of sockets that no hook with an address sees.
func TestSockets(t *testing.T) {
	r := newRig(t, "yes")
	all := bpf.Range{Prefix: netip.MustParsePrefix("::/0"), TCP: true, UDP: true, Verdict: bpf.Allow}
	r.sandbox("sb", &bpf.Policy{Ranges: []bpf.Range{all}})
	in, out := r.worker("sb"), startWorker(t, bpftest.Cgroup(t, 0))
	for _, tt := range []struct {
		name   string
		kind   [3]int
		denied bool
	}{
		{"ping", [3]int{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, true},
		{"ping over IPv6", [3]int{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6}, true},
		{"raw", [3]int{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW}, true},
		{"raw TCP", [3]int{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, true},
		{"TCP", [3]int{unix.AF_INET, unix.SOCK_STREAM, 0}, false},
		{"UDP over IPv6", [3]int{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, false},
		{"Unix", [3]int{unix.AF_UNIX, unix.SOCK_STREAM, 0}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line, args := "socket %d %d %d", []any{tt.kind[0], tt.kind[1], tt.kind[2]}
			if got := out.do(line, args...); got != "ok" {
				t.Errorf("outside of sandboxes: %s", got)
			}
			got := in.do(line, args...)
			if !tt.denied {
				if got != "ok" {
					t.Error(got)
				}
				r.quiet()
				return
			}
			if got != refusal {
				t.Errorf("%s, want %s", got, refusal)
			}
			if e := r.event(); e.Hook != bpf.Socket || e.Protocol != tt.kind[2] || e.Type != tt.kind[1] ||
				e.To.IsValid() || e.PID != in.pid {
				t.Errorf("event %+v", e)
			}
		})
	}
}

// TestEgress: what came past the hooks of connect and sendto meets the policy as a packet.
func TestEgress(t *testing.T) {
	r := newRig(t, "yes")
	reach := bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.UDP), at("198.18.0.5:7000", bpf.TCP)}}
	cgroup, s := r.sandbox("sb", &reach)
	w := r.worker("sb")
	for _, line := range []string{"listen", "keep u 2 2 0", "connect-kept u 198.18.0.5:7000", "write u"} {
		r.expect(w, line, "ok")
	}
	// A datagram that nobody waits for is answered by ICMP, of which the next call tells.
	if got := w.do("write u"); got != "ok" && got != "ECONNREFUSED" {
		t.Errorf("allowed: %s", got)
	}
	if err := s.Replace(bpf.Policy{}); err != nil {
		t.Fatal(err)
	}
	for got := ""; got != "EPERM"; { // at most one error of a datagram before
		if got = w.do("write u"); got != "EPERM" && got != "ECONNREFUSED" {
			t.Fatalf("%s, want EPERM", got)
		}
	}
	to := netip.MustParseAddrPort("198.18.0.5:7000")
	if e := r.event(); e.Hook != bpf.Egress || e.To != to || e.Protocol != unix.IPPROTO_UDP || e.Cgroup != cgroup ||
		e.PID != 0 || e.Process != 0 {
		t.Errorf("event %+v", e)
	}
	if err := s.Replace(reach); err != nil {
		t.Fatal(err)
	}
	r.expect(w, "write u", "ok")
	// A TCP connection passes in both directions: only what opens one is looked at.
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")
}

// TestNested: cgroups of execs, and below them, are the sandbox's; what is in no sandbox's
// reaches nothing.
func TestNested(t *testing.T) {
	r := newRig(t, "yes")
	cgroup, _ := r.sandbox("sb", &bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}})
	for _, dir := range []string{"sb/ex_1", "sb/ex_1/a", "sb/ex_1/a/b", "unknown"} {
		if err := os.Mkdir(filepath.Join(r.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := r.worker("sb/ex_1/a/b")
	r.expect(w, "listen", "ok")
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")
	if e := r.expect(w, tcp4+"198.18.0.6:7000", refusal); e.Cgroup != cgroup ||
		e.Process != inode(t, filepath.Join(r.dir, "sb/ex_1/a/b")) {
		t.Errorf("event %+v, want cgroup %d and the one of the process", e, cgroup)
	}
	for _, dir := range []string{"unknown", "."} {
		before := must(r.maps.Counts(0))(t)
		r.expect(r.worker(dir), "socket 2 1 0", refusal)
		if after := must(r.maps.Counts(0))(t); after.Denied != before.Denied+1 {
			t.Errorf("%s: counts of nobody %+v, before %+v", dir, after, before)
		}
	}
}

// TestMoved: a socket stays in the cgroup that it was made in. Whoever uses it elsewhere
// meets the policy of where the process is.
func TestMoved(t *testing.T) {
	r := newRig(t, "yes")
	r.sandbox("sb", &bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}})
	r.sandbox("none", &bpf.Policy{})
	w := r.worker("sb")
	for _, line := range []string{"listen", "keep a 2 1 0", "keep b 2 1 0", "keep c 2 1 0",
		"connect-kept a 198.18.0.5:7000"} {
		r.expect(w, line, "ok")
	}
	move := func(dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(w.pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	move(filepath.Join(r.dir, "none"))
	r.expect(w, "connect-kept b 198.18.0.5:7000", refusal)
	move(filepath.Dir(r.dir)) // outside of all sandboxes: still a sandbox's socket
	r.expect(w, "connect-kept b 198.18.0.5:7000", refusal)
	move(filepath.Join(r.dir, "sb"))
	r.expect(w, "connect-kept b 198.18.0.5:7000", "ok")
}

// TestRing: io_uring connects without connect(2).
func TestRing(t *testing.T) {
	testenv.Programs(t, "python3")
	r := newRig(t, "yes")
	r.sandbox("sb", &bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}})
	w := r.worker("sb")
	script := must(filepath.Abs("testdata/uring.py"))(t)
	r.expect(w, "listen", "ok")
	r.expect(w, "python "+script+" 198.18.0.5:7000", "ok")
	if e := r.expect(w, "python "+script+" 198.18.0.6:7000", refusal); e.Hook != bpf.Connect {
		t.Errorf("event %+v", e)
	}
}

// TestLost: events that nobody reads are counted, and denied all the same.
func TestLost(t *testing.T) {
	r := newRig(t, "yes")
	cgroup, _ := r.sandbox("sb", &bpf.Policy{})
	w := r.worker("sb")
	const times = 20000 // of 72 bytes, for 1 MiB
	if got := w.do("flood %d 198.18.0.5:7000", times); got != "ok" {
		t.Fatal(got)
	}
	var read uint64
	for {
		r.events.SetDeadline(time.Now())
		if _, err := r.events.Read(); err != nil {
			break
		}
		read++
	}
	counts := must(r.maps.Counts(cgroup))(t)
	if counts.Denied != times || counts.Lost == 0 || read+counts.Lost != times {
		t.Errorf("counts %+v and %d read, want %d in all", counts, read, times)
	}
	r.expect(w, tcp4+"198.18.0.5:7000", refusal) // there is room again
}

// TestOldKernel: without bpf_set_retval all is EPERM, and the event says so.
func TestOldKernel(t *testing.T) {
	r := newRig(t, "no")
	r.sandbox("sb", &bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}})
	w := r.worker("sb")
	r.expect(w, "listen", "ok")
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")
	for _, line := range []string{tcp4 + "198.18.0.6:7000", "sendto 2 2 0 198.18.0.6:7000", "socket 2 3 255"} {
		if e := r.expect(w, line, "EPERM"); e.Errno != unix.EPERM {
			t.Errorf("event %+v, want EPERM", e)
		}
	}
}

// TestSweep: another process puts its policies in force in the place of those before,
// without a moment between, and removes what is nobody's.
func TestSweep(t *testing.T) {
	r := newRig(t, "yes")
	cgroup, _ := r.sandbox("sb", &bpf.Policy{
		Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)},
		Ranges:    []bpf.Range{{Prefix: netip.MustParsePrefix("198.19.0.0/16"), TCP: true, Verdict: bpf.Allow}},
	})
	r.sandbox("gone", &bpf.Policy{Addresses: []bpf.Address{at("198.18.0.9:7000", bpf.TCP)}})
	w := r.worker("sb")
	r.expect(w, "listen", "ok")
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")

	next := must(bpf.Open(r.files))(t)
	defer next.Close()
	s := must(next.Add(cgroup,
		bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP), at("198.18.0.6:7000", bpf.TCP)}}))(t)
	if err := next.Sweep([]*bpf.Sandbox{s}); err != nil {
		t.Fatal(err)
	}
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")
	r.expect(w, tcp4+"198.18.0.6:7000", "ok")
	r.expect(w, tcp4+"198.19.0.5:7000", refusal)
	for i, want := range []int{1, 2, 0, 2} { // sandboxes, addresses, cidrs, counters (with nobody's)
		m := must(ebpf.NewMapFromFD(must(unix.Dup(int(r.files[i].Fd())))(t)))(t)
		var key, value []byte
		n := 0
		for all := m.Iterate(); all.Next(&key, &value); {
			n++
		}
		if n != want {
			t.Errorf("%s has %d entries, want %d", m, n, want)
		}
		_ = m.Close()
	}
}

// TestStay: what is attached outlives its loader (which has ended), and can be neither
// detached nor replaced by who owns the cgroup, or has hutch-netd's rights: that takes the
// program's fd, which the kernel gives to CAP_SYS_ADMIN only.
func TestStay(t *testing.T) {
	r := newRig(t, "yes")
	if err := os.Chown(r.dir, bpftest.Nobody, bpftest.Nobody); err != nil {
		t.Fatal(err)
	}
	r.sandbox("sb", &bpf.Policy{})
	w := r.worker("sb")
	r.expect(w, "socket 2 1 0", "ok")
	r.expect(w, tcp4+"198.18.0.5:7000", refusal)
	folder := bpftest.Open(t, r.dir)
	strangers := must(load(1, refusedErrno != unix.EPERM))(t)
	defer strangers.Close()
	for _, tt := range []struct {
		who    string
		attr   *syscall.SysProcAttr
		answer string // to asking for the program, and to detaching it or a stranger
		then   string // what a sandbox sees
	}{
		{"nobody", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: bpftest.Nobody, Gid: bpftest.Nobody}},
			"EPERM refused", refusal},
		{"hutch-netd", bpftest.Rights(), "EPERM refused", refusal},
		{"root", nil, "ok ok", "ECONNREFUSED"}, // nobody listens
	} {
		t.Run(tt.who, func(t *testing.T) {
			for at, stranger := range strangers.hooks() {
				got := must(link.QueryPrograms(link.QueryOptions{Target: int(folder.Fd()), Attach: at}))(t)
				if len(got.Programs) != 1 {
					t.Fatalf("%d programs at %s", len(got.Programs), at)
				}
				fd := os.NewFile(uintptr(must(unix.Dup(stranger.FD()))(t)), "program")
				cmd := exec.Command("/proc/self/exe", "-test.run=^TestDetach$", "-test.v")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", detachVar, at, got.Programs[0].ID))
				cmd.ExtraFiles, cmd.SysProcAttr, cmd.Dir = []*os.File{folder, fd}, tt.attr, "/"
				out, err := cmd.CombinedOutput()
				_ = fd.Close()
				if err != nil || !strings.Contains(string(out), "answer: "+tt.answer+"\n") {
					t.Errorf("%s: %s, %v; want %s", at, out, err, tt.answer)
				}
			}
			if got := w.do("%s", tcp4+"198.18.0.5:7000"); got != tt.then {
				t.Errorf("the sandbox sees %s, want %s", got, tt.then)
			}
		})
	}
}

const detachVar = "HUTCH_BPF_DETACH"

// TestDetach is not a test but TestStay's child: fd 3 is the cgroup, fd 4 a program of the
// same kind that is attached nowhere.
func TestDetach(t *testing.T) {
	at, id, ok := strings.Cut(os.Getenv(detachVar), " ")
	if !ok {
		t.Log("done by others")
		return
	}
	asked, err := ebpf.NewProgramFromID(ebpf.ProgramID(number(id)))
	have := asked
	if err != nil {
		have = must(ebpf.NewProgramFromFD(4))(t)
	}
	defer have.Close()
	detached := link.RawDetachProgram(link.RawDetachProgramOptions{Target: 3, Program: have,
		Attach: ebpf.AttachType(number(at))})
	answer := "ok"
	if detached != nil { // ebpf probes as this user, and makes another error of it
		answer = "refused"
	}
	t.Logf("answer: %s %s", name(err), answer)
}

const writerVar = "HUTCH_BPF_WRITER"
