// Package program holds the eBPF programs, compiled, and puts them in force. Only
// hutch-netd links it: it takes CAP_BPF and CAP_NET_ADMIN.
package program

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/bpf"
)

// The compiler is Debian's clang-19, so that the object is the same wherever it is made. The
// hashes let a test tell that it was made from this source. -mcpu=v2 has no registers of four
// bytes, which Linux before 6.8 does not let a loader without CAP_PERFMON put onto the stack twice.
//
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types hutch hutch.c -- -O2 -mcpu=v2 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate sh -c "sha256sum hutch.c hutch_bpfel.o > hutch.sha256"

// Set is the programs and maps of one attachment, in the kernel but in force nowhere.
type Set struct {
	objects hutchObjects
	// Errnos says that refused programs see the error that a sandbox's entry names; else
	// it is EPERM, as before Linux 6.1.
	Errnos bool
}

// Load loads the programs for sandboxes whose cgroups are at level, the hierarchy's root
// being 0.
func Load(level uint32) (*Set, error) {
	err := features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval)
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		return nil, fmt.Errorf("find out whether the kernel has bpf_set_retval: %w", err)
	}
	return load(level, err == nil)
}

func load(level uint32, errnos bool) (*Set, error) {
	spec, err := loadHutch()
	if err != nil {
		return nil, fmt.Errorf("read the eBPF object: %w", err)
	}
	var can uint32
	if errnos {
		can = 1
	}
	if err := errors.Join(spec.Variables["level"].Set(level), spec.Variables["errnos"].Set(can)); err != nil {
		return nil, fmt.Errorf("set the eBPF object's constants: %w", err)
	}
	if !errnos {
		for _, p := range spec.Programs {
			withoutErrnos(p.Instructions)
		}
	}
	s := &Set{Errnos: errnos}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("load the eBPF programs: %w", err)
	}
	// Who is no sandbox is counted, too.
	if err := s.objects.Counters.Put(uint64(0), bpf.Counts{}); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the eBPF counters: %w", err), s.Close())
	}
	return s, nil
}

// withoutErrnos takes the calls of bpf_set_retval out of a program. The constant that says not
// to make them is not enough: Linux 5.10 refuses the program all the same.
func withoutErrnos(program asm.Instructions) {
	for i, in := range program {
		if in.IsBuiltinCall() && asm.BuiltinFunc(in.Constant) == asm.FnSetRetval {
			program[i] = asm.Mov.Imm(asm.R0, 0).WithMetadata(in.Metadata)
		}
	}
}

// hooks are the programs with the places where they are attached.
func (s *Set) hooks() map[ebpf.AttachType]*ebpf.Program {
	p := s.objects.hutchPrograms
	return map[ebpf.AttachType]*ebpf.Program{
		ebpf.AttachCGroupInet4Connect:   p.Connect4,
		ebpf.AttachCGroupInet6Connect:   p.Connect6,
		ebpf.AttachCGroupUDP4Sendmsg:    p.Sendmsg4,
		ebpf.AttachCGroupUDP6Sendmsg:    p.Sendmsg6,
		ebpf.AttachCGroupInetSockCreate: p.SockCreate,
		ebpf.AttachCGroupInetEgress:     p.Egress,
	}
}

// ErrAttached says that a cgroup has programs already. Attaching more would stack them: all
// must allow, so what one before has forgotten would be refused for ever. They cannot be
// replaced: the kernel gives fds of programs to CAP_SYS_ADMIN only.
var ErrAttached = errors.New("the cgroup has eBPF programs already: use a fresh one")

// Attach puts the programs in force in a cgroup, all or none. They stay until the cgroup is
// removed, whoever ends.
//
// BPF_F_ALLOW_MULTI, so that only CAP_NET_ADMIN can detach them, and what is attached above
// or below holds as well. Not links, which end with their holder.
func (s *Set) Attach(cgroup *os.File) (err error) {
	fd := int(cgroup.Fd())
	if err := s.count(fd, 0); err != nil {
		return err
	}
	var done []link.RawDetachProgramOptions
	defer func() {
		if err == nil {
			return
		}
		for _, o := range done {
			err = errors.Join(err, link.RawDetachProgram(o))
		}
	}()
	for at, p := range s.hooks() {
		o := link.RawAttachProgramOptions{Target: fd, Program: p, Attach: at, Flags: allowMulti}
		if err := link.RawAttachProgram(o); err != nil {
			return fmt.Errorf("attach %s to the cgroup: %w", at, err)
		}
		done = append(done, link.RawDetachProgramOptions{Target: fd, Program: p, Attach: at})
	}
	return s.count(fd, 1) // of two that attach at once, none is left
}

// allowMulti is BPF_F_ALLOW_MULTI (linux/bpf.h).
const allowMulti = 1 << 1

// count compares how many programs each hook of a cgroup has, not counting those above it.
func (s *Set) count(fd, want int) error {
	for at := range s.hooks() {
		r, err := link.QueryPrograms(link.QueryOptions{Target: fd, Attach: at})
		if err != nil {
			return fmt.Errorf("look for programs of the cgroup: %w", err)
		}
		if len(r.Programs) != want {
			return fmt.Errorf("%w (%d at %s)", ErrAttached, len(r.Programs), at)
		}
	}
	return nil
}

// Files are the maps in the order of bpf.Open, as duplicates that are the caller's.
func (s *Set) Files() ([]*os.File, error) {
	m := s.objects.hutchMaps
	var files []*os.File
	for _, one := range []*ebpf.Map{m.Sandboxes, m.Addresses, m.Cidrs, m.Counters, m.Events} {
		fd, err := unix.FcntlInt(uintptr(one.FD()), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, fmt.Errorf("duplicate the eBPF map %s: %w", one, err)
		}
		files = append(files, os.NewFile(uintptr(fd), one.String()))
	}
	return files, nil
}

// TryMaps reads a map, as the calling thread may.
func (s *Set) TryMaps() error {
	var c bpf.Counts
	return s.objects.Counters.Lookup(uint64(0), &c)
}

// Close closes programs and maps. What is attached stays so.
func (s *Set) Close() error { return s.objects.Close() }
