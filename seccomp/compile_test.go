//go:build cgo

package seccomp

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func mustCompile(t testing.TB, p Profile) Program {
	t.Helper()
	prog, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// TestProgram runs compiled programs on calls whose answers are written down
// here, independently of the tables.
func TestProgram(t *testing.T) {
	const high = 1 << 32
	allow, perm := uint32(unix.SECCOMP_RET_ALLOW), uint32(unix.SECCOMP_RET_ERRNO|unix.EPERM)
	errno := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	tests := []struct {
		name      string
		nr        uint32
		args      [6]uint64
		def, init uint32
	}{
		{"read", unix.SYS_READ, [6]uint64{}, allow, allow},
		{"clone3", unix.SYS_CLONE3, [6]uint64{}, errno(unix.ENOSYS), allow},
		{"thread", unix.SYS_CLONE, [6]uint64{0x3d0f00}, allow, allow},
		{"fork", unix.SYS_CLONE, [6]uint64{uint64(unix.SIGCHLD)}, allow, allow},
		{"clone newuser", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, perm, perm},
		{"clone newnet", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWNET | high}, perm, perm},
		{"unshare nothing", unix.SYS_UNSHARE, [6]uint64{}, allow, allow},
		{"unshare time", unix.SYS_UNSHARE, [6]uint64{unix.CLONE_NEWTIME}, perm, perm},
		{"unshare user and files", unix.SYS_UNSHARE, [6]uint64{unix.CLONE_NEWUSER | unix.CLONE_FILES}, perm, perm},
		{"window size", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCGWINSZ}, allow, allow},
		{"tiocsti", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSTI}, perm, perm},
		{"tiocsti, high bits", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSTI | high}, perm, perm},
		{"tiocsti, all high bits", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSTI | 0xffffffff<<32}, perm, perm},
		{"tioclinux, high bits", unix.SYS_IOCTL, [6]uint64{0, tioclinux | 1<<63}, perm, perm},
		{"tiocsetd", unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSETD}, perm, perm},
		{"personality query", unix.SYS_PERSONALITY, [6]uint64{0xffffffff}, allow, allow},
		{"personality query, signed", unix.SYS_PERSONALITY, [6]uint64{^uint64(0)}, allow, allow},
		{"read implies exec", unix.SYS_PERSONALITY, [6]uint64{0x400000}, perm, perm},
		{"unix", unix.SYS_SOCKET, [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC}, allow, allow},
		{"tcp", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC},
			allow, allow},
		{"tcp6", unix.SYS_SOCKET, [6]uint64{unix.AF_INET6 | high, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allow, allow},
		{"mptcp", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, 262}, allow, allow},
		{"sctp", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
			errno(unix.EPROTONOSUPPORT), errno(unix.EPROTONOSUPPORT)},
		{"ping", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
			errno(unix.EPROTONOSUPPORT), errno(unix.EPROTONOSUPPORT)},
		{"raw", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP},
			perm, perm},
		{"sock_packet", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_PACKET}, perm, perm},
		{"packet", unix.SYS_SOCKET, [6]uint64{unix.AF_PACKET | high, unix.SOCK_RAW}, errno(unix.EAFNOSUPPORT),
			errno(unix.EAFNOSUPPORT)},
		{"vsock", unix.SYS_SOCKET, [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, errno(unix.EAFNOSUPPORT),
			errno(unix.EAFNOSUPPORT)},
		{"alg", unix.SYS_SOCKET, [6]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, errno(unix.EAFNOSUPPORT),
			errno(unix.EAFNOSUPPORT)},
		{"netlink route", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC}, allow, allow},
		{"netlink netfilter", unix.SYS_SOCKET, [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
			errno(unix.EPROTONOSUPPORT), errno(unix.EPROTONOSUPPORT)},
		{"unix pair", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow, allow},
		{"vsock pair", unix.SYS_SOCKETPAIR, [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, errno(unix.EAFNOSUPPORT),
			errno(unix.EAFNOSUPPORT)},
		{"mount", unix.SYS_MOUNT, [6]uint64{}, perm, perm},
		{"io_uring", unix.SYS_IO_URING_SETUP, [6]uint64{}, errno(unix.ENOSYS), errno(unix.ENOSYS)},
		{"bpf", unix.SYS_BPF, [6]uint64{}, perm, perm},
		{"keyctl", unix.SYS_KEYCTL, [6]uint64{}, perm, perm},
		{"setns", unix.SYS_SETNS, [6]uint64{}, perm, perm},
		{"statmount", unix.SYS_STATMOUNT, [6]uint64{}, errno(unix.ENOSYS), errno(unix.ENOSYS)},
		{"fchmodat2", unix.SYS_FCHMODAT2, [6]uint64{}, allow, allow},
		{"a future call", 600, [6]uint64{}, errno(unix.ENOSYS), errno(unix.ENOSYS)},
	}
	def, ini := mustCompile(t, Default()), mustCompile(t, Init())
	for _, tt := range tests {
		d := cbpf.Data{NR: tt.nr, Arch: archCodes[runtime.GOARCH], Args: tt.args}
		for _, p := range []struct {
			prog Program
			want uint32
		}{{def, tt.def}, {ini, tt.init}} {
			if got, err := cbpf.Run(p.prog.BPF, &d); err != nil || got != p.want {
				t.Errorf("%s under %s: %#x, %v, want %#x", tt.name, p.prog.Profile, got, err, p.want)
			}
		}
	}
}

