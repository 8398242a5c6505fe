package sys

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// listenerEnv makes the test's binary the process that has the filter: a filter is for good.
const listenerEnv = "HUTCH_TEST_SECCOMP_LISTENER"

// TestReturnFDInterrupted: a call returns the descriptor that its listener gave it, however often signals interrupt the
// listener. A thread of a Go program gets one at each garbage collection, a frozen cgroup looks like one to the kernel,
// and both the answer and the listener were lost by it.
func TestReturnFDInterrupted(t *testing.T) {
	if os.Getenv(listenerEnv) != "" {
		interrupted(t)
		return
	}
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestReturnFDInterrupted$")
	cmd.Env = append(os.Environ(), listenerEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// interrupted asks 2,000 times for a descriptor with a call that a process needs for nothing else.
func interrupted(t *testing.T) {
	const asked = unix.SYS_IOPRIO_GET
	var prog []byte
	for _, in := range []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: asked, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	} {
		prog = binary.NativeEndian.AppendUint16(prog, in.Code)
		prog = append(prog, in.Jt, in.Jf)
		prog = binary.NativeEndian.AppendUint32(prog, in.K)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	listener, err := InstallSeccompListener(prog, true)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) {
		return // another listener above, or Linux before 5.19
	}
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	thread := make(chan int)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		defer listener.Close() // the calls fail then, and none waits
		for {
			n, err := ReceiveSeccomp(int(listener.Fd()))
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
				continue
			}
			if err == nil {
				err = ReturnSeccompFD(int(listener.Fd()), n.ID, int(r.Fd()), true)
			}
			if err != nil {
				t.Error("listener:", err)
				return
			}
		}
	}()
	tid := <-thread
	go func() {
		for {
			_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
		}
	}()
	var want, got unix.Stat_t
	if err := unix.Fstat(int(r.Fd()), &want); err != nil {
		t.Fatal(err)
	}
	for range 2_000 {
		fd, _, errno := unix.Syscall(asked, 0, 0, 0)
		if errno != 0 {
			t.Fatal("call:", errno)
		}
		if err := unix.Fstat(int(fd), &got); err != nil || got.Ino != want.Ino || fd <= 2 {
			t.Fatalf("the call returned %d: %v", fd, err)
		}
		unix.Close(int(fd))
	}
}
