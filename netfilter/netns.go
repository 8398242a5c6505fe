// Package netfilter owns the network side of a sandbox. Today that is the empty
// network namespace: a loopback interface and no route anywhere, which is what
// the policy mode `none` means.
package netfilter

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// NewNetns makes a network namespace with loopback up and returns an fd of it,
// which the caller owns; the namespace lives as long as the fd or a process in it.
//
// It belongs to the caller's user namespace. A sandbox joins it from a nested
// one, so that even its root may not touch links, routes, nftables or sysctls.
func NewNetns() (*os.File, error) {
	done := make(chan result, 1)
	go onOwnThread(done)
	r := <-done
	return r.ns, r.err
}

type result struct {
	ns  *os.File
	err error
}

// onOwnThread makes the namespace on a thread that ends with this goroutine: it
// could not go back (setns into a namespace of the initial user namespace is
// EPERM). The main thread never ends, and /proc/self shows its namespaces, so
// there the work moves to another one.
func onOwnThread(done chan<- result) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		defer runtime.UnlockOSThread()
		moved := make(chan result, 1)
		go onOwnThread(moved) // can not land here: this thread is locked
		done <- <-moved
		return
	}
	ns, err := makeNetns()
	done <- result{ns, err}
}

func makeNetns() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare network namespace: %w", err)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	if err := loopbackUp(); err != nil {
		ns.Close()
		return nil, err
	}
	// /proc/sys/net shows the namespace of the thread that opens it.
	// Servers inside may use low ports although nobody has NET_BIND_SERVICE here.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		ns.Close()
		return nil, fmt.Errorf("open low ports: %w", err)
	}
	return ns, nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: socket: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}
