package guest_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What commands in the sandbox run as /self NAME ARG...
func init() {
	insideTools["signal-storm"] = signalStorm
	insideTools["attack-init"] = attackInit
	insideTools["attack-stubs"] = attackStubs
	insideTools["trace"] = trace
	insideTools["sysinfo"] = func([]string) error { return unix.Sysinfo(&unix.Sysinfo_t{}) }
}

func itoa(n int) string { return strconv.Itoa(n) }

// trace attaches to a process, says "up" and then neglects it. The tracer that the kernel names is a thread
// (fs/proc/array.c, task_state): it is one that has not the process's number, as in any debugger with threads.
func trace(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // so that the other goroutine gets another thread
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.PtraceSeize(pid); err != nil {
			failed <- err
			return
		}
		fmt.Println("up")
		for {
			if err := unix.Pause(); err != nil && !errors.Is(err, unix.EINTR) {
				failed <- err
				return
			}
		}
	}()
	return <-failed
}

// signalStorm sends every signal to PID 1 in every way there is: as kill(1)
// does, and with each si_code that a process may invent (pidfd_send_signal(2)
// refuses the kernel's own, which are not negative).
func signalStorm([]string) error {
	pidfd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	for sig := 1; sig <= 64; sig++ {
		if err := unix.Kill(1, unix.Signal(sig)); err != nil {
			return fmt.Errorf("kill %d: %w", sig, err)
		}
		if err := unix.Tgkill(1, 1, unix.Signal(sig)); err != nil {
			return fmt.Errorf("tgkill %d: %w", sig, err)
		}
		for code := int32(-1); code > -70; code-- {
			if code == -6 { // SI_TKILL is refused
				continue
			}
			info := &unix.Siginfo{Signo: int32(sig), Code: code}
			err := unix.PidfdSendSignal(pidfd, unix.Signal(sig), info, 0)
			if err != nil && !errors.Is(err, unix.EAGAIN) { // EAGAIN: real-time signals queue up
				return fmt.Errorf("pidfd_send_signal %d code %d: %w", sig, code, err)
			}
		}
	}
	fmt.Println("sent")
	return nil
}

// attackInit tries to get at PID 1's memory and fds, and does the same to its
// own shell, which must work.
func attackInit([]string) error {
	for _, target := range []int{1, os.Getppid()} {
		_, environ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", target))
		_, fds := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", target))
		mem, memory := os.OpenFile(fmt.Sprintf("/proc/%d/mem", target), os.O_RDWR, 0)
		if memory == nil {
			_ = mem.Close()
		}
		ptrace := unix.PtraceSeize(target)
		fmt.Println(target == 1, errnoOf(environ), errnoOf(fds), errnoOf(memory), errnoOf(ptrace))
	}
	return nil
}

func errnoOf(err error) int {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return int(errno)
	}
	return 0
}

// attackStubs tries to attach to each newest process of the sandbox until there is
// a file /tmp/over, and says how many stubs and commands it got. A stub is
// what has only PID 1's filter.
func attackStubs([]string) error {
	runtime.LockOSThread() // a tracer is a thread
	fmt.Println("ready")
	stubs, commands, last := 0, 0, 0
	for {
		// Not the newest process may say so: that can be a thread of this one.
		if _, err := os.Stat("/tmp/over"); err == nil {
			fmt.Println(stubs, commands)
			return nil
		}
		pid, err := newestPID()
		if err != nil {
			return err
		}
		if pid == last {
			continue
		}
		if unix.PtraceSeize(pid) == nil {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			switch {
			case strings.Contains(string(status), "Seccomp_filters:\t1\n"):
				stubs++
			case len(status) > 0:
				commands++
			}
			last = pid
			if err := letGo(pid); err != nil {
				return err
			}
		}
	}
}

// newestPID is the last pid given out, the fifth field of /proc/loadavg.
func newestPID() (int, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text))
	return strconv.Atoi(f[len(f)-1])
}

// letGo detaches from a tracee, which must be stopped for that, or waits for its
// end: without that its parent never hears of it.
func letGo(pid int) error {
	if err := unix.PtraceInterrupt(pid); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("interrupt %d: %w", pid, err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait for %d: %w", pid, err)
	}
	if ws.Stopped() {
		return unix.PtraceDetach(pid)
	}
	return nil
}
