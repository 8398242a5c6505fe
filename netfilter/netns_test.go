package netfilter

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestMain runs the tests in a user namespace of their own, as hutchd runs.
func TestMain(m *testing.M) {
	if os.Getenv("HUTCH_TEST_IN_USERNS") == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), "HUTCH_TEST_IN_USERNS=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		if err := cmd.Run(); err != nil {
			os.Stderr.WriteString("in a user namespace: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestNewNetns(t *testing.T) {
	ns, err := NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(ns.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got, "net:[") || got == own {
		t.Errorf("namespace %q, own %q: want a different one", got, own)
	}
}
