// Package spec turns what hutchd decided about a sandbox into the libcontainer
// config that hutch-launch runs. It is pure: no file, no clock, no environment,
// so a golden file per case shows exactly what a sandbox is made of.
package spec

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// Extent is one line of /proc/self/uid_map as hutchd sees its own: Count ids
// from Start on are mapped. Only the inside column matters for what is nested.
type Extent struct {
	Start, Count int64
}

// Bind is a host folder or file inside the sandbox.
type Bind struct {
	Source   string // absolute, as hutch-launch sees it
	Target   string // absolute, in the sandbox
	ReadOnly bool
	// NoExec and the like are not offered: a workspace without exec helps nobody,
	// and nosuid and nodev are always set.
}

// Input is everything that decides a config.
type Input struct {
	Hostname string
	Rootfs   string // absolute, where hutch-launch mounts the overlay
	PtsDir   string // absolute, where hutch-launch mounts the devpts instance
	Binds    []Bind

	// UIDs and GIDs are hutchd's own maps: the sandbox's user namespace is nested
	// in it and maps every id to itself.
	UIDs, GIDs []Extent

	// CgroupPath is the sandbox's cgroup below the mount of each hierarchy;
	// "" when the host gives us none.
	// Where there is one, a read-only view of it is shown inside: the JVM, Go, Node and others read their limits there.
	CgroupPath string
	CgroupV1   bool   // its controllers are those of v1
	Sys        string // absolute, the folder that is /sys inside; fs/cgroup is in it

	ShmBytes int64 // of /dev/shm
	ReadOnly bool  // the root, but for what is mounted
	// Browser allows what browsers need to confine their own children: user namespaces inside.
	Browser    bool
	AppArmor   string // profile that PID 1 and all that it starts is under; "" for the daemon's own
	NoFileHard uint64 // hard RLIMIT_NOFILE, below hutchd's own
}

// Build makes the config. The network namespace's path is filled in by
// hutch-launch, which alone holds the fd.
func Build(in Input) *configs.Config {
	c := &configs.Config{
		Rootfs:          in.Rootfs,
		RootPropagation: unix.MS_PRIVATE | unix.MS_REC,
		Hostname:        in.Hostname,
		Namespaces: configs.Namespaces{
			{Type: configs.NEWUSER},
			{Type: configs.NEWPID},
			{Type: configs.NEWNS},
			{Type: configs.NEWNET},
			{Type: configs.NEWIPC},
			{Type: configs.NEWUTS},
			{Type: configs.NEWCGROUP},
		},
		UIDMappings:     nest(in.UIDs),
		GIDMappings:     nest(in.GIDs),
		Capabilities:    capabilities(),
		NoNewPrivileges: true,
		AppArmorProfile: in.AppArmor,
		// The monitor joined a session keyring of its own before anything else, so
		// the caller's is not in reach, and a keyring per sandbox would use up the
		// uid's quota of 200 (keyrings(7)).
		NoNewKeyring:  true,
		Devices:       devices(),
		Mounts:        mounts(in),
		MaskPaths:     maskPaths,
		ReadonlyPaths: readonlyPaths,
		Readonlyfs:    in.ReadOnly,
		Rlimits:       rlimits(in.NoFileHard),
		Sysctl:        sysctls(in.Browser),
		// Inside hutchd's user namespace libcontainer's idea of "rootless" (euid 0
		// mapped by newuidmap of its own) does not apply.
		RootlessEUID: false,
		Cgroups:      cgroup(in),
		Version:      "1.3.0",
	}
	c.RootlessCgroups = c.Cgroups.Rootless
	return c
}

// nestedNamespaces is how many of each kind there may be inside where a browser confines its
// renderers, each of which has one of each.
const nestedNamespaces = "256"

func sysctls(browser bool) map[string]string {
	m := map[string]string{
		// A user namespace made inside would bring back every capability and with
		// it the kernel code behind them. seccomp refuses it as well.
		"user.max_user_namespaces": "0",
		// Each of a sandbox's instances counts as the caller's, of whose 128 (by default)
		// its own programs need some.
		"user.max_inotify_instances": "32",
	}
	if browser {
		for _, kind := range []string{"user", "pid", "net", "ipc"} {
			m["user.max_"+kind+"_namespaces"] = nestedNamespaces
		}
	}
	return m
}

// JSON is Build's config as hutch-launch takes it, so that hutchd need not know
// libcontainer's types.
func JSON(in Input) (json.RawMessage, error) {
	raw, err := json.Marshal(Build(in))
	if err != nil {
		return nil, fmt.Errorf("encode sandbox config: %w", err)
	}
	return raw, nil
}

// nest maps every id of the parent namespace to itself. A map may not cross the
// parent's extents (user_namespaces(7)), so they are kept apart.
func nest(extents []Extent) []configs.IDMap {
	maps := make([]configs.IDMap, 0, len(extents))
	for _, e := range extents {
		maps = append(maps, configs.IDMap{ContainerID: e.Start, HostID: e.Start, Size: e.Count})
	}
	return maps
}

func cgroup(in Input) *cgroups.Cgroup {
	// No rules for devices: they are kept out by nodev mounts, the missing CAP_MKNOD and the user namespace, and
	// hutch-launch does not link libcontainer's code for them (cgroups/devices), which could load none from inside one.
	// SkipDevices says something else: libcontainer starts no container with it.
	res := &cgroups.Resources{}
	if in.CgroupPath == "" {
		// libcontainer ignores errors only while Path is empty, and demands a name.
		return &cgroups.Cgroup{Name: filepath.Base(filepath.Dir(in.Rootfs)), Rootless: true, Resources: res}
	}
	// Limits are hutchd's to set, before the first command as while it runs: package cgroups.
	return &cgroups.Cgroup{Path: in.CgroupPath, Resources: res}
}

func rlimits(nofileHard uint64) []configs.Rlimit {
	return []configs.Rlimit{
		{Type: unix.RLIMIT_NOFILE, Soft: min(1024, nofileHard), Hard: nofileHard},
		// 1, not 0: a core_pattern that pipes to a program runs it with the host's
		// rights for limit 0 too, and only limit 1 stops it (fs/coredump.c).
		{Type: unix.RLIMIT_CORE, Soft: 1, Hard: 1},
	}
}