// TestForeignArchKills covers numbers that are allowed on the native
// architecture, entered by another one.
func TestForeignArchKills(t *testing.T) {
	prog := mustCompile(t, Default())
	native := archCodes[runtime.GOARCH]
	calls := map[string]cbpf.Data{
		"i386":    {NR: 1, Arch: unix.AUDIT_ARCH_I386},
		"arm":     {NR: 1, Arch: unix.AUDIT_ARCH_ARM},
		"riscv64": {NR: unix.SYS_READ, Arch: unix.AUDIT_ARCH_RISCV64},
	}
	if runtime.GOARCH == "amd64" {
		calls["x32"] = cbpf.Data{NR: unix.SYS_READ | x32Bit, Arch: native}
		calls["x32 ioctl"] = cbpf.Data{NR: 514 | x32Bit, Arch: native}
	}
	for name, d := range calls {
		if got, err := cbpf.Run(prog.BPF, &d); err != nil || got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("%s: %#x, %v", name, got, err)
		}
	}
	// -1 is what a tracer sets to skip a call: it must not pass as x32.
	d := cbpf.Data{NR: ^uint32(0), Arch: native}
	if got, err := cbpf.Run(prog.BPF, &d); err != nil || got == unix.SECCOMP_RET_ALLOW {
		t.Errorf("number -1: %#x, %v", got, err)
	}
}

// TestResolveNative compares libseccomp's numbers with the golden file's.
func TestResolveNative(t *testing.T) {
	nrs := numbers(t, runtime.GOARCH)
	for name, nr := range nrs {
		if got, ok := resolveNative(name); ok && got != nr {
			t.Errorf("%s is %d, libseccomp says %d", name, nr, got)
		} else if !ok && len(rulesOf(Init(), name, -1)) > 0 {
			t.Errorf("libseccomp %s does not know %s (%d): add it to recent", libraryVersion(), name, nr)
		}
	}
	for nr := range uint32(lastNumber) {
		name, err := libseccomp.ScmpSyscall(nr).GetName()
		if err != nil {
			continue
		}
		if _, ok := nrs[name]; !ok {
			t.Errorf("libseccomp knows %s (%d), the golden file does not", name, nr)
		}
	}
}

// TestOtherArchAssembles has libseccomp write the other architecture's program
// and checks it against the table. libseccomp translates numbers through names,
// so calls it cannot name are left out.
func TestOtherArchAssembles(t *testing.T) {
	other, arch, code := "arm64", libseccomp.ArchARM64, uint32(unix.AUDIT_ARCH_AARCH64)
	if runtime.GOARCH == "arm64" {
		other, arch, code = "amd64", libseccomp.ArchAMD64, unix.AUDIT_ARCH_X86_64
	}
	filter, err := libseccomp.NewFilter(libseccomp.ActErrno.SetReturnCode(int16(Unlisted)))
	if err != nil {
		t.Fatal(err)
	}
	defer filter.Release()
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{filter.AddArch(arch), filter.RemoveArch(native),
		filter.SetBadArchAction(libseccomp.ActKillProcess), filter.SetOptimize(2)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var checked []call
	for name, c := range lowered(t, Default(), other) {
		nr, err := libseccomp.GetSyscallFromName(name)
		if _, isRecent := recent[name]; err != nil || isRecent || nr < 0 {
			continue
		}
		if err := addCall(filter, call{nr: uint32(nr), name: name, rules: c.rules}); err != nil {
			t.Fatal(err)
		}
		checked = append(checked, c)
	}
	prog, err := export(filter)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(prog, checked, code); err != nil {
		t.Error(err)
	}
	if len(checked) < 250 {
		t.Errorf("only %d calls compared", len(checked))
	}
}

// TestVerifyFindsFlips changes each instruction's constant and expects verify to
// notice.
func TestVerifyFindsFlips(t *testing.T) {
	calls, err := lowerNative(Default())
	if err != nil {
		t.Fatal(err)
	}
	prog := mustCompile(t, Default()).BPF
	missed := 0
	for at := 0; at < len(prog); at += insnSize {
		if binary.NativeEndian.Uint16(prog[at:]) != unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			continue
		}
		bad := bytes.Clone(prog)
		bad[at+4] ^= 1
		if verify(bad, calls, archCodes[runtime.GOARCH]) == nil {
			missed++
			t.Logf("instruction %d: constant %#x", at/insnSize, binary.NativeEndian.Uint32(prog[at+4:]))
		}
	}
	if missed > 0 {
		t.Errorf("%d changed comparisons were not noticed", missed)
	}
}

