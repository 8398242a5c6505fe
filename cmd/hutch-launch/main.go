// Command hutch-launch launches sandboxes with libcontainer on behalf of its
// child hutchd. The monitor starts it (runtime/launch/bootstrap); nobody else
// can use it. With the argument "init" it is libcontainer's own first process
// in a new sandbox.
package main

import (
	"os"
	"path/filepath"

	_ "github.com/opencontainers/cgroups/devices" // lets cgroup managers set device rules
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // enters namespaces before Go starts threads

	"github.com/hutch-sh/hutch/runtime/launch"
	"github.com/hutch-sh/hutch/seccomp"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init()
	}
	os.Exit(launch.Main(launch.Config{Filter: filter}))
}

// filter compiles a built-in seccomp profile, or finds it in the state folder. Commands
// are under PID 1's already, so theirs is only what that one lacks.
func filter(stateDir, profile string) ([]byte, error) {
	p, err := seccomp.ByName(profile)
	if err != nil {
		return nil, err
	}
	if p.Name != seccomp.InitName {
		program, err := seccomp.OnTop(seccomp.Init(), p)
		return program.BPF, err
	}
	program, err := seccomp.Cached(filepath.Join(stateDir, "cache", "seccomp"), p)
	if err != nil {
		return nil, err
	}
	return program.BPF, nil
}
