package proxy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
)

// TestMain runs the tests in namespaces of their own, where ports 80 and 443 are free,
// all of 127.0.0.0/8 is local, and nothing leads outside.
func TestMain(m *testing.M) {
	const inside = "HUTCH_TEST_IN_NETNS"
	if os.Getenv(inside) != "" {
		os.Exit(testMain(m))
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "in a network namespace:", err)
		os.Exit(1)
	}
}

func testMain(m *testing.M) int {
	if err := loopbackUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := sharedLoop(); err != nil { // never ends
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return leak.Main(m, "proxy.(*loop).run")
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
}
