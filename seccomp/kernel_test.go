//go:build cgo

package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// childEnv selects what a re-executed test binary does after it has installed
// the program on its standard input: "probe" makes the calls of probes, "bench
// NAME COUNT" repeats one, "exec ARGV..." becomes a command. With topEnv the last so many
// bytes are a program of their own, which goes on top.
const (
	childEnv = "HUTCH_SECCOMP_CHILD"
	topEnv   = "HUTCH_SECCOMP_TOP"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		if err := child(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(mode string) error {
	runtime.LockOSThread()
	prog, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	top, _ := strconv.Atoi(os.Getenv(topEnv))
	prog, over := prog[:len(prog)-top], prog[len(prog)-top:]
	var installed time.Duration
	if len(prog) > 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		start := time.Now()
		if err := sys.InstallSeccomp(prog, unix.SECCOMP_FILTER_FLAG_TSYNC); err != nil {
			return err
		}
		installed = time.Since(start)
	}
	if len(over) > 0 {
		if err := sys.InstallSeccomp(over, 0); err != nil {
			return err
		}
	}
	switch mode {
	case "probe":
		out := map[string]int{}
		for name, p := range probes {
			_, _, errno := unix.RawSyscall6(p.nr, p.args[0], p.args[1], p.args[2], p.args[3], p.args[4], p.args[5])
			out[name] = int(errno)
		}
		return json.NewEncoder(os.Stdout).Encode(out)
	case "bench":
		return benchChild(installed)
	case "x32":
		unix.RawSyscall(unix.SYS_GETPID|x32Bit, 0, 0, 0)
		return errors.New("alive after an x32 call")
	case "exec":
		if err := os.Unsetenv(childEnv); err != nil {
			return err
		}
		return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	return fmt.Errorf("unknown mode %q", mode)
}

// childCommand is this binary in a mode, under prog (nil: without a filter).
func childCommand(prog []byte, mode string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	cmd.Stdin = bytes.NewReader(prog)
	return cmd
}

// trial is one system call, chosen so that it does nothing when it is let
// through, and what it returns under the default profile. An allowed one must
// return what it does without a filter.
type trial struct {
	nr   uintptr
	args [6]uintptr
	want unix.Errno
	// twin is the allowed call of the same kind; "" for a twin itself.
	twin string
}

const noFd = ^uintptr(0)

// probes: a call of a refused kind would end at EFAULT, EINVAL or EBADF if it
// reached the kernel, as the run without a filter shows.
var probes = map[string]trial{
	"getppid":   {nr: unix.SYS_GETPPID},
	"unshare 0": {nr: unix.SYS_UNSHARE},
	"unshare user": {nr: unix.SYS_UNSHARE, args: [6]uintptr{unix.CLONE_NEWUSER}, want: unix.EPERM,
		twin: "unshare 0"},
	"unshare user, high": {nr: unix.SYS_UNSHARE, args: [6]uintptr{unix.CLONE_NEWUSER | 1<<40}, want: unix.EPERM,
		twin: "unshare 0"},
	// The kernel refuses a thread without shared signal handlers, and a new user
	// namespace with a shared working directory, with EINVAL: nothing is created.
	"clone": {nr: unix.SYS_CLONE, args: [6]uintptr{unix.CLONE_THREAD}, want: unix.EINVAL},
	"clone user": {nr: unix.SYS_CLONE, args: [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS}, want: unix.EPERM,
		twin: "clone"},
	"clone3":  {nr: unix.SYS_CLONE3, want: unix.ENOSYS, twin: "clone"},
	"setns":   {nr: unix.SYS_SETNS, args: [6]uintptr{noFd}, want: unix.EPERM, twin: "unshare 0"},
	"winsize": {nr: unix.SYS_IOCTL, args: [6]uintptr{noFd, unix.TIOCGWINSZ}, want: unix.EBADF},
	"tiocsti": {nr: unix.SYS_IOCTL, args: [6]uintptr{noFd, unix.TIOCSTI}, want: unix.EPERM, twin: "winsize"},
	"tiocsti high": {nr: unix.SYS_IOCTL, args: [6]uintptr{noFd, unix.TIOCSTI | 1<<32}, want: unix.EPERM,
		twin: "winsize"},
	"tioclinux":   {nr: unix.SYS_IOCTL, args: [6]uintptr{noFd, tioclinux | 1<<63}, want: unix.EPERM, twin: "winsize"},
	"tiocsetd":    {nr: unix.SYS_IOCTL, args: [6]uintptr{noFd, unix.TIOCSETD}, want: unix.EPERM, twin: "winsize"},
	"personality": {nr: unix.SYS_PERSONALITY, args: [6]uintptr{perQuery}},
	"exec stacks": {nr: unix.SYS_PERSONALITY, args: [6]uintptr{0x400000}, want: unix.EPERM, twin: "personality"},

	"tcp":   {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}},
	"udp":   {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK}},
	"route": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW}},
	"uevent": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW,
		unix.NETLINK_KOBJECT_UEVENT}, want: unix.EPROTONOSUPPORT, twin: "route"},
	"raw": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC,
		unix.IPPROTO_ICMP}, want: unix.EPERM, twin: "tcp"},
	"UDP-Lite": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		want: unix.EPROTONOSUPPORT, twin: "udp"},
	"packet": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_PACKET, unix.SOCK_RAW}, want: unix.EAFNOSUPPORT,
		twin: "tcp"},
	"packet, high": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_PACKET | 1<<33, unix.SOCK_DGRAM},
		want: unix.EAFNOSUPPORT, twin: "tcp"},
	"vsock": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, want: unix.EAFNOSUPPORT,
		twin: "tcp"},
	"alg": {nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, want: unix.EAFNOSUPPORT,
		twin: "tcp"},
	"inet pair": {nr: unix.SYS_SOCKETPAIR, args: [6]uintptr{unix.AF_INET, unix.SOCK_STREAM},
		want: unix.EAFNOSUPPORT, twin: "unix pair"},
	"unix pair":     {nr: unix.SYS_SOCKETPAIR, args: [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}, want: unix.EFAULT},
	"seccomp":       {nr: unix.SYS_SECCOMP, args: [6]uintptr{99}, want: unix.EINVAL},
	"landlock":      {nr: unix.SYS_LANDLOCK_CREATE_RULESET, args: [6]uintptr{0, 0, 1 << 30}, want: unix.EINVAL},
	"open":          {nr: unix.SYS_OPENAT, args: [6]uintptr{noFd}, want: unix.EFAULT},
	"ptrace":        {nr: unix.SYS_PTRACE, args: [6]uintptr{unix.PTRACE_PEEKDATA, 0}, want: unix.ESRCH},
	"mount":         refusedProbe(unix.SYS_MOUNT),
	"umount":        refusedProbe(unix.SYS_UMOUNT2),
	"pivot_root":    refusedProbe(unix.SYS_PIVOT_ROOT),
	"fsopen":        refusedProbe(unix.SYS_FSOPEN),
	"fsconfig":      refusedProbe(unix.SYS_FSCONFIG),
	"fsmount":       refusedProbe(unix.SYS_FSMOUNT),
	"fspick":        refusedProbe(unix.SYS_FSPICK),
	"move_mount":    refusedProbe(unix.SYS_MOVE_MOUNT),
	"open_tree":     refusedProbe(unix.SYS_OPEN_TREE),
	"mount_setattr": refusedProbe(unix.SYS_MOUNT_SETATTR),
	"add_key":       refusedProbe(unix.SYS_ADD_KEY),
	"request_key":   refusedProbe(unix.SYS_REQUEST_KEY),
	"keyctl":        refusedProbe(unix.SYS_KEYCTL),
	"bpf":           refusedProbe(unix.SYS_BPF),
	"perf":          refusedProbe(unix.SYS_PERF_EVENT_OPEN),
	"io_uring":      {nr: unix.SYS_IO_URING_SETUP, args: [6]uintptr{noFd, noFd}, want: unix.ENOSYS, twin: "open"},
	"io_uring op":   {nr: unix.SYS_IO_URING_ENTER, args: [6]uintptr{noFd}, want: unix.ENOSYS, twin: "open"},
	"userfaultfd":   refusedProbe(unix.SYS_USERFAULTFD),
	"name_to_fh":    refusedProbe(unix.SYS_NAME_TO_HANDLE_AT),
	"open_by_fh":    refusedProbe(unix.SYS_OPEN_BY_HANDLE_AT),
	"kexec_file":    refusedProbe(unix.SYS_KEXEC_FILE_LOAD),
	"finit_module":  refusedProbe(unix.SYS_FINIT_MODULE),
	"swapon":        refusedProbe(unix.SYS_SWAPON),
	"syslog":        refusedProbe(unix.SYS_SYSLOG),
	"clock_settime": refusedProbe(unix.SYS_CLOCK_SETTIME),
	"adjtimex":      refusedProbe(unix.SYS_ADJTIMEX),
	"reboot":        refusedProbe(unix.SYS_REBOOT),
	"sethostname":   refusedProbe(unix.SYS_SETHOSTNAME),
	"statmount":     {nr: unix.SYS_STATMOUNT, args: [6]uintptr{1}, want: unix.ENOSYS, twin: "open"},
	// What tells the other profiles apart; under default they reach the kernel.
	"read":   {nr: unix.SYS_READ, args: [6]uintptr{noFd}, want: unix.EBADF},
	"setuid": {nr: unix.SYS_SETUID, args: [6]uintptr{noFd}, want: unix.EINVAL},
	"shmget": {nr: unix.SYS_SHMGET, args: [6]uintptr{0, 0, 0}, want: unix.EINVAL},
	"aio":    {nr: unix.SYS_IO_SETUP, args: [6]uintptr{1, 0}, want: unix.EFAULT},
	"clone mounts": {nr: unix.SYS_CLONE, args: [6]uintptr{unix.CLONE_NEWNS | unix.CLONE_FS}, want: unix.EPERM,
		twin: "clone"},
	"unshare mounts": {nr: unix.SYS_UNSHARE, args: [6]uintptr{unix.CLONE_NEWNS}, want: unix.EPERM, twin: "unshare 0"},
	"tables":         {nr: unix.SYS_SETSOCKOPT, args: [6]uintptr{noFd, unix.SOL_IP, 64}, want: unix.EBADF},
	"keepalive": {nr: unix.SYS_SETSOCKOPT, args: [6]uintptr{noFd, unix.SOL_SOCKET, unix.SO_KEEPALIVE},
		want: unix.EBADF},
	"set flags": {nr: unix.SYS_IOCTL, args: [6]uintptr{noFd, unix.SIOCSIFFLAGS}, want: unix.EBADF},
	"flags":     {nr: unix.SYS_IOCTL, args: [6]uintptr{noFd, unix.SIOCGIFFLAGS}, want: unix.EBADF},

	"process_madv": {nr: unix.SYS_PROCESS_MADVISE, args: [6]uintptr{noFd}, want: unix.ENOSYS, twin: "open"},
}

