// Command hutch-launch launches sandboxes with libcontainer on behalf of its
// child hutchd. The monitor starts it (runtime/launch/bootstrap); nobody else
// can use it. With the argument "init" it is libcontainer's own first process
// in a new sandbox.
package main

// Before Go starts threads, each of which would have to: nothing that hutch-launch or hutchd
// starts is to have the rights of a setuid file.

/*
#include <sys/prctl.h>

__attribute__((constructor)) static void no_new_privs(void) { prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }
*/
import "C" //nolint:depguard // cgo stands for unsafe here, and nothing is called

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // enters namespaces before Go starts threads

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/launch"
	"github.com/hutch-sh/hutch/seccomp"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init()
	}
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on != 1 {
		fmt.Fprintln(os.Stderr, "hutch-launch: no_new_privs is not in force:", err)
		os.Exit(1)
	}
	os.Exit(launch.Main(launch.Config{Filter: filter, Custom: custom, Init: seccomp.InitFor}))
}

// filter compiles a built-in seccomp profile, or finds it in the state folder. Commands
// are under PID 1's already, so theirs is only what that one lacks, where that is simple.
func filter(stateDir, profile string) ([]byte, error) {
	p, err := seccomp.ByName(profile)
	if err != nil {
		return nil, err
	}
	if below := seccomp.InitFor(profile); !seccomp.IsInit(profile) {
		base, err := seccomp.ByName(below)
		if err != nil {
			return nil, err
		}
		program, err := seccomp.OnTop(base, p)
		if !errors.Is(err, seccomp.ErrWhole) {
			return program.BPF, err
		}
	}
	program, err := seccomp.Cached(filepath.Join(stateDir, "cache", "seccomp"), p)
	if err != nil {
		return nil, err
	}
	return program.BPF, nil
}

// custom compiles a profile of the caller's own.
func custom(text string) ([]byte, error) {
	c, err := seccomp.ParseCustom(text)
	if err != nil {
		return nil, err
	}
	program, err := seccomp.CompileCustom(c)
	return program.BPF, err
}
