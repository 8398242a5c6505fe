package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/cgroups"
	"github.com/hutch-sh/hutch/runtime/api"
)

// kernelKey begins the keys under which hutch-launch holds the eBPF maps, so that they
// outlive hutchd and monitor.
const kernelKey = "ebpf/"

// useKernel has the networks enforced by eBPF, where the monitor has put programs in force.
// given are their maps, of the monitor's; a hutchd before may have left them with
// hutch-launch. An error keeps hutchd from starting: programs that know no sandbox refuse
// everything.
func (d *daemon) useKernel(n networks, given []*os.File, held map[string]*os.File) error {
	if !d.cfg.EBPF.On {
		return nil
	}
	var maps []*os.File
	for i := 0; held[kernelKey+strconv.Itoa(i)] != nil; i++ {
		maps = append(maps, held[kernelKey+strconv.Itoa(i)])
	}
	if maps == nil {
		maps = given
		for i, f := range maps {
			if err := d.launcher.Keep(kernelKey+strconv.Itoa(i), f); err != nil {
				return fmt.Errorf("keep the eBPF maps: %w", err)
			}
		}
	}
	err := n.UseKernel(maps, n.mount)
	if err == nil {
		err = d.proveKernel(n)
	}
	if err != nil {
		return api.Errorf(api.Unavailable, "eBPF programs are in force, but cannot be used: %w", err).
			WithHint("start the daemon with HUTCH_EBPF=off, and tell us")
	}
	return nil
}

// proveKernel lets a process in a cgroup of its own try what is allowed and what is not,
// before anybody relies on eBPF.
func (d *daemon) proveKernel(n networks) (err error) {
	dir := filepath.Join(d.cfg.Cgroups.Mounts[""], d.cfg.Cgroups.Path, fmt.Sprintf("proof-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a cgroup to try eBPF in: %w", err)
	}
	defer func() { err = errors.Join(err, cgroups.RemoveEmptied(dir)) }()
	exec := filepath.Join(dir, "exec")
	if err := os.Mkdir(exec, 0o755); err != nil {
		return fmt.Errorf("make a cgroup to try eBPF in: %w", err)
	}
	defer func() { err = errors.Join(cgroups.RemoveEmptied(exec), err) }()
	cgroup, err := os.Open(exec)
	if err != nil {
		return fmt.Errorf("open a cgroup to try eBPF in: %w", err)
	}
	defer cgroup.Close()
	number, err := inode(dir)
	if err != nil {
		return err
	}
	below, err := inode(exec)
	if err != nil {
		return err
	}
	return n.ProveKernel(number, below, d.cfg.EBPF.Errnos, func(to ...netip.AddrPort) ([]syscall.Errno, error) {
		return connectIn(cgroup, to)
	})
}

func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat the cgroup %s: %w", path, err)
	}
	return st.Ino, nil
}

// connectRole is that of a process that connects to the addresses of its arguments, and
// prints the errno of each.
const connectRole = "connect"

// connectIn runs one in a cgroup.
func connectIn(cgroup *os.File, to []netip.AddrPort) ([]syscall.Errno, error) {
	args := []string{connectRole}
	for _, a := range to {
		args = append(args, a.String())
	}
	var out, words bytes.Buffer
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &words, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run a process in the cgroup: %w: %s", err, bytes.TrimSpace(words.Bytes()))
	}
	var errnos []syscall.Errno
	for _, word := range strings.Fields(out.String()) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("read what a process in the cgroup says: %w", err)
		}
		errnos = append(errnos, syscall.Errno(n))
	}
	return errnos, nil
}

// connectAll is the role: datagrams are connected, so that nothing is sent.
func connectAll(addresses []string) error {
	for _, text := range addresses {
		a, err := netip.ParseAddrPort(text)
		if err != nil || !a.Addr().Is4() {
			return fmt.Errorf("connect: %q is no IPv4 address with a port", text)
		}
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(s, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())})
			_ = unix.Close(s)
		}
		var errno syscall.Errno
		if err != nil && !errors.As(err, &errno) {
			return err
		}
		fmt.Println(int(errno))
	}
	return nil
}