// refusedProbe is a call with useless arguments: all pointers bad, all fds
// closed, all flags unknown.
func refusedProbe(nr uintptr) trial {
	return trial{nr: nr, args: [6]uintptr{noFd, noFd, noFd, noFd, noFd, noFd}, want: unix.EPERM, twin: "open"}
}

func runProbes(t *testing.T, prog []byte, top ...byte) map[string]unix.Errno {
	t.Helper()
	cmd := childCommand(append(slices.Clone(prog), top...), "probe")
	cmd.Env = append(cmd.Env, topEnv+"="+strconv.Itoa(len(top)))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("probe child: %v: %s", err, stderr.String())
	}
	var results map[string]unix.Errno
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatal(err)
	}
	return results
}

// TestKernelDecides installs the programs in a process of its own and makes the
// calls.
func TestKernelDecides(t *testing.T) {
	open := runProbes(t, nil)
	def := runProbes(t, mustCompile(t, Default()).BPF)
	ini := runProbes(t, mustCompile(t, Init()).BPF)
	top, err := OnTop(Init(), Default())
	if err != nil {
		t.Fatal(err)
	}
	if both := runProbes(t, mustCompile(t, Init()).BPF, top.BPF...); !maps.Equal(both, def) {
		t.Errorf("under init and what default adds: %v\nunder default: %v", both, def)
	}
	distinct := 0
	for name, p := range probes {
		if p.twin == "" {
			if def[name] != open[name] || ini[name] != open[name] {
				t.Errorf("%s: %v without a filter, %v under default, %v under init", name, open[name], def[name],
					ini[name])
			}
			continue
		}
		if def[name] != p.want {
			t.Errorf("%s: %v under default, want %v", name, def[name], p.want)
		}
		wantInit := p.want
		if name == "clone3" {
			wantInit = unix.EINVAL // reaches the kernel, which refuses the empty argument
		}
		if ini[name] != wantInit {
			t.Errorf("%s: %v under init, want %v", name, ini[name], wantInit)
		}
		if got, want := def[p.twin], probes[p.twin].want; got != want {
			t.Errorf("%s: the allowed twin %s gives %v, want %v", name, p.twin, got, want)
		}
		if open[name] != def[name] {
			distinct++
		} else {
			t.Logf("%s: this kernel gives %v to this user without a filter as well", name, open[name])
		}
	}
	t.Logf("%d refusals differ from the kernel's own answer", distinct)
	if os.Getuid() == 0 && distinct < 30 {
		t.Errorf("only %d refusals can be told from the kernel's own", distinct)
	}
}

