package program

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/bpf/bpftest"
)

// TestUnprivileged: maps take no right but their fds, also in a user namespace of its own.
func TestUnprivileged(t *testing.T) {
	r := newRig(t, "yes")
	cgroup, _ := r.sandbox("sb", nil)
	w := r.worker("sb")
	r.expect(w, "socket 2 1 0", refusal)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWriter$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", writerVar, cgroup))
	cmd.ExtraFiles, cmd.Dir = r.files, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: bpftest.Nobody, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: bpftest.Nobody, Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.expect(w, "listen", "ok")
	r.expect(w, tcp4+"198.18.0.5:7000", "ok")
	r.expect(w, tcp4+"198.18.0.6:7000", refusal)
}

// TestWriter is not a test but TestUnprivileged's child.
func TestWriter(t *testing.T) {
	if os.Getenv(writerVar) == "" {
		t.Log("done by others")
		return
	}
	var files []*os.File
	for i := range bpf.Count {
		files = append(files, os.NewFile(uintptr(3+i), "map"))
	}
	defer packet.CloseAll(files)
	maps := must(bpf.Open(files))(t)
	defer maps.Close()
	events := must(maps.Events())(t)
	defer events.Close()
	// The event of the socket that was refused before.
	_ = must(maps.Counts(0))(t)
	if _, err := maps.Add(uint64(number(os.Getenv(writerVar))),
		bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7000", bpf.TCP)}}); err != nil {
		t.Fatal(err)
	}
}
