//go:build cgo

package seccomp

import (
	"fmt"
	"io"
	"os"
	"runtime"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// archCodes are the architectures whose tables were reviewed: the order of
// clone's arguments and the ioctl numbers differ on others.
var archCodes = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64,
	"arm64": unix.AUDIT_ARCH_AARCH64,
}

// Compile makes the program of p for the architecture it runs on.
//
// The program knows that one architecture. A call made by another one's entry,
// such as int 0x80 on amd64, or with an x32 number, kills the process with
// SIGSYS: its numbers mean other calls, and a program for it could do nothing
// when every call fails, not even exit. A program that only probes does not use
// foreign entries.
//
// The program is checked against p before it is returned. Compile needs
// libseccomp 2.5.0 or newer, takes milliseconds, and is safe for concurrent use.
func Compile(p Profile) (Program, error) {
	calls, err := lowerNative(p)
	if err != nil {
		return Program{}, err
	}
	return compile(p.Name, calls)
}

// lowerNative lowers p for the running architecture.
func lowerNative(p Profile) ([]call, error) {
	if _, ok := archCodes[runtime.GOARCH]; !ok {
		return nil, api.Errorf(api.Unimplemented, "no seccomp tables for architecture %s", runtime.GOARCH).
			WithHint("use an amd64 or arm64 machine")
	}
	calls, err := lower(p, resolveNative)
	if err != nil {
		return nil, fmt.Errorf("compile seccomp profile %q: %w", p.Name, err)
	}
	return calls, nil
}

// resolveNative is the number of a system call of the running architecture.
func resolveNative(name string) (uint32, bool) {
	if nr, ok := recent[name]; ok {
		return uint32(nr), true
	}
	nr, err := libseccomp.GetSyscallFromName(name)
	// libseccomp numbers calls of other architectures below zero.
	return uint32(nr), err == nil && nr >= 0
}

// libraryVersion is the version of the linked libseccomp, such as "2.5.4".
func libraryVersion() string {
	major, minor, micro := libseccomp.GetLibraryVersion()
	return fmt.Sprintf("%d.%d.%d", major, minor, micro)
}

// compile makes and checks the program of calls.
func compile(profile string, calls []call) (Program, error) {
	wrap := func(err error) error {
		return fmt.Errorf("compile seccomp profile %q for %s with libseccomp %s: %w",
			profile, runtime.GOARCH, libraryVersion(), err)
	}
	prog, err := assemble(calls)
	if err != nil {
		return Program{}, wrap(err)
	}
	if err := checkSize(prog); err != nil {
		return Program{}, wrap(err)
	}
	if err := verify(prog, calls, archCodes[runtime.GOARCH]); err != nil {
		return Program{}, wrap(fmt.Errorf("program contradicts its table: %w", err))
	}
	return Program{
		BPF:     prog,
		Hash:    hash(calls, libraryVersion(), runtime.GOARCH),
		Profile: profile,
	}, nil
}

// assemble has libseccomp write the program.
func assemble(calls []call) ([]byte, error) {
	filter, err := libseccomp.NewFilter(libseccomp.ActErrno.SetReturnCode(int16(Unlisted)))
	if err != nil {
		return nil, fmt.Errorf("make filter: %w", err)
	}
	defer filter.Release()
	if err := filter.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("set action for foreign architectures: %w", err)
	}
	// 2 is a binary tree by number: some 10 comparisons per call instead of up to
	// one per rule.
	if err := filter.SetOptimize(2); err != nil {
		return nil, fmt.Errorf("choose binary tree: %w", err)
	}
	for _, c := range calls {
		if err := addCall(filter, c); err != nil {
			return nil, err
		}
	}
	return export(filter)
}

// addCall adds the rules of one call.
func addCall(filter *libseccomp.ScmpFilter, c call) error {
	branches, err := c.branches()
	if err != nil {
		return err
	}
	for _, b := range branches {
		action := libseccomp.ActAllow
		if b.errno != 0 {
			action = libseccomp.ActErrno.SetReturnCode(int16(b.errno))
		}
		conds := make([]libseccomp.ScmpCondition, len(b.when))
		for i, w := range b.when {
			conds[i] = libseccomp.ScmpCondition{
				Argument: w.Arg, Op: libseccomp.CompareMaskedEqual, Operand1: w.Mask, Operand2: w.Value,
			}
		}
		nr := libseccomp.ScmpSyscall(c.nr)
		if len(conds) == 0 {
			err = filter.AddRuleExact(nr, action)
		} else {
			err = filter.AddRuleConditionalExact(nr, action, conds)
		}
		if err != nil {
			return fmt.Errorf("add rule for %s (%d) %v: %w", c.name, c.nr, b.when, err)
		}
	}
	return nil
}

// export reads the program through a memfd, because libseccomp before 2.6 can
// write it to a file only.
func export(filter *libseccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd for the program: %w", err)
	}
	f := os.NewFile(uintptr(fd), "seccomp")
	defer f.Close()
	if err := filter.ExportBPF(f); err != nil {
		return nil, fmt.Errorf("export program: %w", err)
	}
	prog, err := io.ReadAll(io.NewSectionReader(f, 0, maxInsns*insnSize+1))
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	return prog, nil
}

// Cached is Compile with a cache of compiled programs in the folder dir, which
// it makes if needed (mode 0700). The folder must belong to the caller alone:
// whoever writes it decides what sandboxes may do. A damaged file is replaced.
// Processes may share the folder.
func Cached(dir string, p Profile) (Program, error) {
	calls, err := lowerNative(p)
	if err != nil {
		return Program{}, err
	}
	key := hash(calls, libraryVersion(), runtime.GOARCH)
	prog, ok, err := load(dir, key)
	if err != nil {
		return Program{}, err
	}
	if ok {
		return Program{BPF: prog, Hash: key, Profile: p.Name}, nil
	}
	made, err := compile(p.Name, calls)
	if err != nil {
		return Program{}, err
	}
	return made, store(dir, key, made.BPF)
}