func TestKernelKillsX32(t *testing.T) {
	testenv.Arch(t, "amd64") // x32 belongs to it
	wantSignal(t, childCommand(mustCompile(t, Default()).BPF, "x32"))
	// The twin: without a filter the call returns, whatever it returns.
	if err := childCommand(nil, "x32").Run(); !exitedWith(err, 99) {
		t.Errorf("without a filter: %v", err)
	}
}

// i386Exit is a 32-bit ELF executable: mov $1,%eax; mov $42,%ebx; int $0x80.
var i386Exit = []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x02\x00\x03\x00\x01\x00\x00\x00\x54\x80\x04\x08\x34\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x28\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08" +
	"\x60\x00\x00\x00\x60\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00" +
	"\xb8\x01\x00\x00\x00\xbb\x2a\x00\x00\x00\xcd\x80")

func TestKernelKillsForeignArch(t *testing.T) {
	testenv.Arch(t, "amd64") // the foreign program is i386
	path := filepath.Join(t.TempDir(), "exit42")
	if err := os.WriteFile(path, i386Exit, 0o755); err != nil {
		t.Fatal(err)
	}
	err := childCommand(nil, "exec", path).Run()
	if !exitedWith(err, 42) {
		testenv.Require(t, probe.Check{
			Name: "i386 programs", Status: probe.No, Detail: fmt.Sprint(err),
			Remedy: "a kernel with CONFIG_IA32_EMULATION",
		})
	}
	wantSignal(t, childCommand(mustCompile(t, Default()).BPF, "exec", path))
}

