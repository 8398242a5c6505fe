package spec

import (
	"fmt"
	"os"

	devcfg "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// boundingSet is what uid 0 in a sandbox may do to what the sandbox owns. Left
// out of what docker grants: NET_RAW (raw sockets), MKNOD (device nodes),
// AUDIT_WRITE (the host's audit log), NET_BIND_SERVICE (the network namespace is
// hutchd's, so it would have no effect; low ports are opened by a sysctl).
var boundingSet = []string{
	"CAP_CHOWN",        // apt, tar, npm as root
	"CAP_DAC_OVERRIDE", // root reads and writes any file of the sandbox
	"CAP_FOWNER",       // chmod, utimes on any file
	"CAP_FSETID",       // keep setgid bits over chmod
	"CAP_KILL",         // signal other users' processes
	"CAP_SETGID",       // su, service accounts, the exec stub
	"CAP_SETUID",       // the same
	"CAP_SETPCAP",      // the exec stub drops the bounding set with it
	"CAP_SETFCAP",      // packages that ship file capabilities
	"CAP_SYS_CHROOT",   // chroot inside
}

func capabilities() *configs.Capabilities {
	return &configs.Capabilities{
		Bounding:  boundingSet,
		Effective: boundingSet,
		Permitted: boundingSet,
	}
}

// maskPaths show nothing inside: a file reads as empty, a folder has no names. Each
// tells about the host or controls it. Files that only the host's root may read
// (kmsg, slabinfo, vmallocinfo) need no mask.
var maskPaths = []string{
	// Which machine this is, and what it is made of.
	"/proc/cmdline", // names disks, consoles and whatever the administrator has put there
	"/proc/sys/kernel/random/boot_id",
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/driver", "/proc/irq", "/proc/scsi", "/proc/sys/dev",
	"/proc/iomem", "/proc/ioports", "/proc/dma", "/proc/mtrr", "/proc/consoles", "/proc/modules",
	// Its disks and the files that others have open.
	"/proc/partitions", "/proc/diskstats", "/proc/mdstat", "/proc/swaps", "/proc/fs", "/proc/locks",
	// What it does, and when: timing side channels.
	"/proc/interrupts", "/proc/softirqs", "/proc/pressure", "/proc/buddyinfo", "/proc/zoneinfo",
	"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/latency_stats",
	// The kernel's memory and the host's keys.
	"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/key-users",
}

// readonlyPaths can be read but not written inside.
var readonlyPaths = []string{
	"/proc/sys",
	"/proc/sysrq-trigger",
}

func devices() []*devcfg.Device {
	char := func(path string, major, minor int64) *devcfg.Device {
		return &devcfg.Device{
			Path:     path,
			FileMode: os.FileMode(0o666),
			Rule:     devcfg.Rule{Type: devcfg.CharDevice, Major: major, Minor: minor, Permissions: "rwm", Allow: true},
		}
	}
	return []*devcfg.Device{
		char("/dev/null", 1, 3),
		char("/dev/zero", 1, 5),
		char("/dev/full", 1, 7),
		char("/dev/random", 1, 8),
		char("/dev/urandom", 1, 9),
		char("/dev/tty", 5, 0),
	}
}

const noSuidDevExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mounts lists what is mounted over the overlay, in order. /sys is a few files of ours: a
// sysfs mount needs the network namespace to be ours (it is hutchd's), and a bind
// of the host's would show its devices.
func mounts(in Input) []*configs.Mount {
	ms := []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: noSuidDevExec},
		{Source: "tmpfs", Destination: "/dev", Device: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_STRICTATIME,
			Data: "mode=755,size=64k,nr_inodes=1k"},
		{Source: in.PtsDir, Destination: "/dev/pts", Device: "bind",
			Flags: unix.MS_BIND | unix.MS_NOSUID | unix.MS_NOEXEC},
		{Source: "shm", Destination: "/dev/shm", Device: "tmpfs", Flags: noSuidDevExec,
			Data: fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", in.ShmBytes, ShmInodes)},
		{Source: "mqueue", Destination: "/dev/mqueue", Device: "mqueue", Flags: noSuidDevExec},
		bind(Bind{Source: in.Sys, Target: "/sys", ReadOnly: true}),
	}
	if in.CgroupPath != "" && in.CgroupV1 {
		// libcontainer mounts each controller's in a tmpfs of its own, which it leaves writable. What it makes
		// read-only in the end is whatever is then at the place of each tmpfs here that is to be so.
		ms = append(ms, &configs.Mount{
			Source: "tmpfs", Destination: "/sys/fs/cgroup", Device: "tmpfs", Flags: noSuidDevExec | unix.MS_RDONLY,
			Data: "size=4k,nr_inodes=1",
		})
	}
	if in.CgroupPath != "" {
		ms = append(ms, &configs.Mount{
			Source: "cgroup", Destination: "/sys/fs/cgroup", Device: "cgroup", Flags: noSuidDevExec | unix.MS_RDONLY,
		})
	}
	for _, b := range in.Binds {
		ms = append(ms, bind(b))
	}
	return ms
}

// ShmInodes bounds the files of /dev/shm, also those that take no memory.
const ShmInodes = 16 << 10

// bind keeps what is mounted below the source visible (recursive) and applies
// nosuid, nodev and read-only to all of it, which needs mount_setattr(2): plain
// MS_REMOUNT changes only the top mount.
func bind(b Bind) *configs.Mount {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	flags := unix.MS_BIND | unix.MS_REC | unix.MS_NOSUID | unix.MS_NODEV
	if b.ReadOnly {
		flags |= unix.MS_RDONLY
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	return &configs.Mount{
		Source: b.Source, Destination: b.Target, Device: "bind", Flags: flags,
		PropagationFlags: []int{unix.MS_PRIVATE | unix.MS_REC},
		RecAttr:          attr,
	}
}
