package guest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// keptCaps is a bounding set as a sandbox's: less than everything, and with
// CAP_SETPCAP, which hutch-init needs.
var keptCaps = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT}

// inner is what libcontainer does for a real sandbox: a root of its own, a
// bounding set, no_new_privs, then hutch-init.
func inner(args []string) error {
	runtime.LockOSThread() // the calls below are the thread's, execve keeps them
	if err := makeRoot(); err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	kept := map[uintptr]bool{}
	for _, c := range keptCaps {
		kept[c] = true
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if kept[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for _, fd := range []int{initFD, selfFD} {
		unix.CloseOnExec(fd)
	}
	return unix.Exec(fmt.Sprintf("/proc/self/fd/%d", initFD), append([]string{"hutch-init"}, args...),
		[]string{"SECRET=outside"})
}

// makeRoot makes a small root on a tmpfs, with the host's /usr, and enters it.
func makeRoot() error {
	const root = "/tmp"
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "") },
		func() error { return unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755") },
		func() error { return rootFiles(root) },
		func() error { return unix.Mount("proc", root+"/proc", "proc", 0, "") },
		func() error { return bind("/usr", root+"/usr") },
		func() error { return mergedUsr(root) },
		func() error { return devices(root + "/dev") },
		func() error { return os.Chdir(root) },
		func() error { return unix.PivotRoot(".", "old") },
		func() error { return unix.Unmount("old", unix.MNT_DETACH) },
		func() error { return os.Chdir("/") },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func bind(from, to string) error {
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// mergedUsr gives root the host's /bin, /lib and so on: links into /usr, or
// folders where the host has them.
func mergedUsr(root string) error {
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		to := filepath.Join(root, name)
		if link, err := os.Readlink("/" + name); err == nil {
			if err := os.Symlink(link, to); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Stat("/" + name); err != nil {
			continue
		}
		if err := errors.Join(os.Mkdir(to, 0o755), bind("/"+name, to)); err != nil {
			return err
		}
	}
	return nil
}

func devices(dev string) error {
	for _, name := range []string{"null", "zero", "urandom", "tty"} {
		to := filepath.Join(dev, name)
		if err := os.WriteFile(to, nil, 0o644); err != nil {
			return err
		}
		if err := bind("/dev/"+name, to); err != nil {
			return err
		}
	}
	err := unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		"newinstance,ptmxmode=0666,mode=0620")
	if err != nil {
		return err
	}
	return os.Symlink("/proc/self/fd", dev+"/fd")
}