func exitedWith(err error, code int) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == code
}

// wantSignal expects cmd to die of SIGSYS.
func wantSignal(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var exit *exec.ExitError
	err := cmd.Run()
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
		t.Errorf("%v, want death by SIGSYS", err)
	}
}

// TestInstallRefuses: what the kernel or the wrapper does not take.
func TestInstallRefuses(t *testing.T) {
	prog := mustCompile(t, Default()).BPF
	for name, bad := range map[string][]byte{
		"empty": nil, "odd size": prog[:insnSize+1], "too long": make([]byte, (maxInsns+1)*insnSize),
	} {
		if err := sys.InstallSeccomp(bad, 0); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := sys.InstallSeccomp(prog, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a flag that changes the result: %v", err)
	}
	var stderr bytes.Buffer
	cmd := childCommand(prog[:insnSize], "probe")
	cmd.Stderr = &stderr
	if err := cmd.Run(); !exitedWith(err, 99) || !strings.Contains(stderr.String(), "invalid argument") {
		t.Errorf("a program without a return: %v: %s", err, stderr.String())
	}
}

// benchChild repeats a call and prints nanoseconds: of the installation, and of
// one call.
func benchChild(installed time.Duration) error {
	p, ok := probes[os.Args[1]]
	n, err := strconv.Atoi(os.Args[2])
	if err != nil || !ok {
		return fmt.Errorf("bench %q", os.Args[1:])
	}
	start := time.Now()
	for range n {
		unix.RawSyscall6(p.nr, p.args[0], p.args[1], p.args[2], p.args[3], p.args[4], p.args[5])
	}
	fmt.Println(installed.Nanoseconds(), float64(time.Since(start).Nanoseconds())/float64(n))
	return nil
}

// BenchmarkKernel measures installing a program and what it adds to a call:
// getppid is decided by number alone, which the kernel caches since 5.11; ioctl,
// clone and personality look at arguments.
func BenchmarkKernel(b *testing.B) {
	programs := map[string][]byte{
		"none": nil, "default": mustCompile(b, Default()).BPF, "init": mustCompile(b, Init()).BPF,
	}
	for _, call := range []string{"getppid", "winsize", "clone", "personality", "bpf"} {
		for _, prog := range []string{"none", "default", "init"} {
			b.Run(call+"/"+prog, func(b *testing.B) {
				var install, perCall float64
				for b.Loop() {
					out, err := childCommand(programs[prog], "bench", call, "200000").Output()
					if err != nil {
						b.Fatal(err)
					}
					if _, err := fmt.Sscan(string(out), &install, &perCall); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(perCall, "ns/call")
				b.ReportMetric(install/1000, "us/install")
			})
		}
	}
}