func TestCompileRefuses(t *testing.T) {
	if _, err := Compile(Profile{Name: "bad", Rules: []Rule{{Syscalls: []string{"read"}}}}); err == nil {
		t.Error("a rule without a reason compiles")
	}
}

func TestCached(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	want := mustCompile(t, Default())
	path := cachePath(dir, want.Hash)
	check := func(what string) {
		t.Helper()
		got, err := Cached(dir, Default())
		if err != nil || !bytes.Equal(got.BPF, want.BPF) || got.Hash != want.Hash || got.Profile != DefaultName {
			t.Fatalf("%s: %d instructions, hash %s, %v", what, got.Len(), got.Hash, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%s: cache holds %v, %v", what, entries, err)
		}
	}
	check("empty cache")
	check("warm cache")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	for name, content := range map[string][]byte{
		"empty": nil, "header only": whole[:cacheHeader], "torn": whole[:len(whole)-insnSize],
		"torn inside an instruction": whole[:len(whole)-3], "flipped bit": flipped,
		"too long": append(bytes.Clone(whole), make([]byte, maxInsns*insnSize)...), "zeros": make([]byte, len(whole)),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		check(name)
		if healed, err := os.ReadFile(path); err != nil || !bytes.Equal(healed, whole) {
			t.Errorf("%s: the file was not replaced", name)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("cache folder: %v, %v", info.Mode(), err)
	}
	if ini := mustCompile(t, Init()); ini.Hash == want.Hash {
		t.Error("two profiles with one hash")
	}
}

func TestHash(t *testing.T) {
	base := []call{{nr: 1, rules: []Rule{{}}}}
	same := []call{{nr: 1, name: "n", rules: []Rule{{Reason: "r"}}}}
	want := hash(base, "2.5.4", "amd64")
	if hash(same, "2.5.4", "amd64") != want {
		t.Error("names or reasons change the hash")
	}
	for name, other := range map[string]string{
		"library": hash(base, "2.6.0", "amd64"),
		"arch":    hash(base, "2.5.4", "arm64"),
		"number":  hash([]call{{nr: 2, rules: []Rule{{}}}}, "2.5.4", "amd64"),
		"errno":   hash([]call{{nr: 1, rules: []Rule{{Errno: 1}}}}, "2.5.4", "amd64"),
		"cond":    hash([]call{{nr: 1, rules: []Rule{{When: []Cond{{Mask: 1}}}}}}, "2.5.4", "amd64"),
	} {
		if other == want {
			t.Errorf("another %s gives the same hash", name)
		}
	}
}

func FuzzDecodeCache(f *testing.F) {
	prog := mustCompile(f, Default()).BPF
	f.Add(encodeCache(prog))
	f.Add(encodeCache(prog[:insnSize]))
	f.Add(encodeCache(prog)[:cacheHeader])
	f.Add([]byte(cacheMagic))
	f.Fuzz(func(t *testing.T, content []byte) {
		var prog []byte
		var err error
		cost.Input(t, content, func(content []byte) { prog, err = decodeCache(content) })
		if err != nil {
			return
		}
		if checkSize(prog) != nil {
			t.Errorf("%d bytes accepted", len(prog))
		}
		if !bytes.Equal(encodeCache(prog), content) {
			t.Error("content is not what its program encodes to")
		}
	})
}

// FuzzRun: whatever bytes a program consists of, run ends without a panic.
func FuzzRun(f *testing.F) {
	f.Add(mustCompile(f, Default()).BPF, uint32(unix.SYS_SOCKET), uint64(2), uint64(1))
	f.Fuzz(func(t *testing.T, prog []byte, nr uint32, a0, a1 uint64) {
		cost.Input(t, prog, func(prog []byte) {
			_, _ = cbpf.Run(prog, &cbpf.Data{NR: nr, Arch: unix.AUDIT_ARCH_X86_64, Args: [6]uint64{a0, a1}})
		})
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		mustCompile(b, Default())
	}
}

func BenchmarkAssemble(b *testing.B) {
	calls, err := lowerNative(Default())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := assemble(calls); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCached(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		if _, err := Cached(dir, Default()); err != nil {
			b.Fatal(err)
		}
	}
}
